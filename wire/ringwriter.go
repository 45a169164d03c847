package wire

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RingWriter writes a ring file as a probe does, for the simulator and for tests. It is for one goroutine.
type RingWriter struct {
	file   *os.File
	path   string
	size   uint64     // of the data area
	header ringHeader // as it stands in the file
	frame  []byte     // the last one built, for reuse
}

// CreateRing makes the ring file of the thread that hello describes in dir, with size bytes of data, a multiple of 8. The file
// is reserved in full and locked until Close, and hello is its first frame. If the file system has no room for it, the error
// says so and no file stays behind.
func CreateRing(dir string, hello *Hello, size int64) (*RingWriter, error) {
	path := filepath.Join(dir, RingName(hello))
	refuse := func(err error, field, value, remedy string) error {
		return &Error{Err: err, Source: path, Message: "create ring", Field: field, Value: value, Remedy: remedy}
	}
	frame, err := Append(nil, 1, hello)
	if err != nil {
		return nil, from(path, err)
	}
	if len(frame) > ringHelloMax {
		return nil, refuse(ErrLength, "hello", fmt.Sprintf("%d bytes", len(frame)),
			fmt.Sprintf("a ring's header has room for %d; name fewer settings", ringHelloMax))
	}
	if size%frameAlign != 0 || size < int64(len(frame)) {
		return nil, refuse(ErrLength, "data size", fmt.Sprint(size), "choose a multiple of 8 that holds the hello at least")
	}

	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, refuse(err, "", "", "")
	}
	w := &RingWriter{file: file, path: path, size: uint64(size)}
	if err := w.open(hello, frame); err != nil {
		file.Close()
		os.Remove(path)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EFBIG) {
			return nil, refuse(err, "data size", fmt.Sprint(size),
				"the file system has no room for it: make it larger, free some of it, or choose a smaller ring")
		}
		return nil, refuse(err, "", "", "")
	}
	return w, nil
}

func (w *RingWriter) open(hello *Hello, frame []byte) error {
	fd := int(w.file.Fd())
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
		return err
	}
	if err := unix.Fallocate(fd, 0, 0, int64(ringHeaderSize+w.size)); err != nil {
		return err
	}
	h := &w.header
	h.setU16(ringMajor, Major)
	h.setU16(ringMinor, Minor)
	h.setU32(ringHeaderAt, ringHeaderSize)
	h.setU64(ringDataSize, w.size)
	h.setU32(ringPID, hello.PID)
	h.setU32(ringHelloLength, uint32(len(frame)))
	h.setU64(ringStart, hello.Start)
	if _, err := w.file.WriteAt(h[:], 0); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(frame, ringHelloAt); err != nil {
		return err
	}
	if err := w.Write(hello); err != nil {
		return err
	}
	copy(h[:], ringMagic) // last, so that no reader sees a header that is not finished
	_, err := w.file.WriteAt(h[:ringMajor], 0)
	return err
}

// Path is where the ring file is.
func (w *RingWriter) Path() string { return w.path }

// Write appends m as the next frame, over the oldest ones if need be. A message that cannot be built or does not fit is
// counted as dropped, and the error says why; the ring stays usable.
func (w *RingWriter) Write(m Message) error {
	frame, err := Append(w.frame[:0], w.header.u64(ringWritten)+1, m)
	w.frame = frame
	if err == nil && uint64(len(frame)) > w.size {
		err = &Error{Err: ErrLength, Message: m.Type().String(), Field: "length", Value: fmt.Sprint(len(frame)),
			Remedy: fmt.Sprintf("the ring has %d bytes; make it larger", w.size)}
	}
	if err != nil {
		w.add(ringDropped, 1)
		return errors.Join(from(w.path, err), w.publish())
	}
	if err := w.put(frame); err != nil {
		return err
	}
	w.add(ringWritten, 1)
	w.note(m)
	return w.publish()
}

// CountError counts an error caught inside a hook.
func (w *RingWriter) CountError() error {
	w.add(ringErrors, 1)
	return w.publish()
}

// Close lets go of the lock, which tells readers that the writer is gone. The file stays.
func (w *RingWriter) Close() error { return w.file.Close() }

// skipMark is a frame of length 0: the next one is at the start of the data area.
var skipMark = make([]byte, frameAlign)

// put copies frame behind the last one, and moves head past it.
func (w *RingWriter) put(frame []byte) error {
	at := w.header.u64(ringHead) % w.size
	if left := w.size - at; uint64(len(frame)) > left {
		if _, err := w.file.WriteAt(skipMark, int64(ringHeaderSize+at)); err != nil {
			return err
		}
		w.add(ringHead, left)
		at = 0
	}
	if _, err := w.file.WriteAt(frame, int64(ringHeaderSize+at)); err != nil {
		return err
	}
	w.add(ringHead, uint64(len(frame)))
	return nil
}

// note keeps what the header tells of the last messages.
func (w *RingWriter) note(m Message) {
	h := &w.header
	switch m := m.(type) {
	case *Hello:
		w.clock(m.Clock[0], m.Clock[1], m.Clock[2])
	case *Clock:
		w.clock(m.MonoBefore, m.Realtime, m.MonoAfter)
	case *Scheduled:
		h.setU64(ringLaunched, m.Iteration)
		h.setI64(ringLaunchedAt, m.Time)
		h.setU32(ringRunning, m.Running)
		h.setU32(ringWaiting, m.Waiting)
	case *Done:
		h.setU64(ringCompleted, m.Iteration)
		h.setI64(ringCompletedAt, m.Time)
	}
}

func (w *RingWriter) clock(before, realtime, after int64) {
	w.header.setI64(ringClock, before)
	w.header.setI64(ringClock+8, realtime)
	w.header.setI64(ringClock+16, after)
}

func (w *RingWriter) add(at int, n uint64) { w.header.setU64(at, w.header.u64(at)+n) }

// publish stores head, and then the counts: a reader must never count what it cannot reach.
func (w *RingWriter) publish() error {
	if _, err := w.file.WriteAt(w.header[ringHead:ringWritten], ringHead); err != nil {
		return err
	}
	_, err := w.file.WriteAt(w.header[ringWritten:], ringWritten)
	return err
}
