package embedded

import (
	"errors"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/storetest"
)

// FuzzLog opens a log of any bytes: it is read as far as it makes sense, and appending goes on behind it.
func FuzzLog(f *testing.F) {
	memory := vfs.NewMemory()
	s, err := Open("/x/data", Options{FS: memory})
	if err != nil {
		f.Fatal(err)
	}
	for n := uint64(1); n <= 3; n++ {
		if _, err := s.Append(ctx, []store.Record{storetest.Notice("a", n), storetest.Notice("b", n)}); err != nil {
			f.Fatal(err)
		}
	}
	path := s.log.path(1)
	s.Close()
	whole, err := vfs.ReadFile(memory, path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, []byte(`{"begin":0,"kept":{"a#1":2}}`))
	f.Add(whole[:len(whole)/2], []byte("{"))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, b, kept []byte) {
		m := vfs.NewMemory()
		if err := m.Mkdir("/x/data/log"); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{path: b, "/x/data/log/" + keptFile: kept} {
			if err := vfs.WriteFile(m, name, content); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open("/x/data", Options{FS: m})
		if err != nil {
			if !errors.Is(err, store.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		defer s.Close()
		before, _ := storetest.Replayed(t, s, store.Position{})
		if _, err := s.Append(ctx, []store.Record{storetest.Notice("new", 1)}); err != nil {
			t.Fatal(err)
		}
		after, _ := storetest.Replayed(t, s, store.Position{})
		if len(after) == 0 || !strings.HasPrefix(after[len(after)-1], "new 1") && !strings.Contains(strings.Join(after, "\n"), "new 1") {
			t.Fatalf("before %v, after %v", before, after)
		}
	})
}

// FuzzManifest reads a manifest of any bytes: it is right, or refused.
func FuzzManifest(f *testing.F) {
	b, err := manifest{Format: format, ID: "x", Files: map[string]fileInfo{"ids": {Rows: 1}}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format": 2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := vfs.NewMemory()
		if err := m.Mkdir("/p"); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(m, "/p/"+manifestFile, b); err != nil {
			t.Fatal(err)
		}
		got, err := readManifest(m, "/p")
		if err == nil && got.sum() != got.Checksum || err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNewer) {
			t.Fatal(err)
		}
	})
}
