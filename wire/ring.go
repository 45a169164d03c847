package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Ring reads a ring file while another process writes it. It never asks the writer to wait, and it reads with pread and
// not through a mapping: a file that shrinks underneath is then an error and not a SIGBUS. It is for one goroutine.
type Ring struct {
	file *os.File
	path string
	size uint64 // of the data area

	head    uint64 // bytes ever written, as last seen
	written uint64 // sequence of the newest frame, as last seen

	pos      uint64 // of the next frame
	last     uint64 // no frame up to this sequence is wanted: given, reported as missing, or left out
	begun    bool   // frames after last are missing if they do not come: not so before the first one after SeekNewest
	late     uint64 // what is missing before this position was overwritten
	damaged  bool   // the bytes before pos made no frame
	overruns int    // in a row
	failed   int    // bytes checked in vain by the search that is going on

	fields   ringHeader // as last read
	copied   []byte     // a copy of the data area …
	copiedAt uint64     // … from this position on, not overtaken by the writer while it was made
}

const (
	// ringChunk is how much is copied at once, unless a frame is longer.
	ringChunk = 64 << 10

	// searchLimit bounds how many bytes one search for a whole frame may run through the checksum in vain. An honest ring
	// needs next to none; a hostile one could claim a long frame every eight bytes.
	searchLimit = 16 << 20

	// maxOverruns is how often Next follows a writer that is faster than its reader before it comes back for air.
	maxOverruns = 16
)

var (
	errOverrun = errors.New("overtaken by the writer")
	errStale   = errors.New("a frame of another time")
)

// OpenRing opens the ring file at path for reading, from its oldest frame on. A ring that cannot be read is refused with
// an [Error] that says why and what to do: [ErrMagic], [ErrNewerMajor], [ErrLength], [ErrTruncated], [ErrValue], or the
// system's error.
func OpenRing(path string) (*Ring, error) {
	// Without O_NONBLOCK, a pipe under a ring's name would block here until somebody writes to it.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		e := &Error{Err: err, Source: path, Message: "open ring"}
		if errors.Is(err, fs.ErrPermission) {
			e.Remedy = "run whylate as the user or in the group of the process that writes it"
		}
		return nil, e
	}
	r := &Ring{file: file, path: path, begun: true}
	if err := r.open(); err != nil {
		file.Close()
		return nil, from(path, err)
	}
	return r, nil
}

func (r *Ring) open() error {
	h, fileSize, err := r.header()
	if err != nil {
		return err
	}
	if err := h.check(fileSize); err != nil {
		return err
	}
	r.size = h.u64(ringDataSize)
	r.head, r.written = h.u64(ringHead), h.u64(ringWritten)
	if r.head > r.size {
		r.land(r.head - r.size)
	}
	return nil
}

// land begins at position q, after what was overwritten. A writer that skips the end of a lap leaves what was there, so
// that older frames may turn up again between q and the end of its lap: they are given, and what is missing after
// them was overwritten too.
func (r *Ring) land(q uint64) { r.pos, r.late = q, q+r.lap(q) }

// SeekNewest leaves out everything that is in the ring now. What comes next is given, and what was left out is no gap.
func (r *Ring) SeekNewest() error {
	if err := r.refresh(); err != nil {
		return from(r.path, err)
	}
	r.pos, r.last, r.begun, r.late, r.damaged = r.head, r.written, false, 0, false
	return nil
}

// Path is the path that the ring was opened by.
func (r *Ring) Path() string { return r.path }

// Unread is how many bytes the ring held behind the last frame given when its header was last read, and how many it can hold.
func (r *Ring) Unread() (unread, size uint64) {
	if r.pos >= r.head {
		return 0, r.size
	}
	return min(r.head-r.pos, r.size), r.size
}

// Close closes the file.
func (r *Ring) Close() error { return r.file.Close() }

// Status reads the counts in the header, and tries the lock to see if the writer lives.
func (r *Ring) Status() (RingStatus, error) {
	h, _, err := r.header()
	if err != nil {
		return RingStatus{}, from(r.path, err)
	}
	s := h.status()
	s.Alive, err = r.locked()
	return s, err
}

// locked says whether the writer still holds its lock. A shared lock is had for an instant if it does not.
func (r *Ring) locked() (bool, error) {
	fd := int(r.file.Fd())
	switch err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err {
	case unix.EWOULDBLOCK:
		return true, nil
	case nil:
		return false, unix.Flock(fd, unix.LOCK_UN)
	default:
		return false, &Error{Err: err, Source: r.path, Message: "ring", Field: "lock"}
	}
}

// Hello is the JSON object of the hello in the ring's header, for [ParseHello]; nil if the writer has not put one there.
func (r *Ring) Hello() (json.RawMessage, error) {
	h, _, err := r.header()
	if err != nil {
		return nil, from(r.path, err)
	}
	n := h.u32(ringHelloLength)
	if n == 0 {
		return nil, nil
	}
	b := make([]byte, min(n, ringHelloMax))
	if err := r.read(b, ringHelloAt); err != nil {
		return nil, from(r.path, err)
	}
	f, _, err := ParseFrame(b)
	if err == nil {
		err = Decode(f, new(Hello)) // so that what is returned is known to be readable
	}
	if err != nil {
		return nil, from(r.path, err)
	}
	return unpadded(f.Body), nil
}

// Next gives the next frame, or the gap before it. The error is [io.EOF] if there is none for now: ask again later. Any other
// error is about the file as a whole.
func (r *Ring) Next() (Record, error) {
	for {
		f, err := r.next()
		switch {
		case err == nil:
			return r.give(f), nil
		case err == errOverrun && r.overruns < maxOverruns:
			r.catchUp()
		case err == errOverrun:
			r.overruns = 0
			return Record{}, io.EOF
		default:
			return Record{}, from(r.path, err)
		}
	}
}

// next finds the next frame to give, and leaves pos at it.
func (r *Ring) next() (Frame, error) {
	if r.pos >= r.head {
		if err := r.refresh(); err != nil {
			return Frame{}, err
		}
		if r.pos >= r.head {
			return Frame{}, io.EOF
		}
	}
	f, err := r.frameAt(r.pos)
	if unreadable(err) {
		return r.search()
	}
	return f, err
}

// unreadable says whether err is about the bytes of one frame, and not about the file.
func unreadable(err error) bool {
	switch err {
	case errStale, ErrTruncated, ErrMagic, ErrLength, ErrChecksum:
		return true
	}
	return false
}

// search copies the data from pos on once more and looks for the first frame in it that is whole. If there is none,
// the frame at pos may still be about to appear, and pos stays. The rest of a lap that was too short for the next frame
// is passed over in the same way: the zeros that mark it look like bytes that have not appeared yet, and no reader can
// tell which they are before it has seen the frame behind them.
func (r *Ring) search() (Frame, error) {
	r.copied = r.copied[:0]
	r.failed = 0
	for q := r.pos; q+MinFrame <= r.head; q += frameAlign {
		f, err := r.frameAt(q)
		switch {
		case err == nil:
			r.damaged = r.damaged || q > r.pos
			r.pos = q
			return f, nil
		case !unreadable(err):
			return Frame{}, err
		case r.failed > searchLimit:
			r.pos, r.damaged = r.head, true
			return Frame{}, io.EOF
		}
	}
	return Frame{}, io.EOF
}

// frameAt gives the frame at position q, if it is whole and belongs there.
func (r *Ring) frameAt(q uint64) (Frame, error) {
	room := r.room(q)
	if room < MinFrame {
		return Frame{}, ErrTruncated
	}
	b, err := r.at(q, MinFrame)
	if err != nil {
		return Frame{}, err
	}
	n, err := peekFrame(b)
	if err != nil {
		return Frame{}, err
	}
	if uint64(n) > room {
		return Frame{}, ErrLength
	}
	if b, err = r.at(q, uint64(n)); err != nil {
		return Frame{}, err
	}
	if _, err := checkFrame(b); err != nil {
		r.failed += n
		return Frame{}, err
	}
	f := openFrame(b)
	if !r.belongs(f, q+uint64(n)) {
		return Frame{}, errStale
	}
	return f, nil
}

// belongs tells a frame of the present from one that is whole but is not what head speaks of: one that an earlier lap left
// behind, or one that the writer has copied over the oldest data and not published yet, or never will if it was killed.
func (r *Ring) belongs(f Frame, end uint64) bool {
	counted := f.Sequence <= r.written || end == r.head // the newest is published before it is counted
	return f.Sequence > r.last && (counted || f.Sequence == r.last+1)
}

// give turns the frame at pos into what the caller gets: first the gap before it, then, on the next call, the frame.
func (r *Ring) give(f Frame) Record {
	r.overruns = 0
	if r.begun && f.Sequence > r.last+1 {
		why := WhyMissing
		switch {
		case r.pos <= r.late:
			why = WhyOverwritten
		case r.damaged:
			why = WhyDamaged
		}
		gap := missing(r.last+1, f.Sequence-1, why)
		r.last = f.Sequence - 1
		return Record{Gap: gap}
	}
	r.pos += uint64(len(f.Raw))
	r.last, r.begun, r.damaged = f.Sequence, true, false
	return Record{Frame: f}
}

// catchUp goes to the oldest position that is safe. If the writer overtakes us there again, the next try keeps twice
// the distance.
func (r *Ring) catchUp() {
	var distance uint64
	if r.overruns > 0 {
		distance = min(ringChunk<<r.overruns, r.size/2) &^ (frameAlign - 1)
	}
	r.overruns++
	r.land(r.head - r.size + distance)
}

// rest gives up what is left between pos and head once the writer is gone and no later frame can come. It is nil if
// nothing is left.
func (r *Ring) rest() *Gap {
	if r.pos >= r.head {
		return nil
	}
	gap := &Gap{Why: WhyDamaged, Bytes: int64(min(r.head-r.pos, r.size))}
	if r.begun && r.written > r.last {
		gap.From, gap.To, gap.Count = r.last+1, r.written, r.written-r.last
		r.last = r.written
	}
	r.pos = r.head
	return gap
}

// lap is the number of bytes from position q to the end of the data area.
func (r *Ring) lap(q uint64) uint64 { return r.size - q%r.size }

// room is the number of bytes that one frame at position q can have.
func (r *Ring) room(q uint64) uint64 {
	if q >= r.head {
		return 0
	}
	return min(r.head-q, r.lap(q))
}

// at gives n bytes at position q, n being no more than room(q). The bytes were copied before head was read again, and head
// shows that the writer had not come round to them.
func (r *Ring) at(q, n uint64) ([]byte, error) {
	if q < r.copiedAt || q+n > r.copiedAt+uint64(len(r.copied)) {
		want := int(min(max(n, ringChunk), r.room(q)))
		r.copied = slices.Grow(r.copied[:0], want)[:want]
		r.copiedAt = q
		err := r.read(r.copied, int64(ringHeaderSize+q%r.size))
		if err == nil {
			err = r.refresh()
		}
		if err == nil && r.head > q+r.size {
			err = errOverrun
		}
		if err != nil {
			r.copied = r.copied[:0]
			return nil, err
		}
	}
	from := q - r.copiedAt
	return r.copied[from : from+n], nil
}

// refresh reads head and written again, and makes sure that the file is still as long as it was.
func (r *Ring) refresh() error {
	h, fileSize, err := r.header()
	if err != nil {
		return err
	}
	if fileSize < int64(ringHeaderSize+r.size) {
		return r.shrunk()
	}
	if err := h.checkHead(); err != nil {
		return err
	}
	r.head, r.written = h.u64(ringHead), h.u64(ringWritten)
	return nil
}

// header reads the header's fields and the file's length. A file that is too short for them gives a header of zeros.
func (r *Ring) header() (h *ringHeader, fileSize int64, err error) {
	h = &r.fields
	*h = ringHeader{}
	var stat unix.Stat_t
	if err := unix.Fstat(int(r.file.Fd()), &stat); err != nil {
		return h, 0, &Error{Err: err, Message: "ring"}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return h, 0, &Error{Err: ErrMagic, Message: "ring", Value: "not a regular file", Remedy: "move it out of the ring directory"}
	}
	if _, err := r.file.ReadAt(h[:], 0); err != nil && err != io.EOF {
		return h, 0, &Error{Err: err, Message: "ring header"}
	}
	return h, stat.Size, nil
}

// read fills b from the file at this offset.
func (r *Ring) read(b []byte, offset int64) error {
	switch _, err := r.file.ReadAt(b, offset); err {
	case nil:
		return nil
	case io.EOF:
		return r.shrunk()
	default:
		return &Error{Err: err, Message: "ring"}
	}
}

// shrunk is the error for a file that ends before the data that its header promised when it was opened.
func (r *Ring) shrunk() error {
	return &Error{Err: ErrTruncated, Message: "ring", Field: "data size",
		Value:  fmt.Sprintf("%d bytes promised, and the file has become shorter", r.size),
		Remedy: "somebody cut it; restart the process that writes it"}
}
