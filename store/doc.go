// Package store is the contract of what whylate keeps: a log of what was acknowledged, and sealed periods of what has ended. It
// holds the description of the tables (rows.go, from which docs/tables.md and the Parquet schema follow) and no body; the body
// that ships is package store/embedded, and package store/storetest is what every body must pass.
//
// What is acknowledged is frames. The log keeps them as captures (docs/formats/stream.md §4); the hot period is what an assembler
// makes of them in memory. When requests have ended they are sealed, with the iterations that they lived through, into a
// period that never changes again, and the log below can be forgotten.
package store
