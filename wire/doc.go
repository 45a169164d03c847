// Package wire is the codec of everything that a probe writes and whylate reads: frames and their messages, the ring
// files that carry them in shared memory, and the capture files (.wlc) that keep them. docs/formats/stream.md says what
// every byte means; testdata/vectors.json holds whole frames that this package and the Python writer are both held to.
//
// A [Frame] is one checked record. A [Message] is what its body says; [Decode] and [Append] go between the two:
//
//	f, n, err := wire.ParseFrame(b) // b[n:] is the next one
//	if f.Type == wire.TypeScheduled {
//		err = wire.Decode(f, &scheduled) // reuses the slices of scheduled
//	}
//
// A [Ring] and a [CaptureReader] both yield [Record] values: a frame, the opening of a source, or a [Gap], which is
// what is known to be missing. Nothing is lost in silence: whatever a reader cannot give, it reports as a gap.
//
// The package has no clock and starts no goroutine. It says what the bytes say; whether they make sense together is for
// ledger.Check to judge.
package wire
