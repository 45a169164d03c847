// Package embedded is the store that ships: one directory, one process, no server and no cgo.
//
//	DIR/LOCK                      held while the store is open
//	DIR/log/NNN.wlc               what was acknowledged, as captures (docs/formats/stream.md §4), with fsync
//	DIR/log/kept.json             the last sequence of sources whose frames have been forgotten
//	DIR/sealed/PERIOD/…           one immutable directory a period: manifest.json and Parquet files (docs/tables.md)
//
// Everything is written beside its place, synced and then renamed into it; what a crash leaves half done is swept at the next open.
package embedded
