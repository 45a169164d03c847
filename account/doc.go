// Package account tells where the time of a request went, and how long an iteration should have taken.
//
// It is pure: no clock, no store, no network; everything comes from a [ledger.Engine]'s rows. An account costs O(stints), not
// O(tokens), because every interval is a difference of two rows of running sums. Boundaries of intervals are measured; the
// shares inside them are modelled and marked so, and the signed slowdown makes the modelled parts sum to what was measured.
package account
