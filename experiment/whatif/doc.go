// Package whatif answers what a captured run would have been like under other settings: it plays the arrivals that a ledger holds on a
// simulated engine with the scheduler's rules and an iteration time calibrated from the same ledger, once with the settings as they were
// and once with the change, and compares the two.
//
// The answer is a prediction. It comes with what it may be wrong by: how far simulation and capture are apart where nothing was changed,
// and how far two simulations are apart that differ in their seed alone (the sham).
package whatif
