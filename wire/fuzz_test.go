package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzFrame holds every frame that can be parsed to being the same when it is framed again.
func FuzzFrame(f *testing.F) {
	for _, e := range examples {
		f.Add(mustAppend(f, e.sequence, e.message))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		parsed, n, err := ParseFrame(b)
		if err != nil {
			if n != 0 || parsed.Raw != nil || err.Error() == "" {
				t.Errorf("%d bytes of %v with %v", n, parsed, err)
			}
			return
		}
		again, err := AppendFrame(nil, parsed)
		if err != nil || !bytes.Equal(again, b[:n]) {
			t.Errorf("framed again\n%x, want\n%x: %v", again, b[:n], err)
		}
	})
}

// FuzzMessages decodes any bytes as any message. What can be decoded must mean the same when it is written and read again.
func FuzzMessages(f *testing.F) {
	for _, e := range examples {
		frame := mustParse(f, mustAppend(f, 1, e.message))
		f.Add(uint8(frame.Type), frame.Flags, frame.Body)
	}
	f.Fuzz(func(t *testing.T, typ, flags uint8, body []byte) {
		m := NewMessage(Type(typ))
		if m == nil || len(body) > MaxFrame-FrameHeader {
			return
		}
		if err := Decode(Frame{Type: Type(typ), Flags: flags, Body: body}, m); err != nil {
			return
		}
		b, err := Append(nil, 1, m)
		if err != nil {
			return // strings that were repaired may have become too long for a frame
		}
		again := NewMessage(Type(typ))
		if err := Decode(mustParse(t, b), again); err != nil {
			t.Fatal(err)
		}
		b2, err := Append(nil, 1, again)
		if err != nil || !bytes.Equal(b, b2) {
			t.Errorf("written twice:\n%x\n%x\n%v", b, b2, err)
		}
		if len(body) <= maxString { // no string can have been cut
			if diff := cmp.Diff(m, again, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("-first +second:\n%s", diff)
			}
		}
	})
}

// reseal puts the right checksum on everything in b that looks like a frame, so that what is wrong with it lies deeper.
func reseal(b []byte, step int) []byte {
	for i := 0; i+MinFrame <= len(b); i += step {
		if n, err := peekFrame(b[i:]); err == nil && n <= len(b)-i {
			binary.LittleEndian.PutUint32(b[i:], crc32.ChecksumIEEE(b[i+frameLength:i+n]))
		}
	}
	return b
}

// FuzzRing reads files with any header and data: frames and gaps tile the sequences, the reader comes to an end, and ends again.
func FuzzRing(f *testing.F) {
	w := createRing(f, 1_024)
	for _, n := range []int{0, 3, 40} {
		writeNumbered(f, w, n)
		file, err := os.ReadFile(w.Path())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file[:ringFieldsEnd], file[ringHeaderSize:], true)
		f.Add(file[:ringFieldsEnd], file[ringHeaderSize+512:], false)
	}
	path := filepath.Join(f.TempDir(), "fuzz.ring")
	f.Fuzz(func(t *testing.T, fields, data []byte, sealed bool) {
		if sealed {
			data = reseal(bytes.Clone(data), frameAlign)
		}
		file := make([]byte, ringHeaderSize, ringHeaderSize+len(data))
		copy(file, fields)
		if err := os.WriteFile(path, append(file, data...), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenRing(path)
		if err != nil {
			return
		}
		defer r.Close()
		r.Hello()
		if _, err := r.Status(); err != nil {
			t.Error(err)
		}
		next := uint64(1)
		for limit := 2*len(data)/MinFrame + 3; ; limit-- {
			record, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil || limit == 0 {
				t.Fatalf("%d tries left: %v", limit, err)
			}
			if g := record.Gap; g != nil {
				if g.From != next || g.To < g.From {
					t.Fatalf("gap %+v where %d is due", *g, next)
				}
				next = g.To + 1
				continue
			}
			if record.Frame.Sequence != next {
				t.Fatalf("frame %d where %d is due", record.Frame.Sequence, next)
			}
			next++
		}
		if record, err := r.Next(); err != io.EOF {
			t.Errorf("after the end: %+v, %v", record, err)
		}
		r.rest()
		if r.pos != r.head {
			t.Errorf("at %d of %d", r.pos, r.head)
		}
	})
}

// FuzzCapture reads any file with one more whole block of any records: no panic, an end, and the frames of a source only
// ever go up.
func FuzzCapture(f *testing.F) {
	b, _ := threeBlocks(f)
	b.frames(1, 7, 7, 9, 8)
	b.gap(2, Gap{From: 12, To: 13, Count: 2})
	records := bytes.Clone(b.records)
	f.Add(b.Bytes(), records)
	f.Add(b.Bytes()[:b.ends[2]-7], records)
	f.Add(append(bytes.Clone(b.Bytes()), b.Bytes()...), []byte{})
	spoilt := bytes.Clone(b.Bytes())
	spoilt[b.ends[1]+30] ^= 4
	f.Add(spoilt, records[:len(records)-9])
	f.Fuzz(func(t *testing.T, file, records []byte) {
		block := newCapture(t)
		block.records = reseal(bytes.Clone(records), 1)
		block.block()
		r, err := NewCaptureReader(io.MultiReader(bytes.NewReader(file), bytes.NewReader(block.Bytes()[captureHeader:])))
		if err != nil {
			return
		}
		defer r.Close()
		last := map[uint16]uint64{}
		for {
			record, err := r.Next()
			if err != nil {
				return
			}
			switch {
			case record.Opened != nil:
				delete(last, record.Source)
			case record.Gap == nil:
				if sequence := record.Frame.Sequence; sequence <= last[record.Source] && sequence != 0 {
					t.Fatalf("source %d: frame %d after %d", record.Source, sequence, last[record.Source])
				}
				last[record.Source] = record.Frame.Sequence
			}
		}
	})
}
