package agent

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/whylate/whylate/wire"
)

func TestLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "key")
	var all sync.WaitGroup
	keys := make([][]byte, 8)
	for i := range keys {
		all.Go(func() {
			var err error
			if keys[i], err = LoadKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, k := range keys {
		if len(k) != keySize || !bytes.Equal(k, keys[0]) {
			t.Errorf("key %x and %x", k, keys[0])
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if found, _ := os.ReadDir(filepath.Dir(path)); len(found) != 1 {
		t.Errorf("left: %v", found)
	}
	for _, text := range []string{"", "abc", "zz" + string(bytes.Repeat([]byte("0"), 62))} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(path); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}

// TestRawHashesNeverLeave looks for raw block hashes in all that the agent sends and spools.
func TestRawHashesNeverLeave(t *testing.T) {
	raw := []uint64{0x1122334455667788, 0xA1B2C3D4E5F60718, 0xFEEDFACECAFEBEEF}
	contains := func(b []byte) bool {
		for _, h := range raw {
			if bytes.Contains(b, binary.LittleEndian.AppendUint64(nil, h)) {
				return true
			}
		}
		return false
	}
	h := newHost(t)
	h.tune = func(s *Settings) { s.MemoryLimit = 1 } // everything goes through the spool
	h.startAgent()
	e := h.startEngine(8 << 10)
	e.put(&wire.Hashes{Time: 1, Handle: 5, First: 2, Hashes: raw})
	e.put(&wire.Cache{Time: 2, Kind: wire.CacheFilled, Handle: 5, First: 4, Blocks: 2, Hashes: raw[:2]})
	e.write(40) // so that the ring is half full, and its data are spooled
	h.until("it is spooled", func() bool { return h.agent.Counts().Spool > 0 })
	files, _ := filepath.Glob(filepath.Join(h.spool, "*.wlc"))
	for _, path := range files {
		r, err := wire.OpenCapture(path)
		if err != nil {
			t.Fatal(err)
		}
		for {
			record, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if contains(record.Frame.Raw) {
				t.Errorf("%s holds a raw hash in frame %d", path, record.Frame.Sequence)
			}
		}
		r.Close()
	}
	h.startServer()
	e.whole()
	var hashes wire.Hashes
	var cache wire.Cache
	for _, k := range h.back.records[e.name] {
		if contains(k.frame.Raw) {
			t.Errorf("frame %d left with a raw hash", k.frame.Sequence)
		}
		switch k.frame.Type {
		case wire.TypeHashes:
			if err := wire.Decode(k.frame, &hashes); err != nil {
				t.Fatal(err)
			}
		case wire.TypeCache:
			if err := wire.Decode(k.frame, &cache); err != nil {
				t.Fatal(err)
			}
		}
	}
	if hashes.Handle != 5 || hashes.First != 2 || len(hashes.Hashes) != 3 || cache.Kind != wire.CacheFilled || cache.Blocks != 2 || cache.Time != 2 || len(cache.Hashes) != 2 {
		t.Fatalf("%+v, %+v", hashes, cache)
	}
	for i, h := range cache.Hashes {
		if h != hashes.Hashes[i] || h == raw[i] {
			t.Errorf("hash %d is %x here and %x there", i, h, hashes.Hashes[i])
		}
	}
	if other := newKeyer(bytes.Repeat([]byte{8}, keySize)); other.hash(raw[0]) == hashes.Hashes[0] {
		t.Error("another key gives the same")
	}
}

// TestWhatCannotBeKeyedStays withholds frames that may carry hashes in a form that this agent cannot read.
func TestWhatCannotBeKeyedStays(t *testing.T) {
	k := newKeyer(make([]byte, keySize))
	frame := func(f wire.Frame) wire.Frame {
		b, err := wire.AppendFrame(nil, f)
		if err != nil {
			t.Fatal(err)
		}
		f, _, err = wire.ParseFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, f := range []wire.Frame{
		{Sequence: 1, Type: 99, Body: make([]byte, 20)},
		{Sequence: 1, Type: wire.TypeHashes, Body: []byte{1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255}},
	} {
		if b, err := k.frame(frame(f)); err == nil {
			t.Errorf("type %d leaves as % x", f.Type, b)
		}
	}
	// What a newer version may have appended is not known to be no hash either.
	b, err := wire.Append(nil, 1, &wire.Hashes{Handle: 1, Hashes: []uint64{7}})
	if err != nil {
		t.Fatal(err)
	}
	f, _, _ := wire.ParseFrame(b)
	f.Body = append(bytes.Clone(f.Body), "secret!!"...)
	if out, err := k.frame(frame(f)); err != nil || bytes.Contains(out, []byte("secret")) {
		t.Errorf("leaves as %q, %v", out, err)
	}
}

// TestWithheldFramesAreGaps sends a gap instead of a frame that stays.
func TestWithheldFramesAreGaps(t *testing.T) {
	h := newHost(t)
	h.startServer()
	h.startAgent()
	e := h.startEngine(ringSize)
	e.write(2)
	e.whole()
	s := h.agent.sources.byName[e.name]
	b, err := wire.AppendFrame(nil, wire.Frame{Sequence: 4, Type: 99, Body: make([]byte, 8)})
	if err != nil {
		t.Fatal(err)
	}
	f, _, _ := wire.ParseFrame(b)
	h.agent.intake.now = h.now
	if err := h.agent.intake.Frame(s.number, f); err != nil {
		t.Fatal(err)
	}
	h.until("the gap is there", func() bool { return h.back.reached(e.name, 4) })
	if n := h.back.tiles(t, e.name, 4); n != 1 || h.agent.Counts().Withheld != 1 {
		t.Errorf("%d missing, %+v", n, h.agent.Counts())
	}
}
