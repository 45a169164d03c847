package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// told is what a reader tells, in words that can be compared.
type told []string

func tell(r Record, sources map[uint16]string) string {
	name := sources[r.Source]
	switch {
	case r.Opened != nil:
		sources[r.Source] = r.Opened.Name
		return fmt.Sprintf("source %d is %s, opened %d, hello %s", r.Source, r.Opened.Name, r.Opened.Opened, r.Opened.Hello)
	case r.Gap != nil && r.Gap.Bytes != 0:
		return fmt.Sprintf("%s %d bytes %s", name, r.Gap.Bytes, r.Gap.Why)
	case r.Gap != nil:
		return fmt.Sprintf("%s %d-%d %s, count %d", name, r.Gap.From, r.Gap.To, r.Gap.Why, r.Gap.Count)
	}
	return fmt.Sprintf("%s %d", name, r.Frame.Sequence)
}

// readCapture tells everything that is in a capture, and holds every frame to its contents.
func readCapture(t testing.TB, in io.Reader) told {
	t.Helper()
	r, err := NewCaptureReader(in)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all := told{}
	sources := map[uint16]string{}
	for {
		record, err := r.Next()
		if err == io.EOF {
			if _, err := r.Next(); err != io.EOF {
				t.Fatalf("after the end: %v", err)
			}
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if f := record.Frame; record.Gap == nil && record.Opened == nil {
			var got Notice
			if err := Decode(f, &got); err != nil || got != *numbered(f.Sequence) {
				t.Fatalf("frame %d says %+v: %v", f.Sequence, got, err)
			}
		}
		all = append(all, tell(record, sources))
	}
}

// captureBuilder writes captures of numbered frames.
type captureBuilder struct {
	t testing.TB
	bytes.Buffer
	*CaptureWriter
	ends []int // of the blocks, in the file
}

func newCapture(t testing.TB) *captureBuilder {
	b := &captureBuilder{t: t}
	w, err := NewCaptureWriter(&b.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	b.CaptureWriter = w
	b.ends = []int{b.Len()}
	return b
}

func (b *captureBuilder) open(name string) uint16 {
	id, err := b.Source(Source{Name: name, Hello: json.RawMessage(`{"protocol":[1,0]}`), Opened: 5})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *captureBuilder) frames(source uint16, sequences ...uint64) {
	for _, sequence := range sequences {
		if err := b.Frame(source, mustParse(b.t, mustAppend(b.t, sequence, numbered(sequence)))); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *captureBuilder) gap(source uint16, g Gap) {
	if err := b.Gap(source, g); err != nil {
		b.t.Fatal(err)
	}
}

func (b *captureBuilder) block() {
	if err := b.Flush(); err != nil {
		b.t.Fatal(err)
	}
	b.ends = append(b.ends, b.Len())
}

// threeBlocks is a small capture of two rings, and what its blocks tell.
func threeBlocks(t testing.TB) (*captureBuilder, []told) {
	b := newCapture(t)
	x := b.open("x.ring")
	b.frames(x, 1, 2)
	y := b.open("y.ring")
	b.frames(y, 1)
	b.frames(x, 3)
	b.block()
	b.frames(x, 4)
	b.gap(y, Gap{From: 2, To: 8, Count: 7, Why: WhyOverwritten, At: 77})
	b.frames(y, 9, 10)
	b.block()
	b.frames(x, 5, 6)
	b.frames(y, 11)
	b.block()
	const hello = `, opened 5, hello {"protocol":[1,0]}`
	return b, []told{
		{"source 1 is x.ring" + hello, "x.ring 1", "x.ring 2", "source 2 is y.ring" + hello, "y.ring 1", "x.ring 3"},
		{"x.ring 4", "y.ring 2-8 overwritten before it was read, count 7", "y.ring 9", "y.ring 10"},
		{"x.ring 5", "x.ring 6", "y.ring 11"},
	}
}

func join(blocks ...told) told {
	all := told{}
	for _, b := range blocks {
		all = append(all, b...)
	}
	return all
}

func TestCaptureThereAndBack(t *testing.T) {
	b, blocks := threeBlocks(t)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b.Size() != int64(b.Len()) {
		t.Errorf("size %d of %d bytes", b.Size(), b.Len())
	}
	if diff := cmp.Diff(join(blocks...), readCapture(t, bytes.NewReader(b.Bytes()))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(join(blocks...), readCapture(t, iotest.OneByteReader(bytes.NewReader(b.Bytes())))); diff != "" {
		t.Errorf("byte by byte, -want +got:\n%s", diff)
	}
}

func TestCaptureGapKeepsItsTime(t *testing.T) {
	b := newCapture(t)
	want := Gap{From: 2, To: 8, Count: 7, Why: WhyMissing, At: 77}
	b.gap(b.open("x"), want)
	b.block()
	r, err := NewCaptureReader(&b.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		record, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if record.Gap != nil && *record.Gap != want {
			t.Errorf("got %+v", *record.Gap)
		}
	}
}

func TestCaptureGapBeforeTheFirstFrame(t *testing.T) {
	b := newCapture(t)
	x := b.open("x")
	b.gap(x, Gap{From: 1, To: 4, Count: 4, Why: WhyOverwritten})
	b.frames(x, 7)
	b.block()
	want := told{"x 1-4 overwritten before it was read, count 4", "x 5-6 missing, count 2", "x 7"}
	if diff := cmp.Diff(want, readCapture(t, &b.Buffer)[1:]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCaptureByHand reads a capture that was put together from docs/formats/stream.md §4 without this package's writer.
func TestCaptureByHand(t *testing.T) {
	le := binary.LittleEndian
	frame := mustAppend(t, 7, numbered(7))
	record := func(b []byte, source, kind uint16, payload string) []byte {
		return append(le.AppendUint32(le.AppendUint16(le.AppendUint16(b, source), kind), uint32(len(payload))), payload...)
	}
	records := record(nil, 3, 1, `{"name":"a","hello":null,"opened":9,"new in 1.4":true}`)
	records = record(records, 3, 9, "of a newer minor version")
	records = record(records, 3, 0, string(frame))
	records = record(records, 3, 2, `{"source":"a","from":8,"to":9,"count":2,"why":"for a reason","at":10}`)
	records = record(records, 3, 0, string(frame[:40])) // cut
	records = record(records, 3, 0, string(frame)+"surplus!")
	records = record(records, 3, 1, `{`)
	records = record(records, 3, 0, string(mustAppend(t, 10, numbered(10))))
	records = append(records, 3, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF) // a length beyond the block

	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := encoder.EncodeAll(records, nil)
	file := append([]byte("WHYLATE\n"), 1, 0, 99, 0, 0, 0, 0, 0)
	file = append(file, "WLBK"...)
	file = le.AppendUint32(file, uint32(len(packed)))
	file = le.AppendUint32(file, uint32(len(records)))
	file = le.AppendUint32(file, crc32.ChecksumIEEE(packed))
	file = append(file, packed...)

	want := told{"source 3 is a, opened 9, hello ", "a 7", "a 8-9 for a reason, count 2", "a 48 bytes damaged",
		fmt.Sprintf("a %d bytes damaged", 8+len(frame)+8), "a 9 bytes damaged", "a 10", "a 8 bytes damaged"}
	if diff := cmp.Diff(want, readCapture(t, bytes.NewReader(file))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCaptureCutEverywhere cuts a capture after every byte: what is lost is the block that was cut, and that is told.
func TestCaptureCutEverywhere(t *testing.T) {
	b, blocks := threeBlocks(t)
	for n := range b.Len() {
		cut := b.Bytes()[:n]
		if n < captureHeader {
			if _, err := NewCaptureReader(bytes.NewReader(cut)); !errors.Is(err, ErrTruncated) {
				t.Errorf("cut to %d bytes: %v", n, err)
			}
			continue
		}
		whole := 0
		for b.ends[whole+1] <= n {
			whole++
		}
		want := join(blocks[:whole]...)
		if left := n - b.ends[whole]; left > 0 {
			want = append(want, fmt.Sprintf(" %d bytes truncated", left))
		}
		if diff := cmp.Diff(want, readCapture(t, bytes.NewReader(cut))); diff != "" {
			t.Fatalf("cut to %d bytes, -want +got:\n%s", n, diff)
		}
	}
}

// TestCaptureSpoiltEverywhere changes every byte of a capture: what is lost is the block that it is in, and that is told.
func TestCaptureSpoiltEverywhere(t *testing.T) {
	b, blocks := threeBlocks(t)
	whole := readCapture(t, bytes.NewReader(b.Bytes()))
	for i := range b.Len() {
		for _, bits := range []byte{0x01, 0x10, 0x80, 0xFF} {
			spoilt := bytes.Clone(b.Bytes())
			spoilt[i] ^= bits
			if i < captureHeader {
				r, err := NewCaptureReader(bytes.NewReader(spoilt))
				switch {
				case err == nil: // the minor version, the reserved bytes, or an older major version
					r.Close()
					if diff := cmp.Diff(whole, readCapture(t, bytes.NewReader(spoilt))); diff != "" {
						t.Errorf("byte %d ^ %#x, -want +got:\n%s", i, bits, diff)
					}
				case i < 8 && !errors.Is(err, ErrMagic), i >= 8 && !errors.Is(err, ErrNewerMajor):
					t.Errorf("byte %d ^ %#x: %v", i, bits, err)
				}
				continue
			}
			block := 0
			for b.ends[block+1] <= i {
				block++
			}
			got := readCapture(t, bytes.NewReader(spoilt))
			if err := lostOnly(got, blocks, block); err != nil {
				t.Fatalf("byte %d ^ %#x: %v\n%s", i, bits, err, strings.Join(got, "\n"))
			}
		}
	}
}

// lostOnly checks that everything is told but what the one block tells, and that its loss is told instead.
func lostOnly(got told, blocks []told, lost int) error {
	rest := map[string]int{}
	for _, line := range got {
		rest[line]++
	}
	for i, block := range blocks {
		for _, line := range block {
			// A source is opened by whichever block is the first to be read.
			if i != lost || strings.HasPrefix(line, "source") {
				if rest[line]--; rest[line] < 0 {
					return fmt.Errorf("%q is lost", line)
				}
			}
		}
	}
	damage := false
	for line, n := range rest {
		switch {
		case n == 0:
		case strings.HasSuffix(line, "bytes damaged") || strings.HasSuffix(line, "bytes truncated"):
			damage = true
		case !strings.Contains(line, " damaged, count "):
			return fmt.Errorf("%q is told %d times", line, n)
		}
	}
	if !damage {
		return errors.New("the loss is not told")
	}
	return nil
}

func TestCaptureCountsWhatADamagedBlockHeld(t *testing.T) {
	b, blocks := threeBlocks(t)
	spoilt := bytes.Clone(b.Bytes())
	spoilt[b.ends[1]+20] ^= 1
	want := join(blocks[0], told{fmt.Sprintf(" %d bytes damaged", b.ends[2]-b.ends[1]),
		"x.ring 4-4 damaged, count 1", "x.ring 5", "x.ring 6", "y.ring 2-10 damaged, count 9", "y.ring 11"})
	for _, in := range []io.Reader{bytes.NewReader(spoilt), iotest.OneByteReader(bytes.NewReader(spoilt))} {
		if diff := cmp.Diff(want, readCapture(t, in)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestCaptureOrder(t *testing.T) {
	tests := []struct {
		name      string
		sequences []uint64
		want      told
	}{
		{"in order", []uint64{1, 2, 3}, told{"x 1", "x 2", "x 3"}},
		{"from the middle on", []uint64{7, 8}, told{"x 7", "x 8"}},
		{"missing", []uint64{1, 5}, told{"x 1", "x 2-4 missing, count 3", "x 5"}},
		{"duplicate", []uint64{1, 2, 2, 3}, told{"x 1", "x 2", "x 2-2 duplicate, count 0", "x 3"}},
		{"duplicate of an older one", []uint64{1, 2, 1, 3}, told{"x 1", "x 2", "x 1-1 duplicate, count 0", "x 3"}},
		{"swapped", []uint64{1, 3, 2, 4}, told{"x 1", "x 2-2 missing, count 1", "x 3", "x 2-2 out of order, count 0", "x 4"}},
		{"before the first", []uint64{5, 3, 6}, told{"x 5", "x 3-3 out of order, count 1", "x 6"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newCapture(t)
			b.frames(b.open("x"), tt.sequences...)
			b.block()
			if diff := cmp.Diff(tt.want, readCapture(t, &b.Buffer)[1:]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestCaptureBlocksRepeatedAndSwapped(t *testing.T) {
	b, blocks := threeBlocks(t)
	part := func(i int) []byte { return b.Bytes()[b.ends[i]:b.ends[i+1]] }
	header := b.Bytes()[:captureHeader]

	twice := bytes.Join([][]byte{header, part(0), part(0)}, nil)
	want := join(blocks[0], told{"x.ring 1-1 duplicate, count 0", "x.ring 2-2 duplicate, count 0", "y.ring 1-1 duplicate, count 0", "x.ring 3-3 duplicate, count 0"})
	if diff := cmp.Diff(want, readCapture(t, bytes.NewReader(twice))); diff != "" {
		t.Errorf("twice, -want +got:\n%s", diff)
	}
	swapped := bytes.Join([][]byte{header, part(2), part(0)}, nil)
	got := readCapture(t, bytes.NewReader(swapped))
	if late := strings.Count(strings.Join(got, "\n"), "out of order, count 1"); late != 4 {
		t.Errorf("swapped: %d of 4 frames told as late:\n%s", late, strings.Join(got, "\n"))
	}
}

// TestCapturesInOneFile reads what cat a.wlc b.wlc makes: the second header is damage, and its sources are others.
func TestCapturesInOneFile(t *testing.T) {
	var both bytes.Buffer
	for _, name := range []string{"x", "y"} {
		b := newCapture(t)
		b.frames(b.open(name), 1, 2)
		b.block()
		both.Write(b.Bytes())
	}
	got := readCapture(t, &both)
	want := told{"x 1", "x 2", " 16 bytes damaged", "y 1", "y 2"}
	got = append(got[1:4:4], got[5:]...) // without the sources
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOpenCapture(t *testing.T) {
	b, _ := threeBlocks(t)
	path := filepath.Join(t.TempDir(), "run.wlc")
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(b.Bytes())
	r, err := OpenCapture(path)
	if err != nil {
		t.Fatal(err)
	}
	if record, err := r.Next(); err != nil || record.Opened == nil || record.Opened.ID != 1 {
		t.Errorf("%+v, %v", record, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	newer := bytes.Clone(b.Bytes())
	newer[8], newer[10] = 2, 0
	write(newer)
	_, err = OpenCapture(path)
	want := path + ": capture: major: this capture is format 2.0: the format is newer than this whylate; this whylate reads up to 1.x; upgrade whylate"
	if !errors.Is(err, ErrNewerMajor) || fmt.Sprint(err) != want {
		t.Errorf("newer major:\n%v, want\n%s", err, want)
	}
	write([]byte("PK\x03\x04 and a good deal more than that"))
	if _, err := OpenCapture(path); !errors.Is(err, ErrMagic) {
		t.Errorf("another file: %v", err)
	}
	if _, err := OpenCapture(path + ".no"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestCaptureBombs has blocks that unpack to more than they say, or say more than a block may hold.
func TestCaptureBombs(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := encoder.EncodeAll(make([]byte, 64<<20), nil)
	for _, raw := range []uint32{0, 100, maxBlockRaw, maxBlockRaw + 1, 1<<32 - 1} {
		t.Run(fmt.Sprint(raw), func(t *testing.T) {
			b := newCapture(t)
			le := binary.LittleEndian
			b.WriteString(blockMagic)
			b.Write(le.AppendUint32(nil, uint32(len(bomb))))
			b.Write(le.AppendUint32(nil, raw))
			b.Write(le.AppendUint32(nil, crc32.ChecksumIEEE(bomb)))
			b.Write(bomb)
			b.frames(b.open("x"), 1)
			b.block()
			var got told
			if allocated := allocatedBytes(func() { got = readCapture(t, &b.Buffer) }); allocated > 4*maxBlockRaw {
				t.Errorf("allocated %d bytes", allocated)
			}
			if len(got) != 3 || got[0] != fmt.Sprintf(" %d bytes damaged", blockHeader+len(bomb)) || got[2] != "x 1" {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestCaptureBlockTooLong has a block that says that it is longer than blocks may be, and enough bytes for it to look so.
func TestCaptureBlockTooLong(t *testing.T) {
	b := newCapture(t)
	b.WriteString(blockMagic + "\xFF\xFF\xFF\xFF\x01\x00\x00\x00")
	b.Write(make([]byte, 16<<20))
	b.frames(b.open("x"), 1)
	b.block()
	var got told
	if allocated := allocatedBytes(func() { got = readCapture(t, &b.Buffer) }); allocated > maxBlockRaw {
		t.Errorf("allocated %d bytes", allocated)
	}
	if len(got) != 3 || got[2] != "x 1" {
		t.Errorf("got %v", got)
	}
}

// TestOrderForgetsOldHoles has more holes than are remembered.
func TestOrderForgetsOldHoles(t *testing.T) {
	var o order
	for i := range uint64(10 * maxHoles) {
		if _, give := o.admit(2*i+1, WhyMissing); !give {
			t.Fatalf("%d is refused", 2*i+1)
		}
	}
	if len(o.holes) != maxHoles {
		t.Errorf("%d holes", len(o.holes))
	}
	for sequence, why := range map[uint64]string{2: WhyDuplicate, 20*maxHoles - 2: WhyOutOfOrder} {
		if gap, give := o.admit(sequence, WhyMissing); give || gap.Why != why {
			t.Errorf("%d: %+v", sequence, gap)
		}
	}
}

// TestCaptureSearchIsBounded has a file in which every sixteen bytes claim to be the beginning of a large block.
func TestCaptureSearchIsBounded(t *testing.T) {
	var claim [blockHeader]byte
	copy(claim[:], blockMagic)
	binary.LittleEndian.PutUint32(claim[4:], maxBlockRaw)
	binary.LittleEndian.PutUint32(claim[8:], maxBlockRaw)
	b := newCapture(t)
	b.Write(bytes.Repeat(claim[:], 8<<20/blockHeader))
	r, err := NewCaptureReader(&b.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if record, err := r.Next(); err != nil || record.Gap == nil {
		t.Errorf("%+v, %v", record, err)
	}
	if _, err := r.Next(); !errors.Is(err, ErrChecksum) {
		t.Errorf("got %v", err)
	}
}

func TestCaptureBlockSizes(t *testing.T) {
	b := newCapture(t)
	x := b.open("x")
	largest, err := AppendFrame(nil, Frame{Sequence: 1, Type: TypeNotice, Body: make([]byte, MaxFrame-FrameHeader)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.Frame(x, mustParse(t, largest)); err != nil {
			t.Fatal(err)
		}
	}
	for range 9_000 {
		if err := b.Frame(x, Frame{Sequence: 2, Type: TypeNotice, Body: make([]byte, 72)}); err != nil {
			t.Fatal(err)
		}
	}
	b.block()
	blocks, err := newBlockReader(bytes.NewReader(b.Bytes()[captureHeader:]))
	if err != nil {
		t.Fatal(err)
	}
	defer blocks.close()
	normal := 0
	for {
		records, gap, err := blocks.next()
		if err == io.EOF {
			break
		}
		if err != nil || gap != nil || len(records) > MaxFrame+1_024 {
			t.Fatalf("a block of %d bytes, gap %v, %v", len(records), gap, err)
		}
		if len(records) <= blockTarget {
			normal++
		}
	}
	if normal < 3 {
		t.Errorf("%d blocks of normal size", normal)
	}
}

func TestCaptureReaderErrors(t *testing.T) {
	b, blocks := threeBlocks(t)
	broken := errors.New("disk is broken")
	r, err := NewCaptureReader(io.MultiReader(bytes.NewReader(b.Bytes()[:b.ends[1]+5]), iotest.ErrReader(broken)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range blocks[0] {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
}

// failing is a disk that is full after some bytes.
type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("disk is full")
	}
	return len(b), nil
}

func TestCaptureWriterErrors(t *testing.T) {
	if _, err := NewCaptureWriter(&failing{8}); err == nil {
		t.Error("a capture without a header")
	}
	w, err := NewCaptureWriter(&failing{captureHeader})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Frame(1, Frame{}); !errors.Is(err, ErrValue) {
		t.Errorf("a frame of no source: %v", err)
	}
	if err := w.Frame(0, Frame{}); !errors.Is(err, ErrValue) {
		t.Errorf("a frame of source 0: %v", err)
	}
	if _, err := w.Source(Source{Name: "x", Hello: json.RawMessage("{")}); err == nil {
		t.Error("a source with half a hello")
	}
	id, err := w.Source(Source{Name: "x"})
	if err != nil || id != 1 {
		t.Fatalf("source %d, %v", id, err)
	}
	for _, do := range []func() error{w.Flush, w.Flush, func() error { return w.Gap(id, Gap{}) }, w.Close} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("got %v", err)
		}
	}
}

func TestCaptureReadsWithoutAllocating(t *testing.T) {
	b := newCapture(t)
	x := b.open("x")
	for sequence := range uint64(1_000) {
		b.frames(x, sequence+1)
	}
	b.block()
	r, err := NewCaptureReader(&b.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 2 { // the source, and the first frame, which unpacks the block
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if allocs := testing.AllocsPerRun(900, func() {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations a frame", allocs)
	}
}
