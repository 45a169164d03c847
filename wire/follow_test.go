package wire

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// recorder is a sink that tells what it was given.
type recorder struct {
	told
	names map[uint16]string
	full  error // refuses everything
}

func newRecorder() *recorder { return &recorder{names: map[uint16]string{}} }

func (r *recorder) Source(s Source) (uint16, error) {
	s.ID = uint16(len(r.names) + 1)
	r.names[s.ID] = strings.TrimSuffix(s.Name, ".ring")
	r.told = append(r.told, fmt.Sprintf("open %s at %d", r.names[s.ID], s.Opened))
	return s.ID, r.full
}

func (r *recorder) Frame(source uint16, f Frame) error {
	r.told = append(r.told, tell(Record{Source: source, Frame: f}, r.names))
	return r.full
}

func (r *recorder) Gap(source uint16, g Gap) error {
	r.told = append(r.told, fmt.Sprintf("%s at %d", tell(Record{Source: source, Gap: &g}, r.names), g.At))
	return r.full
}

// since gives what was told since it was last asked.
func (r *recorder) since() told {
	t := r.told
	r.told = nil
	return t
}

// createThread makes the ring of one more thread in dir, which is named like the thread.
func createThread(t testing.TB, dir, thread string) *RingWriter {
	t.Helper()
	hello := testHello
	hello.Thread = thread
	w, err := CreateRing(dir, &hello, testRingSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

const prefix = "01234567-12-34-simulator-"

// poll polls and compares, the file names' common part left out.
func poll(t *testing.T, f *Follower, sink *recorder, now int64, want ...string) error {
	t.Helper()
	_, err := f.Poll(now)
	got := strings.ReplaceAll(strings.Join(sink.since(), "\n"), prefix, "")
	if diff := cmp.Diff(strings.Join(want, "\n"), got); diff != "" {
		t.Errorf("poll at %d, -want +got:\n%s", now, diff)
	}
	return err
}

func TestFollower(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rings")
	sink := newRecorder()
	f := NewFollower(dir, sink)
	defer f.Close()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}

	if err := poll(t, f, sink, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory yet: %v", err)
	}
	check(poll(t, f, sink, 2)) // and that is told once
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check(poll(t, f, sink, 3))

	b := createThread(t, dir, "b")
	writeNumbered(t, b, 1)
	check(poll(t, f, sink, 4, "open b at 4", "b 1", "b 2"))
	a := createThread(t, dir, "a")
	writeNumbered(t, b, 1)
	check(poll(t, f, sink, 5, "open a at 5", "a 1", "b 3"))
	check(poll(t, f, sink, 6))

	writeNumbered(t, a, 1)
	writeNumbered(t, a, 1)
	if err := a.Close(); err != nil { // a dead writer's ring is read to its end, and kept
		t.Fatal(err)
	}
	check(poll(t, f, sink, 7, "a 2", "a 3"))
	count := func() (n int) {
		for source, r := range f.Rings() {
			if s, err := r.Status(); err != nil || s.Alive != (sink.names[source] == prefix+"b") {
				t.Errorf("%s: %+v, %v", r.Path(), s, err)
			}
			n++
		}
		return n
	}
	if n := count(); n != 2 {
		t.Errorf("%d rings", n)
	}

	for _, w := range []*RingWriter{a, b} { // b's writer lives on in a file that has no name any more
		if err := os.Remove(w.Path()); err != nil {
			t.Fatal(err)
		}
	}
	check(poll(t, f, sink, 8))
	writeNumbered(t, b, 1)
	check(poll(t, f, sink, 9, "b 4"))
	if n := count(); n != 1 {
		t.Errorf("%d rings", n)
	}

	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := poll(t, f, sink, 10); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory any more: %v", err)
	}
}

func TestFollowerReportsOnce(t *testing.T) {
	dir := t.TempDir()
	newer := createThread(t, dir, "newer")
	edit(t, newer.Path(), ringMajor, []byte{2})
	later := createThread(t, dir, "later") // its hello is of a protocol to come
	edit(t, later.Path(), ringHelloAt, mustAppend(t, 1, &Hello{Protocol: [2]uint16{2, 0}}))
	spoilt := createThread(t, dir, "spoilt") // its hello cannot be read, the rest can
	edit(t, spoilt.Path(), ringHelloAt+40, []byte{0xFF})
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.ring"), 0o600); err != nil {
		t.Fatal(err)
	}
	opening := filepath.Join(dir, "opening.ring")
	for _, name := range []string{opening, filepath.Join(dir, "notes.txt")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	createThread(t, dir, "good")

	sink := newRecorder()
	f := NewFollower(dir, sink)
	defer f.Close()
	err := poll(t, f, sink, 1, "open good at 1", "open spoilt at 1", "good 1", "spoilt 1")
	for _, part := range []string{"newer.ring: ring: major: this ring is format 2.", "later.ring: hello 1: major: this hello is format 2.0", "spoilt.ring: hello 1: crc", "pipe.ring: "} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("%q is missing in\n%v", part, err)
		}
	}
	if n := strings.Count(fmt.Sprint(err), "\n"); n != 3 {
		t.Errorf("%d lines in\n%v", n+1, err)
	}
	// A ring that may just be opened is given time, and then told once too.
	if err := poll(t, f, sink, 2); !errors.Is(err, ErrUnready) || !strings.Contains(err.Error(), opening) {
		t.Errorf("second poll: %v", err)
	}
	if err := poll(t, f, sink, 3); err != nil {
		t.Errorf("third poll: %v", err)
	}

	// What can be read later is read.
	edit(t, newer.Path(), ringMajor, []byte{1})
	if err := poll(t, f, sink, 4, "open newer at 4", "newer 1"); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(newer.Path(), 100); err != nil { // and another problem is told again
		t.Fatal(err)
	}
	if err := poll(t, f, sink, 5, "newer 0-0 truncated, count 0 at 5"); !errors.Is(err, ErrTruncated) {
		t.Errorf("fifth poll: %v", err)
	}
}

func TestFollowerFromNewest(t *testing.T) {
	dir := t.TempDir()
	sink := newRecorder()
	f := NewFollower(dir, sink)
	f.Newest = true
	defer f.Close()
	a := createThread(t, dir, "a")
	writeNumbered(t, a, 5)
	if err := poll(t, f, sink, 1, "open a at 1"); err != nil {
		t.Error(err)
	}
	writeNumbered(t, a, 1)
	b := createThread(t, dir, "b") // a later ring is read in full
	writeNumbered(t, b, 1)
	if err := poll(t, f, sink, 2, "open b at 2", "a 7", "b 1", "b 2"); err != nil {
		t.Error(err)
	}
}

func TestFollowerTornEnd(t *testing.T) {
	dir := t.TempDir()
	sink := newRecorder()
	f := NewFollower(dir, sink)
	defer f.Close()
	w := createThread(t, dir, "a")
	head := w.header.u64(ringHead)
	edit(t, w.Path(), w.dataAt(head), []byte("half a frame"))
	edit(t, w.Path(), ringHead, u64Bytes(head+64))
	edit(t, w.Path(), ringWritten, u64Bytes(2))
	for _, step := range []struct {
		dead bool
		want []string
	}{
		{false, []string{"open a at 1", "a 1"}},
		{false, nil}, // it may still come
		{true, []string{"a 64 bytes damaged at 1"}},
		{true, nil},
	} {
		if step.dead {
			w.Close()
		}
		if err := poll(t, f, sink, 1, step.want...); err != nil {
			t.Error(err)
		}
	}
}

// TestFollowerFrameFinishedAtDeath has a frame that becomes whole between the look at the data and the look at the lock.
func TestFollowerFrameFinishedAtDeath(t *testing.T) {
	dir := t.TempDir()
	sink := newRecorder()
	f := NewFollower(dir, sink)
	defer f.Close()
	w := createThread(t, dir, "a")
	writeNumbered(t, w, 1)
	second := w.dataAt(w.header.u64(ringHead) - 8)
	edit(t, w.Path(), second, []byte{1})
	if err := poll(t, f, sink, 1, "open a at 1", "a 1"); err != nil {
		t.Error(err)
	}
	edit(t, w.Path(), second, []byte("x"))
	w.Close()
	if err := poll(t, f, sink, 2, "a 2"); err != nil {
		t.Error(err)
	}
}

func TestFollowerShrunkRing(t *testing.T) {
	dir := t.TempDir()
	sink := newRecorder()
	f := NewFollower(dir, sink)
	defer f.Close()
	a, b := createThread(t, dir, "a"), createThread(t, dir, "b")
	if err := poll(t, f, sink, 1, "open a at 1", "open b at 1", "a 1", "b 1"); err != nil {
		t.Error(err)
	}
	writeNumbered(t, a, 1)
	writeNumbered(t, b, 1)
	if err := os.Truncate(a.Path(), ringHeaderSize+8); err != nil {
		t.Fatal(err)
	}
	if err := poll(t, f, sink, 2, "a 0-0 truncated, count 0 at 2", "b 2"); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), a.Path()) {
		t.Errorf("got %v", err)
	}
	if err := poll(t, f, sink, 3); err != nil {
		t.Errorf("and again: %v", err)
	}
}

func TestFollowerFullSink(t *testing.T) {
	dir := t.TempDir()
	createThread(t, dir, "a")
	sink := newRecorder()
	sink.full = errors.New("sink is full")
	f := NewFollower(dir, sink)
	defer f.Close()
	if _, err := f.Poll(1); !errors.Is(err, sink.full) {
		t.Errorf("refused a source: %v", err)
	}
	sink.full = nil
	if _, err := f.Poll(2); err != nil {
		t.Error(err)
	}
	w := createThread(t, dir, "b")
	writeNumbered(t, w, 2)
	sink.full = errors.New("sink is full")
	if frames, err := CopyRings([]string{w.Path()}, sink, 3); frames != 0 || !errors.Is(err, sink.full) {
		t.Errorf("copied %d frames: %v", frames, err)
	}
}

// TestCopyRings takes a dead ring, a live one and a bad one into a capture and reads it.
func TestCopyRings(t *testing.T) {
	dir := t.TempDir()
	dead, live := createThread(t, dir, "dead"), createThread(t, dir, "live")
	writeNumbered(t, dead, 100)
	dead.Close()
	writeNumbered(t, live, 3)
	bad := filepath.Join(dir, "bad.ring")
	if err := os.WriteFile(bad, bytes.Repeat([]byte("bad "), 9_000), 0o600); err != nil {
		t.Fatal(err)
	}

	var file bytes.Buffer
	w, err := NewCaptureWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	frames, err := CopyRings([]string{dead.Path(), bad, live.Path()}, w, 6)
	if !errors.Is(err, ErrMagic) || !strings.Contains(err.Error(), bad) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	r, err := NewCaptureReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tallies := map[uint16]*tally{1: {next: 1}, 2: {next: 1}}
	read := 0
	for {
		record, err := r.Next()
		if err != nil {
			break
		}
		if s := record.Opened; s != nil {
			h, err := ParseHello(s.Hello)
			if err != nil || s.Opened != 6 || RingName(&h) != s.Name {
				t.Errorf("source %+v: %v", s, err)
			}
			continue
		}
		if record.Gap == nil {
			read++
		} else if record.Gap.At != 6 {
			t.Errorf("gap %+v", *record.Gap)
		}
		if err := tallies[record.Source].take(record); err != nil {
			t.Error(err)
		}
	}
	if tallies[1].next != 102 || tallies[2].next != 5 || read != frames {
		t.Errorf("up to %d and %d, %d of %d frames", tallies[1].next-1, tallies[2].next-1, read, frames)
	}
}

// TestFollowerHolds leaves records in their rings while the reader has no room, even when the ring's file and writer are gone.
func TestFollowerHolds(t *testing.T) {
	dir, sink := t.TempDir(), newRecorder()
	f := NewFollower(dir, sink)
	defer f.Close()
	room := 1
	f.Hold = func(source uint16, r *Ring) bool {
		if sink.names[source] != prefix+"a" {
			return false
		}
		if unread, size := r.Unread(); unread == 0 || size != testRingSize {
			t.Errorf("asked with %d of %d bytes unread", unread, size)
		}
		room--
		return room < 0
	}
	a, b := createThread(t, dir, "a"), createThread(t, dir, "b")
	writeNumbered(t, a, 1)
	writeNumbered(t, b, 1)
	if err := poll(t, f, sink, 1, "open a at 1", "open b at 1", "a 1", "b 1", "b 2"); err != nil {
		t.Error(err)
	}
	a.Close()
	os.Remove(a.Path())
	if err := poll(t, f, sink, 2); err != nil {
		t.Error(err)
	}
	room = 9
	if err := poll(t, f, sink, 3, "a 2"); err != nil {
		t.Error(err)
	}
	if len(f.rings) != 1 {
		t.Errorf("%d rings are followed, want b alone", len(f.rings))
	}
}
