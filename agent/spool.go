package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/wire"
)

// spool keeps what the memory has no room for, on disk: a queue of segments in the capture format. Whole blocks of a segment survive a
// killed agent. A closed segment is synced; of the last one, the loss of power may take what the system has not written yet, and
// its sequences are then missing and known to be.
type spool struct {
	dir      string
	limit    int64 // bytes, all segments
	segments []*segment
	writing  *writer
	reading  *spoolReader
	lock     *os.File
	// create makes a segment's file; tests put failing disks here.
	create func(path string) (io.WriteCloser, error)
}

// segment is one file.
type segment struct {
	number int64
	path   string
	size   int64
	spans  map[*source]*span
	given  int  // items that were read from it and are not durable yet
	read   bool // to its end
}

// span is what a segment holds of one source.
type span struct {
	from, to, frames uint64
}

// writer writes the last segment.
type writer struct {
	file    io.WriteCloser
	capture *wire.CaptureWriter
	segment *segment
	numbers map[*source]uint16
}

// spoolReader reads the first segment.
type spoolReader struct {
	capture *wire.CaptureReader
	segment *segment
	sources map[uint16]*source
	held    *item // that came behind the one that was given
}

const (
	spoolSuffix  = ".wlc"
	firstSegment = 1 << 32 // numbers go up from here, and down where something is put in front
	leastSegment = 64 << 10
	mostSegment  = 16 << 20
)

// openSpool opens the spool in dir, which is made if it is missing, and reads what an earlier agent has left there. Two agents cannot have one spool.
// A segment that cannot be read is left out, and in the error.
func openSpool(dir string, limit int64, sources *sources) (*spool, error) {
	wrap := func(err error) error { return fmt.Errorf("open the spool: %w", err) }
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, wrap(err)
	}
	lock, err := lockDirectory(dir)
	if err != nil {
		return nil, wrap(err)
	}
	s := &spool{dir: dir, limit: limit, lock: lock, create: func(path string) (io.WriteCloser, error) {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		lock.Close()
		return nil, wrap(err)
	}
	var problems []error
	for _, e := range entries {
		name, isSegment := strings.CutSuffix(e.Name(), spoolSuffix)
		number, err := strconv.ParseInt(name, 16, 64)
		if !isSegment || err != nil {
			continue
		}
		g := &segment{number: number, path: filepath.Join(dir, e.Name())}
		if err := g.scan(sources); err != nil {
			problems = append(problems, err)
		}
		if len(g.spans) == 0 {
			os.Remove(g.path)
			continue
		}
		s.segments = append(s.segments, g)
	}
	slices.SortFunc(s.segments, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return s, errors.Join(problems...)
}

// lockDirectory locks a directory for as long as the file that it returns is open.
func lockDirectory(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is used by another agent: stop it, or name another directory", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// Follows reports whether an agent follows the rings of a directory now. It tries the agent's lock for an instant.
func Follows(ringDir string) bool {
	f, err := os.Open(ringDir)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// scan finds out what a segment holds.
func (g *segment) scan(sources *sources) error {
	g.spans = map[*source]*span{}
	info, err := os.Stat(g.path)
	if err != nil {
		return err
	}
	g.size = info.Size()
	r, err := wire.OpenCapture(g.path)
	if errors.Is(err, wire.ErrTruncated) {
		return nil // nothing had been written yet
	}
	if err != nil {
		return err
	}
	defer r.Close()
	numbers := map[uint16]*source{}
	for {
		record, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if record.Opened != nil {
			if numbers[record.Source], err = sources.open(*record.Opened); err != nil {
				return err
			}
			continue
		}
		o := numbers[record.Source]
		if o == nil {
			continue // damaged; its sequences will be missed
		}
		from, to, frames := record.Frame.Sequence, record.Frame.Sequence, uint64(1)
		if record.Gap != nil {
			from, to, frames = record.Gap.From, record.Gap.To, 0
		}
		g.note(o, from, to, frames)
		if o.spooled == 0 {
			o.spooled = from
		}
		o.have = max(o.have, to)
	}
}

// note adds to what is known of a segment.
func (g *segment) note(o *source, from, to, frames uint64) {
	p := g.spans[o]
	if p == nil {
		p = &span{from: from}
		g.spans[o] = p
		o.items++ // so that it is not closed while it has data here
	}
	p.from, p.to, p.frames = min(p.from, from), max(p.to, to), p.frames+frames
}

// forget ends what note began.
func (g *segment) forget() {
	for o := range g.spans {
		o.items--
	}
	g.spans = nil
}

func (s *spool) size() (n int64) {
	for _, g := range s.segments {
		n += g.size
	}
	return n
}

// put appends an item. After an error the item is not in the spool, and neither may be what was put since the last sync.
func (s *spool) put(i *item) error {
	if s.writing == nil {
		number := int64(firstSegment)
		if n := len(s.segments); n > 0 {
			number = s.segments[n-1].number + 1
		}
		w, err := s.begin(number)
		if err != nil {
			return err
		}
		s.writing = w
		s.segments = append(s.segments, w.segment)
	}
	if err := s.writing.put(i); err != nil {
		s.abandon()
		return err
	}
	return nil
}

// begin makes a segment.
func (s *spool) begin(number int64) (*writer, error) {
	path := filepath.Join(s.dir, fmt.Sprintf("%016x%s", number, spoolSuffix))
	f, err := s.create(path)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	c, err := wire.NewCaptureWriter(f)
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, fmt.Errorf("spool %s: %w", path, err)
	}
	return &writer{file: f, capture: c, numbers: map[*source]uint16{}, segment: &segment{number: number, path: path, spans: map[*source]*span{}}}, nil
}

func (w *writer) put(i *item) (err error) {
	number, known := w.numbers[i.source]
	if !known {
		if number, err = w.capture.Source(i.source.Source); err != nil {
			return err
		}
		w.numbers[i.source] = number
	}
	if i.gap != nil {
		err = w.capture.Gap(number, *i.gap)
	}
	for raw := i.raw; len(raw) > 0 && err == nil; {
		f, n, broken := wire.ParseFrame(raw)
		if broken != nil {
			return broken
		}
		err = w.capture.Frame(number, f)
		raw = raw[n:]
	}
	if err != nil {
		return err
	}
	w.segment.note(i.source, i.from, i.to, uint64(i.frames))
	w.segment.size = w.capture.Size()
	return nil
}

// close ends a segment, synced.
func (w *writer) close() error {
	err := w.capture.Close()
	w.segment.size = w.capture.Size()
	if f, ok := w.file.(*os.File); ok {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, w.file.Close())
}

// abandon leaves a segment that cannot be written on as it is: its whole blocks can be read.
func (s *spool) abandon() {
	w := s.writing
	s.writing = nil
	w.file.Close()
	w.capture.Close()
	if w.segment.size <= 16 { // not even one block
		s.delete(w.segment)
	}
}

// sync makes what was put survive a killed agent, and begins another segment when this one is full.
func (s *spool) sync() error {
	w := s.writing
	if w == nil {
		return nil
	}
	if err := w.capture.Flush(); err != nil {
		s.abandon()
		return err
	}
	w.segment.size = w.capture.Size()
	if w.segment.size >= min(max(s.limit/16, leastSegment), mostSegment) {
		return s.rotate()
	}
	return nil
}

// rotate closes the segment that is written.
func (s *spool) rotate() error {
	if s.writing == nil {
		return nil
	}
	w := s.writing
	s.writing = nil
	return w.close()
}

// trim drops the oldest segments until the spool is within its limit, and tells what was in them.
func (s *spool) trim(dropped func(*source, wire.Gap)) {
	for s.size() > s.limit && len(s.segments) > 1 {
		g := s.segments[0]
		s.stopReading(g)
		for o, p := range g.spans {
			dropped(o, wire.Gap{From: p.from, To: p.to, Count: p.frames, Why: whyDropped})
		}
		s.delete(g)
	}
}

// delete removes a segment.
func (s *spool) delete(g *segment) {
	g.forget()
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == g })
	os.Remove(g.path)
}

func (s *spool) stopReading(g *segment) {
	if s.reading != nil && (g == nil || s.reading.segment == g) {
		s.reading.capture.Close()
		s.reading = nil
	}
}

// next reads the next item, nil if there is none. What cannot be read is passed over; its sequences are missed at the server.
func (s *spool) next(sources *sources) (*item, error) {
	var problems []error
	for {
		if s.reading == nil {
			g := s.first()
			if g == nil {
				return nil, errors.Join(problems...)
			}
			if s.writing != nil && s.writing.segment == g {
				if err := s.rotate(); err != nil {
					problems = append(problems, err)
				}
			}
			c, err := wire.OpenCapture(g.path)
			if err != nil {
				s.delete(g)
				if !errors.Is(err, wire.ErrTruncated) {
					problems = append(problems, err)
				}
				continue
			}
			s.reading = &spoolReader{capture: c, segment: g, sources: map[uint16]*source{}}
		}
		i, err := s.reading.next(sources)
		if i != nil {
			i.segment = s.reading.segment
			i.segment.given++
			i.source.items++
			return i, errors.Join(problems...)
		}
		if err != nil {
			problems = append(problems, err)
		}
		g := s.reading.segment
		s.stopReading(g)
		g.read = true
		s.retire(g)
	}
}

// first is the first segment that has not been read to its end.
func (s *spool) first() *segment {
	for _, g := range s.segments {
		if !g.read {
			return g
		}
	}
	return nil
}

// unread reports whether there is something that next would give.
func (s *spool) unread() bool { return s.reading != nil || s.first() != nil }

// done notes that an item that next gave is durable, or is not to be sent.
func (s *spool) done(i *item) {
	if i.segment == nil {
		return
	}
	i.segment.given--
	s.retire(i.segment)
}

// retire removes a segment that nobody needs any more.
func (s *spool) retire(g *segment) {
	if g.read && g.given == 0 && g.spans != nil {
		s.delete(g)
	}
}

// front writes items before all that is in the spool: what the memory still has when the agent ends.
func (s *spool) front(items []*item) error {
	if len(items) == 0 {
		return nil
	}
	number := int64(firstSegment)
	if len(s.segments) > 0 {
		number = s.segments[0].number - 1
	}
	w, err := s.begin(number)
	if err != nil {
		return err
	}
	for _, i := range items {
		if err := w.put(i); err != nil {
			w.close()
			return err
		}
	}
	return w.close()
}

// close ends the spool; what is in it stays.
func (s *spool) close() error {
	s.stopReading(nil)
	err := s.rotate()
	return errors.Join(err, s.lock.Close())
}

// next reads one item.
func (r *spoolReader) next(sources *sources) (*item, error) {
	i := r.held
	r.held = nil
	if i != nil && i.gap != nil {
		return i, nil
	}
	for {
		record, err := r.capture.Next()
		if err == io.EOF {
			return i, nil
		}
		if err != nil {
			return i, err
		}
		if record.Opened != nil {
			o, err := sources.open(*record.Opened)
			if err != nil {
				return i, err
			}
			r.sources[record.Source] = o
			continue
		}
		o := r.sources[record.Source]
		switch {
		case o == nil:
		case record.Gap != nil:
			gap := gapItem(o, *record.Gap)
			if i == nil {
				return gap, nil
			}
			r.held = gap
			return i, nil
		case i == nil:
			i = newItem(o, record.Frame)
		case i.source != o || len(i.raw)+len(record.Frame.Raw) > itemBytes:
			r.held = newItem(o, record.Frame)
			return i, nil
		default:
			i.add(record.Frame.Sequence, record.Frame.Raw)
		}
	}
}

func newItem(o *source, f wire.Frame) *item {
	i := &item{source: o}
	i.add(f.Sequence, f.Raw)
	return i
}

func (i *item) add(sequence uint64, raw []byte) {
	if i.frames == 0 {
		i.from = sequence
	}
	i.to = sequence
	i.frames++
	i.raw = append(i.raw, raw...)
}
