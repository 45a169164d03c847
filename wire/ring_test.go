package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// testHello is a small hello, so that small rings can be used.
var testHello = Hello{Protocol: [2]uint16{1, 0}, Producer: Producer{Name: "test"}, Role: "simulator", Thread: "scheduler", PID: 12, Start: 34,
	Boot: "01234567-89ab-cdef", Clock: [3]int64{1, 2, 3}}

const testRingSize = 2_048

func createRing(t testing.TB, size int64) *RingWriter {
	t.Helper()
	w, err := CreateRing(t.TempDir(), &testHello, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func openRing(t testing.TB, path string) *Ring {
	t.Helper()
	r, err := OpenRing(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// numbered is a message whose contents follow from its sequence, of a length that varies.
func numbered(sequence uint64) *Notice {
	return &Notice{Time: int64(sequence), Text: strings.Repeat("x", int(sequence*7%90))}
}

func writeNumbered(t testing.TB, w *RingWriter, n int) {
	t.Helper()
	for range n {
		if err := w.Write(numbered(w.header.u64(ringWritten) + 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// tally takes what a reader yields and holds it to the rule that frames and gaps together tile the sequences, in order.
type tally struct {
	next   uint64 // sequence that is due
	frames uint64
	gaps   []Gap
}

func (a *tally) take(r Record) error {
	if g := r.Gap; g != nil {
		if g.From != a.next || g.To < g.From || g.Count != g.To-g.From+1 {
			return fmt.Errorf("gap %+v where %d is due", *g, a.next)
		}
		a.next = g.To + 1
		a.gaps = append(a.gaps, *g)
		return nil
	}
	f := r.Frame
	if f.Sequence != a.next {
		return fmt.Errorf("frame %d where %d is due", f.Sequence, a.next)
	}
	a.next++
	a.frames++
	if f.Type == TypeHello {
		return nil
	}
	var got Notice
	if err := Decode(f, &got); err != nil {
		return err
	}
	if want := numbered(f.Sequence); got != *want {
		return fmt.Errorf("frame %d says %+v", f.Sequence, got)
	}
	return nil
}

// drainInto reads r until there is nothing more for now.
func drainInto(t testing.TB, r *Ring, a *tally) {
	t.Helper()
	for {
		record, err := r.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = a.take(record)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// edit changes bytes of a file behind everybody's back.
func edit(t testing.TB, path string, at int64, b []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt(b, at)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func u64Bytes(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// dataAt is the place of position p in the file.
func (w *RingWriter) dataAt(p uint64) int64 { return int64(ringHeaderSize + p%w.size) }

func TestRingThereAndBack(t *testing.T) {
	w := createRing(t, testRingSize)
	r := openRing(t, w.Path())
	a := &tally{next: 1}
	for round := range 300 { // many times around, never overtaken
		writeNumbered(t, w, round%4)
		drainInto(t, r, a)
	}
	if want := w.header.u64(ringWritten); a.frames != want || len(a.gaps) != 0 {
		t.Errorf("%d of %d frames, gaps %v", a.frames, want, a.gaps)
	}
	if w.header.u64(ringHead) < 10*testRingSize {
		t.Errorf("the ring never wrapped")
	}
}

func TestRingReaderThatComesLate(t *testing.T) {
	w := createRing(t, testRingSize)
	writeNumbered(t, w, 200)
	r := openRing(t, w.Path())
	a := &tally{next: 1}
	drainInto(t, r, a)
	if a.next != 202 || len(a.gaps) != 1 || a.gaps[0].Why != WhyOverwritten {
		t.Errorf("up to %d, gaps %+v", a.next, a.gaps)
	}
	if a.frames < 10 {
		t.Errorf("only %d frames of a full ring", a.frames)
	}
}

// TestRingFromItsNewestAtTheEndOfALap begins where the writer is about to skip what an earlier lap left there.
func TestRingFromItsNewestAtTheEndOfALap(t *testing.T) {
	for n := range 60 {
		w := createRing(t, testRingSize)
		writeNumbered(t, w, 200+n)
		r := openRing(t, w.Path())
		if err := r.SeekNewest(); err != nil {
			t.Fatal(err)
		}
		a := &tally{next: w.header.u64(ringWritten) + 1}
		writeNumbered(t, w, 2)
		drainInto(t, r, a)
		if a.frames != 2 || len(a.gaps) != 0 {
			t.Errorf("after %d: %d frames, gaps %+v", 200+n, a.frames, a.gaps)
		}
	}
}

func TestRingFromItsNewest(t *testing.T) {
	w := createRing(t, testRingSize)
	writeNumbered(t, w, 200)
	r := openRing(t, w.Path())
	edit(t, w.Path(), ringWritten, u64Bytes(200)) // the newest is published and not counted yet
	if err := r.SeekNewest(); err != nil {
		t.Fatal(err)
	}
	a := &tally{next: 202}
	drainInto(t, r, a)
	if a.frames != 0 {
		t.Errorf("%d old frames", a.frames)
	}
	writeNumbered(t, w, 3)
	drainInto(t, r, a)
	if a.frames != 3 || len(a.gaps) != 0 {
		t.Errorf("%d frames, gaps %+v", a.frames, a.gaps)
	}
}

// TestRingInterleaved lets writer and reader take turns of random length; whatever the reader is late for is counted.
func TestRingInterleaved(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 2))
		w := createRing(t, 1_024+8*int64(random.IntN(64)))
		r := openRing(t, w.Path())
		a := &tally{next: 1}
		overtaken := false
		for range 60 {
			writeNumbered(t, w, random.IntN(40))
			for range random.IntN(30) {
				record, err := r.Next()
				if err == io.EOF {
					break
				}
				if err == nil {
					err = a.take(record)
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		drainInto(t, r, a)
		for _, g := range a.gaps {
			overtaken = true
			if g.Why != WhyOverwritten {
				t.Errorf("seed %d: gap %+v", seed, g)
			}
		}
		if want := w.header.u64(ringWritten); a.next != want+1 || !overtaken || r.overruns != 0 {
			t.Errorf("seed %d: up to %d of %d, overtaken %t, %d times in a row", seed, a.next-1, want, overtaken, r.overruns)
		}
	}
}

// TestRingConcurrently runs a writer that is faster than its reader.
func TestRingConcurrently(t *testing.T) {
	const messages = 20_000
	w := createRing(t, 16<<10)
	r := openRing(t, w.Path())
	var writing sync.WaitGroup
	written := make(chan error, 1)
	writing.Go(func() {
		for sequence := uint64(2); sequence <= messages; sequence++ {
			if err := w.Write(numbered(sequence)); err != nil {
				written <- err
				return
			}
		}
		written <- w.Close()
	})
	a := &tally{next: 1}
	for done := false; !done; {
		select {
		case err := <-written:
			if err != nil {
				t.Fatal(err)
			}
			done = true // one more round for what was written last
		default:
		}
		drainInto(t, r, a)
	}
	writing.Wait()
	if a.next != messages+1 || a.frames == 0 {
		t.Errorf("up to %d of %d, %d frames", a.next-1, messages, a.frames)
	}
}

// TestRingWriterKilled stops the writer at different points of a record.
func TestRingWriterKilled(t *testing.T) {
	next := func(t *testing.T, w *RingWriter) []byte {
		return mustAppend(t, w.header.u64(ringWritten)+1, numbered(w.header.u64(ringWritten)+1))
	}
	head := func(w *RingWriter) uint64 { return w.header.u64(ringHead) }

	for _, before := range []int{3, 150} { // in the first lap, and over old data
		name := fmt.Sprintf("after %d", before)
		start := func(t *testing.T) (*RingWriter, *tally, uint64) {
			w := createRing(t, testRingSize)
			writeNumbered(t, w, before)
			for w.lapLeft() < 256 { // keep the frame that is cut in one piece
				writeNumbered(t, w, 1)
			}
			return w, &tally{next: 1}, w.header.u64(ringWritten)
		}

		t.Run(name+"/before head was stored", func(t *testing.T) {
			w, a, written := start(t)
			frame := next(t, w)
			for n := range len(frame) + 1 {
				edit(t, w.Path(), w.dataAt(head(w)), frame[:n])
				*a = tally{next: 1}
				drainInto(t, openRing(t, w.Path()), a)
				if a.next != written+1 {
					t.Fatalf("%d bytes copied: up to %d of %d", n, a.next-1, written)
				}
			}
		})

		t.Run(name+"/after head was stored, before the counts", func(t *testing.T) {
			w, a, written := start(t)
			frame := next(t, w)
			edit(t, w.Path(), w.dataAt(head(w)), frame)
			edit(t, w.Path(), ringHead, u64Bytes(head(w)+uint64(len(frame))))
			drainInto(t, openRing(t, w.Path()), a)
			if a.next != written+2 {
				t.Errorf("up to %d of %d", a.next-1, written+1)
			}
		})

		t.Run(name+"/head was stored, bytes are torn", func(t *testing.T) {
			w, a, written := start(t)
			frame := next(t, w)
			r := openRing(t, w.Path())
			edit(t, w.Path(), w.dataAt(head(w)), bytes.Repeat([]byte{0xEE}, len(frame)))
			edit(t, w.Path(), ringHead, u64Bytes(head(w)+uint64(len(frame))))
			edit(t, w.Path(), ringWritten, u64Bytes(written+1))
			for n := range len(frame) { // the bytes become visible one by one, and only the last makes a frame
				edit(t, w.Path(), w.dataAt(head(w)), frame[:n])
				drainInto(t, r, a)
				if a.next != written+1 {
					t.Fatalf("%d bytes copied: up to %d of %d", n, a.next-1, written)
				}
			}
			// The writer is dead now: what is left is given up.
			w.Close()
			if g := r.rest(); g == nil || g.From != written+1 || g.Count != 1 || g.Bytes != int64(len(frame)) || g.Why != WhyDamaged {
				t.Errorf("the rest is %+v", g)
			}
			if g := r.rest(); g != nil {
				t.Errorf("and again %+v", g)
			}
		})

		t.Run(name+"/torn bytes become whole", func(t *testing.T) {
			w, a, written := start(t)
			frame := next(t, w)
			r := openRing(t, w.Path())
			edit(t, w.Path(), w.dataAt(head(w)), frame[:20])
			edit(t, w.Path(), w.dataAt(head(w)+20), bytes.Repeat([]byte{0xEE}, len(frame)-20))
			edit(t, w.Path(), ringHead, u64Bytes(head(w)+uint64(len(frame))))
			drainInto(t, r, a)
			edit(t, w.Path(), w.dataAt(head(w)), frame)
			drainInto(t, r, a)
			if a.next != written+2 {
				t.Errorf("up to %d of %d", a.next-1, written+1)
			}
		})
	}
}

// lapLeft is how many bytes there are up to the end of the data area.
func (w *RingWriter) lapLeft() uint64 { return w.size - w.header.u64(ringHead)%w.size }

// TestRingDamage spoils every byte of a frame in the middle: that frame is lost and nothing else.
func TestRingDamage(t *testing.T) {
	w := createRing(t, 4_096)
	writeNumbered(t, w, 10)
	at, sequence := w.header.u64(ringHead), w.header.u64(ringWritten)+1
	frame := mustAppend(t, sequence, numbered(sequence))
	writeNumbered(t, w, 10)
	for i := range frame {
		spoilt := append([]byte(nil), frame...)
		spoilt[i] ^= 0xFF
		edit(t, w.Path(), w.dataAt(at), spoilt)
		a := &tally{next: 1}
		drainInto(t, openRing(t, w.Path()), a)
		want := []Gap{{From: sequence, To: sequence, Count: 1, Why: WhyDamaged}}
		if diff := cmp.Diff(want, a.gaps); diff != "" || a.next != w.header.u64(ringWritten)+1 {
			t.Fatalf("byte %d: up to %d, gaps\n%s", i, a.next-1, diff)
		}
	}
	edit(t, w.Path(), w.dataAt(at), make([]byte, len(frame))) // zeros look like the end of a lap
	a := &tally{next: 1}
	drainInto(t, openRing(t, w.Path()), a)
	if len(a.gaps) != 1 || a.gaps[0].Count != 1 {
		t.Errorf("zeros: gaps %+v", a.gaps)
	}
}

// TestRingZerosInAnEarlierLap has a frame of zeros that is not the end of its lap.
func TestRingZerosInAnEarlierLap(t *testing.T) {
	w := createRing(t, testRingSize)
	writeNumbered(t, w, 10)
	r := openRing(t, w.Path())
	a := &tally{next: 1}
	drainInto(t, r, a)
	at := w.header.u64(ringHead)
	writeNumbered(t, w, 10)
	for w.header.u64(ringHead) < testRingSize+200 {
		writeNumbered(t, w, 1)
	}
	edit(t, w.Path(), w.dataAt(at), make([]byte, MinFrame))
	drainInto(t, r, a)
	want := []Gap{{From: 12, To: 12, Count: 1, Why: WhyDamaged}}
	if diff := cmp.Diff(want, a.gaps); diff != "" || a.next != w.header.u64(ringWritten)+1 {
		t.Errorf("up to %d, gaps\n%s", a.next-1, diff)
	}
}

// TestRingReadsAgainBeforeItGivesUp has a frame whose bytes appear later than those of the next one.
func TestRingReadsAgainBeforeItGivesUp(t *testing.T) {
	w := createRing(t, testRingSize)
	w.add(ringWritten, 2) // and between the two, numbers are missing, for no fault of those bytes
	at := w.header.u64(ringHead)
	writeNumbered(t, w, 2)
	edit(t, w.Path(), w.dataAt(at), []byte{1, 2, 3, 4})
	r := openRing(t, w.Path())
	a := &tally{next: 1}
	record, err := r.Next() // copies all three
	if err == nil {
		err = a.take(record)
	}
	if err != nil {
		t.Fatal(err)
	}
	edit(t, w.Path(), w.dataAt(at), mustAppend(t, 4, numbered(4)))
	drainInto(t, r, a)
	want := []Gap{{From: 2, To: 3, Count: 2, Why: WhyMissing}}
	if diff := cmp.Diff(want, a.gaps); diff != "" || a.next != 6 {
		t.Errorf("up to %d, gaps\n%s", a.next-1, diff)
	}
}

// TestRingCountsThatLag has a writer that has published frames and not counted them yet.
func TestRingCountsThatLag(t *testing.T) {
	w := createRing(t, testRingSize)
	writeNumbered(t, w, 5)
	edit(t, w.Path(), ringWritten, u64Bytes(0))
	a := &tally{next: 1}
	drainInto(t, openRing(t, w.Path()), a) // all of them: each follows the one before
	if a.frames != 6 {
		t.Errorf("%d frames of 6", a.frames)
	}

	writeNumbered(t, w, 200)
	newest := mustAppend(t, 206, numbered(206))
	at := w.header.u64(ringHead) - uint64(len(newest))
	for p := w.header.u64(ringHead) - testRingSize; p < at; p += 8 {
		edit(t, w.Path(), w.dataAt(p), u64Bytes(1))
	}
	edit(t, w.Path(), ringWritten, u64Bytes(205))
	a = &tally{next: 1}
	drainInto(t, openRing(t, w.Path()), a) // the newest: it ends where head is
	if a.frames != 1 || a.next != 207 {
		t.Errorf("%d frames of 1, up to %d", a.frames, a.next-1)
	}
}

// TestRingComesBackForAir has a reader that was overtaken again and again: it says that there is nothing for now, and goes on later.
func TestRingComesBackForAir(t *testing.T) {
	w := createRing(t, testRingSize)
	r := openRing(t, w.Path())
	writeNumbered(t, w, 200)
	r.overruns = maxOverruns
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("got %v", err)
	}
	a := &tally{next: 1}
	drainInto(t, r, a)
	if a.next != 202 || a.frames == 0 {
		t.Errorf("%d frames, up to %d", a.frames, a.next-1)
	}
}

// TestRingKeepsDistance has a writer that overtakes its reader wherever it lands.
func TestRingKeepsDistance(t *testing.T) {
	r := &Ring{size: 2 << 20, head: 8 << 20}
	for _, distance := range []uint64{0, 2 * ringChunk, 4 * ringChunk, 8 * ringChunk, 1 << 20, 1 << 20} {
		if r.catchUp(); r.pos != r.head-r.size+distance {
			t.Errorf("%d bytes behind the oldest, want %d", r.pos-(r.head-r.size), distance)
		}
	}
}

// TestRingSequenceHole has a writer that leaves out numbers, as one that counts what it dropped would.
func TestRingSequenceHole(t *testing.T) {
	w := createRing(t, 4_096)
	at := w.header.u64(ringHead)
	writeNumbered(t, w, 3)
	edit(t, w.Path(), w.dataAt(at), []byte{1, 2, 3, 4}) // damage before it is another matter
	w.add(ringWritten, 5)
	writeNumbered(t, w, 3)
	a := &tally{next: 1}
	drainInto(t, openRing(t, w.Path()), a)
	want := []Gap{{From: 2, To: 2, Count: 1, Why: WhyDamaged}, {From: 5, To: 9, Count: 5, Why: WhyMissing}}
	if diff := cmp.Diff(want, a.gaps); diff != "" || a.next != 13 {
		t.Errorf("up to %d, gaps\n%s", a.next-1, diff)
	}
}

func TestRingTruncatedUnderneath(t *testing.T) {
	for _, size := range []int64{0, 100, ringHeaderSize, ringHeaderSize + 64, ringHeaderSize + testRingSize - 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			w := createRing(t, testRingSize)
			writeNumbered(t, w, 5)
			r := openRing(t, w.Path())
			if err := os.Truncate(w.Path(), size); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and it stays so
				if _, err := r.Next(); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), w.Path()) {
					t.Errorf("next: %v", err)
				}
			}
			if _, err := OpenRing(w.Path()); err == nil {
				t.Error("opened anew without an error")
			}
		})
	}
}

func TestOpenRingRefuses(t *testing.T) {
	u16, u32 := binary.LittleEndian.AppendUint16, binary.LittleEndian.AppendUint32
	tests := []struct {
		name string
		at   int64
		b    []byte
		want error
		says string
	}{
		{"not finished", 0, make([]byte, 8), ErrUnready, "magic"},
		{"magic", 0, []byte("WLRING\n\n"), ErrMagic, "this is no ring"},
		{"newer major", ringMajor, u16(u16(nil, 2), 1), ErrNewerMajor, "this ring is format 2.1: the format is newer than this whylate; this whylate reads up to 1.x; upgrade whylate"},
		{"header size", ringHeaderAt, u32(nil, 4_096), ErrLength, "header size: 4096"},
		{"no data", ringDataSize, u64Bytes(0), ErrLength, "data size: 0"},
		{"data size not of 8", ringDataSize, u64Bytes(testRingSize - 4), ErrLength, "data size: 2044"},
		{"data size beyond the file", ringDataSize, u64Bytes(testRingSize + 8), ErrTruncated, "2056 bytes in a file of"},
		{"data size beyond everything", ringDataSize, u64Bytes(1<<64 - 8), ErrTruncated, "data size"},
		{"hello length", ringHelloLength, u32(nil, 15_361), ErrLength, "hello length: 15361"},
		{"head not of 8", ringHead, u64Bytes(1_001), ErrValue, "head: 1001"},
		{"head beyond everything", ringHead, u64Bytes(1<<64 - 8), ErrValue, "head"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := createRing(t, testRingSize)
			edit(t, w.Path(), tt.at, tt.b)
			_, err := OpenRing(w.Path())
			if !errors.Is(err, tt.want) || !strings.HasPrefix(fmt.Sprint(err), w.Path()+": ") || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("got %v, want %v that says %q", err, tt.want, tt.says)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		if _, err := OpenRing(t.TempDir()); !errors.Is(err, ErrMagic) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no file", func(t *testing.T) {
		if _, err := OpenRing(filepath.Join(t.TempDir(), "no.ring")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRingHostileHead has heads that are possible, but not true.
func TestRingHostileHead(t *testing.T) {
	for _, head := range []uint64{8, 4_096, 1<<40 + 16, 1<<63 - 8} {
		w := createRing(t, testRingSize)
		writeNumbered(t, w, 20)
		edit(t, w.Path(), ringHead, u64Bytes(head))
		r := openRing(t, w.Path())
		for range 1_000 {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("head %d: %v", head, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("head %d: no end: %v", head, err)
		}
	}
}

// TestRingSearchIsBounded has a ring in which every eight bytes claim to be the beginning of a long frame.
func TestRingSearchIsBounded(t *testing.T) {
	w := createRing(t, 2<<20)
	claim := make([]byte, 2<<20)
	for i := 0; i+32 <= len(claim); i += 32 {
		binary.LittleEndian.PutUint32(claim[i+4:], 512<<10)
		binary.LittleEndian.PutUint16(claim[i+24:], frameMagic)
	}
	edit(t, w.Path(), ringHeaderSize, claim)
	edit(t, w.Path(), ringHead, u64Bytes(2<<20))
	r := openRing(t, w.Path())
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("got %v", err)
	}
	if r.failed > searchLimit+MaxFrame || r.pos != r.head {
		t.Errorf("%d bytes checked in vain, at %d of %d", r.failed, r.pos, r.head)
	}
}

func TestRingStatus(t *testing.T) {
	w := createRing(t, 4_096)
	for _, m := range []Message{
		&Clock{Time: 30, MonoBefore: 10, Realtime: 20, MonoAfter: 30},
		&Scheduled{Time: 40, Iteration: 7, Running: 3, Waiting: 2},
		&Done{Time: 50, Iteration: 6},
	} {
		if err := w.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Write(&Hashes{Hashes: make([]uint64, 1_000)}); !errors.Is(err, ErrLength) {
		t.Errorf("a frame larger than the ring: %v", err)
	}
	if err := w.Write(&Done{Emits: make([]Emit, 65_536)}); !errors.Is(err, ErrLength) {
		t.Errorf("a list longer than its count: %v", err)
	}
	if err := w.CountError(); err != nil {
		t.Fatal(err)
	}
	r := openRing(t, w.Path())
	want := RingStatus{PID: 12, Start: 34, Alive: true, Head: w.header.u64(ringHead), Written: 4, Dropped: 2, Errors: 1,
		Launched: 7, LaunchedAt: 40, Completed: 6, CompletedAt: 50, Clock: Clock{30, 10, 20, 30}, Running: 3, Waiting: 2}
	for _, alive := range []bool{true, true, false, false} { // asking twice: the lock is given back
		want.Alive = alive
		if !alive {
			w.Close()
		}
		got, err := r.Status()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("alive %t: %v\n%s", alive, err, diff)
		}
	}
}

// TestRingStatusGivesTheLockBack lets another writer have the file after a reader has looked.
func TestRingStatusGivesTheLockBack(t *testing.T) {
	w := createRing(t, testRingSize)
	w.Close()
	if _, err := openRing(t, w.Path()).Status(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Error(err)
	}
}

func TestRingHello(t *testing.T) {
	w := createRing(t, testRingSize)
	object, err := openRing(t, w.Path()).Hello()
	if err != nil {
		t.Fatal(err)
	}
	h, err := ParseHello(object)
	if err != nil || h.PID != 12 || h.Thread != "scheduler" {
		t.Errorf("%+v, %v", h, err)
	}

	edit(t, w.Path(), ringHelloAt+100, []byte{0})
	if _, err := openRing(t, w.Path()).Hello(); !errors.Is(err, ErrChecksum) {
		t.Errorf("damaged: %v", err)
	}
	edit(t, w.Path(), ringHelloLength, make([]byte, 4))
	if object, err := openRing(t, w.Path()).Hello(); object != nil || err != nil {
		t.Errorf("none: %q, %v", object, err)
	}
}

func TestRingReadsWithoutAllocating(t *testing.T) {
	w := createRing(t, 64<<10)
	r := openRing(t, w.Path())
	allocs := testing.AllocsPerRun(200, func() {
		for range 10 {
			if err := w.Write(&testNotice); err != nil {
				t.Fatal(err)
			}
		}
		for {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for ten frames", allocs)
	}
}

var testNotice = Notice{Text: "a notice of some length"}
