package wire

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sink takes what is read from rings. [CaptureWriter] is one. What a sink refuses is not offered to it again.
type Sink interface {
	// Source opens a source and returns the number that its frames and gaps will go under; s.ID means nothing yet.
	Source(s Source) (uint16, error)
	// Frame takes a frame; its bytes are only valid during the call.
	Frame(source uint16, f Frame) error
	// Gap takes what is missing between the frames before and after it.
	Gap(source uint16, g Gap) error
}

// Follower reads all the rings in a directory, those that come later included, into a sink. It keeps reading the rings of
// dead writers until somebody removes their files. It is for one goroutine, and does nothing except in Poll.
type Follower struct {
	// Newest makes the rings that the first Poll finds begin at their newest frame, and not at their oldest.
	Newest bool

	// Hold, if set, is asked before each record of a ring; where it says yes, the rest of that ring stays where it is until a
	// later Poll. So a reader that has no room leaves the data with the writers' rings.
	Hold func(source uint16, r *Ring) bool

	dir     string
	sink    Sink
	polled  bool
	rings   map[string]*followed // by file name
	refused map[string]*refusal  // by file name; "" is the directory itself
}

// followed is one ring under its number in the sink.
type followed struct {
	*Ring
	source uint16
}

// refusal is why a ring is not read.
type refusal struct {
	polls    int // in a row
	reported bool
}

const ringSuffix = ".ring"

// NewFollower follows the directory dir, which need not exist yet.
func NewFollower(dir string, sink Sink) *Follower {
	return &Follower{dir: dir, sink: sink, rings: make(map[string]*followed), refused: make(map[string]*refusal)}
}

// Poll reads what was written since the last call, up to where the writers were when it came to each of them, and returns the
// number of frames. now is Unix time in ns, for what is recorded with it. A ring that cannot be read is in the error once,
// by name, and tried again at every poll; the other rings are read all the same. An error of the sink ends the poll.
func (f *Follower) Poll(now int64) (frames int, err error) {
	var problems []error
	names, err := f.names()
	if err != nil {
		problems = append(problems, f.refuse("", err))
	}
	for _, name := range names {
		if f.rings[name] != nil {
			continue
		}
		problem, err := f.open(name, now)
		problems = append(problems, problem)
		if err != nil {
			return frames, errors.Join(append(problems, err)...)
		}
	}
	f.polled = true
	for name, r := range f.sorted() {
		n, problem, err := drain(r, f.sink, f.Hold, now)
		frames += n
		if problem != nil {
			problems = append(problems, f.refuse(name, problem))
			f.drop(name)
		}
		if err != nil {
			return frames, errors.Join(append(problems, err)...)
		}
	}
	f.forget(names)
	return frames, errors.Join(problems...)
}

// Rings gives the rings that are being read, under their numbers in the sink, for their status.
func (f *Follower) Rings() iter.Seq2[uint16, *Ring] {
	return func(yield func(uint16, *Ring) bool) {
		for _, r := range f.sorted() {
			if !yield(r.source, r.Ring) {
				return
			}
		}
	}
}

// Close closes the rings.
func (f *Follower) Close() error {
	var errs []error
	for name := range f.rings {
		errs = append(errs, f.drop(name))
	}
	return errors.Join(errs...)
}

// names lists the ring files in the directory, sorted.
func (f *Follower) names() ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("look for rings: %w", err)
	}
	delete(f.refused, "")
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ringSuffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// sorted gives the rings in the order of their names, so that every run reads them in the same order. Rings may be
// dropped meanwhile.
func (f *Follower) sorted() iter.Seq2[string, *followed] {
	return func(yield func(string, *followed) bool) {
		for _, name := range slices.Sorted(maps.Keys(f.rings)) {
			if !yield(name, f.rings[name]) {
				return
			}
		}
	}
}

// open begins to follow the ring of this name. problem is the ring's, err the sink's.
func (f *Follower) open(name string, now int64) (problem, err error) {
	r, problem, err := follow(filepath.Join(f.dir, name), f.sink, now)
	if r == nil {
		if problem != nil {
			problem = f.refuse(name, problem)
		}
		return problem, err
	}
	delete(f.refused, name)
	f.rings[name] = r
	if f.Newest && !f.polled {
		return errors.Join(problem, r.SeekNewest()), nil
	}
	return problem, nil
}

// refuse takes note that a ring cannot be read, and returns err if it is to be reported: the first time, and where the
// writer may just be opening the ring, the second.
func (f *Follower) refuse(name string, err error) error {
	r := f.refused[name]
	if r == nil {
		r = new(refusal)
		f.refused[name] = r
	}
	r.polls++
	if r.reported || r.polls == 1 && errors.Is(err, ErrUnready) {
		return nil
	}
	r.reported = true
	return err
}

func (f *Follower) drop(name string) error {
	err := f.rings[name].Close()
	delete(f.rings, name)
	return err
}

// forget lets go of the rings whose files are gone, that nobody writes any more and that have been read to their end.
func (f *Follower) forget(names []string) {
	for name, r := range f.sorted() {
		if _, there := slices.BinarySearch(names, name); there {
			continue
		}
		if alive, err := r.locked(); err != nil || !alive && r.pos >= r.head {
			f.drop(name)
		}
	}
	for name := range f.refused {
		if _, there := slices.BinarySearch(names, name); !there && name != "" {
			delete(f.refused, name)
		}
	}
}

// CopyRings reads everything that is in these ring files now into a sink, whether their writers live or not, and returns
// the number of frames. now is Unix time in ns. A ring that cannot be read is in the error by name, and the others are
// read all the same; an error of the sink ends the copy.
func CopyRings(paths []string, sink Sink, now int64) (frames int, err error) {
	var problems []error
	for _, path := range paths {
		r, problem, err := follow(path, sink, now)
		problems = append(problems, problem)
		if r != nil {
			var n int
			n, problem, err = drain(r, sink, nil, now)
			frames += n
			problems = append(problems, problem, r.Close())
		}
		if err != nil {
			return frames, errors.Join(append(problems, err)...)
		}
	}
	return frames, errors.Join(problems...)
}

// follow opens a ring and its source in the sink. problem is the ring's, err the sink's. A ring whose hello is damaged is
// read without it; one of a newer major version is not.
func follow(path string, sink Sink, now int64) (r *followed, problem, err error) {
	ring, problem := OpenRing(path)
	if problem != nil {
		return nil, problem, nil
	}
	hello, problem := ring.Hello()
	if errors.Is(problem, ErrNewerMajor) {
		return nil, errors.Join(problem, ring.Close()), nil
	}
	source, err := sink.Source(Source{Name: filepath.Base(path), Hello: hello, Opened: now})
	if err != nil {
		return nil, errors.Join(problem, ring.Close()), err
	}
	return &followed{ring, source}, problem, nil
}

// drain reads r up to where its writer is now. problem is the ring's, err the sink's. What a dead writer left unfinished is
// reported as damaged, once.
func drain(r *followed, sink Sink, hold func(uint16, *Ring) bool, now int64) (frames int, problem, err error) {
	if err := r.refresh(); err != nil {
		return 0, from(r.path, err), lose(r, sink, now, err)
	}
	dead := false
	for end := r.head; r.pos < end; {
		if hold != nil && hold(r.source, r.Ring) {
			return frames, nil, nil
		}
		record, problem := r.Next()
		switch {
		case problem == io.EOF && dead:
			err = pass(r, sink, now, r.rest())
		case problem == io.EOF:
			if alive, err := r.locked(); alive || err != nil {
				return frames, nil, nil
			}
			dead = true // it may have finished the frame before it died: look once more
		case problem != nil:
			return frames, problem, lose(r, sink, now, problem)
		case record.Gap != nil:
			err = pass(r, sink, now, record.Gap)
		default:
			frames++
			err = sink.Frame(r.source, record.Frame)
		}
		if err != nil {
			return frames, nil, err
		}
	}
	return frames, nil, nil
}

// lose tells the sink that a ring cannot be read on.
func lose(r *followed, sink Sink, now int64, problem error) error {
	why := WhyDamaged
	if errors.Is(problem, ErrTruncated) {
		why = WhyTruncated
	}
	return pass(r, sink, now, &Gap{Why: why})
}

func pass(r *followed, sink Sink, now int64, g *Gap) error {
	g.At = now
	return sink.Gap(r.source, *g)
}
