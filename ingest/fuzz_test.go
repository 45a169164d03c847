package ingest_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// FuzzAssemble feeds frames whose checksums are right and whose contents are not: whatever a producer says, the assembler
// must not fail, nothing may grow without bound, and the parts of every account must sum.
func FuzzAssemble(f *testing.F) {
	for _, text := range []string{pair, pressure} {
		run, err := scenario.Parse(text)
		if err != nil {
			f.Fatal(err)
		}
		var all []byte
		for _, s := range run.Sources() {
			all = append(all, bytes.Join(s.Frames, nil)...)
		}
		f.Add(all)
	}
	run, _, err := scenario.Random(3, 80, scenario.PlainCost)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Join(run.Engine.Frames, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := ingest.New()
		id, err := a.Source(wire.Source{Name: "fuzz"})
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; len(data) >= wire.FrameHeader && n < 5000; n++ {
			// The fuzzer's bytes with a header that holds: length within the rest, known magic.
			length := min(int(binary.LittleEndian.Uint32(data[4:]))&^7, len(data)&^7)
			if length < 32 {
				return
			}
			frame := wire.Frame{Sequence: binary.LittleEndian.Uint64(data[8:]), Time: int64(binary.LittleEndian.Uint64(data[16:])),
				Type: wire.Type(data[26]), Flags: data[27], Body: data[wire.FrameHeader:length]}
			data = data[length:]
			if err := a.Frame(id, frame); err != nil {
				t.Fatal(err)
			}
		}
		sums(t, a.Book())
	})
}

// sums checks what must hold of any book.
func sums(t *testing.T, b *ledger.Book) {
	t.Helper()
	for _, e := range b.Engines {
		account.Fit(e)
		account.FindOdd(e, nil)
	}
	for _, r := range b.Requests {
		a := account.Of(r, nil, b.Now)
		var sum int64
		for _, l := range a.Lines {
			sum += l.NS
		}
		if sum != a.E2E() {
			t.Fatalf("parts sum to %d, E2E is %d", sum, a.E2E())
		}
	}
}

// FuzzCapture reads damaged captures through to accounts.
func FuzzCapture(f *testing.F) {
	run, err := scenario.Parse(pressure)
	if err != nil {
		f.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := wire.NewCaptureWriter(&buf)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range run.Sources() {
		id, err := w.Source(wire.Source{Name: s.Name})
		if err != nil {
			f.Fatal(err)
		}
		for _, b := range s.Frames {
			frame, _, err := wire.ParseFrame(b)
			if err != nil {
				f.Fatal(err)
			}
			if err := w.Frame(id, frame); err != nil {
				f.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		a := ingest.New()
		if err := ingest.ReadCapture(bytes.NewReader(data), "fuzz", a); err != nil {
			return
		}
		sums(t, a.Book())
	})
}
