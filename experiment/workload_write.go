package experiment

import (
	"bufio"
	"fmt"
	"io"
)

// A Writer writes a workload, one request a line, in the order given.
type Writer struct {
	out     *bufio.Writer
	check   order
	written int
}

// NewWriter returns a writer of the workload in w. It writes in pieces: [Writer.Flush] writes the last.
func NewWriter(w io.Writer) *Writer { return &Writer{out: bufio.NewWriterSize(w, 64<<10)} }

// Write writes one request. One that a [Reader] would refuse, for its own fields or for its place, is not written, and gives
// the error that names it.
func (w *Writer) Write(r *Request) error {
	w.written++
	object, err := r.MarshalJSON()
	if err == nil {
		err = w.check.take(r, w.written, false)
	}
	if err != nil {
		return fmt.Errorf("write request %d: %w", w.written, err)
	}
	if _, err := w.out.Write(append(object, '\n')); err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	return nil
}

// Flush writes what is still held back.
func (w *Writer) Flush() error {
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	return nil
}

// Write writes the requests as a workload. The first that cannot be written ends it; what was written before stays.
func Write(w io.Writer, requests []Request) error {
	out := NewWriter(w)
	for i := range requests {
		if err := out.Write(&requests[i]); err != nil {
			return err
		}
	}
	return out.Flush()
}
