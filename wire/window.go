package wire

import "io"

// windowStep is how much a window asks of its input at once.
const windowStep = 64 << 10

// window looks ahead in an input. It grows only as far as the input really goes, so that a claimed length costs nothing.
type window struct {
	in   io.Reader
	buf  []byte // read and not passed yet
	free []byte // the array that buf lies in
	err  error  // what the input ended with
}

// peek returns the next n bytes without passing them. With an error, which is [io.EOF] at the end of the input, they are fewer.
func (w *window) peek(n int) ([]byte, error) {
	for len(w.buf) < n && w.err == nil {
		w.fill()
	}
	if len(w.buf) < n {
		return w.buf, w.err
	}
	return w.buf[:n], nil
}

// fill reads once.
func (w *window) fill() {
	if cap(w.buf)-len(w.buf) < windowStep {
		if len(w.free) < 2*len(w.buf)+windowStep {
			w.free = make([]byte, 2*len(w.buf)+windowStep)
		}
		w.buf = w.free[:copy(w.free, w.buf)]
	}
	n, err := w.in.Read(w.buf[len(w.buf):cap(w.buf)])
	w.buf, w.err = w.buf[:len(w.buf)+n], err
}

// pass goes n bytes on; they have been peeked at.
func (w *window) pass(n int) { w.buf = w.buf[n:] }
