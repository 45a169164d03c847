package storetest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// exportFiles: what is given file by file is what an export into a directory has. Whoever takes a file may take his time: meanwhile
// everything else can be done, and what goes away meanwhile is told.
func exportFiles(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b := Random(t, 2, 200)
	SealAll(t, s, b, 100, 200)
	dir := filepath.Join(t.TempDir(), "export")
	if err := s.Export(ctx, dir); err != nil {
		t.Fatal(err)
	}
	files := 0
	err := s.ExportFiles(ctx, func(name string, size int64, in io.Reader) error {
		if err := store.CheckExportName(name); err != nil {
			t.Error(err)
		}
		got, err := io.ReadAll(in)
		if err != nil || int64(len(got)) != size {
			t.Errorf("%s: %d of %d bytes, %v", name, len(got), size, err)
		}
		if want, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not as in the directory, %v", name, err)
		}
		files++
		return nil
	})
	there, globErr := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || globErr != nil || files != len(there)+1 {
		t.Errorf("%d files and %d in the directory, %v", files, len(there), err)
	}
	stop := errors.New("no more")
	if err := s.ExportFiles(ctx, func(string, int64, io.Reader) error { return stop }); err != stop {
		t.Errorf("put says stop: %v", err)
	}
	merged, again := false, 0
	err = s.ExportFiles(ctx, func(name string, _ int64, in io.Reader) error {
		if strings.HasPrefix(name, "requests/") && !merged {
			merged = true
			if n, err := s.Compact(ctx, 1_000, 2); err != nil || n != 1 {
				t.Errorf("%d periods fewer, %v", n, err)
			}
		}
		again++
		_, err := io.Copy(io.Discard, in)
		return err
	})
	if !merged || err != nil || again != files {
		t.Errorf("merged %v while it was exported: %d files of %d, %v", merged, again, files, err)
	}
	if ps, err := s.Periods(ctx); err != nil || len(ps) != 1 {
		t.Errorf("%d periods after they were merged, %v", len(ps), err)
	}
}

// exportInto: nothing that comes from elsewhere is written where it does not belong.
func exportInto(t *testing.T, _ Open) {
	dir := filepath.Join(t.TempDir(), "export")
	put, err := store.ExportInto(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../x", "/etc/passwd", "requests", "requests/", "requests/..", "requests/../x.parquet", "requests/.x.parquet", "requests/a/b.parquet", "requests//x.parquet",
		"requests/x.txt", "other/x.parquet", "ids/x.parquet", "requests/x\x00.parquet", "./requests/x.parquet", "requests\\x.parquet", "tables.md/x", "requests/" + strings.Repeat("x", 300) + ".parquet"} {
		if err := put(name, 1, strings.NewReader("x")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"tables.md", "requests/20270115T080000-0a-1-9.parquet"} {
		if err := put(name, 1, strings.NewReader("x")); err != nil {
			t.Error(err)
		}
		if err := put(name, 1, strings.NewReader("y")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q twice: %v", name, err)
		}
	}
	if err := put("stints/x.parquet", 5, strings.NewReader("x")); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a file that is cut: %v", err)
	}
	gone := errors.New("gone")
	if err := put("skips/x.parquet", 5, io.MultiReader(strings.NewReader("x"), failing{gone})); err != gone {
		t.Errorf("a source that fails: %v", err)
	}
	if _, err := store.ExportInto(vfs.OS{}, dir); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("into a directory that is there: %v", err)
	}
	var found []string
	err = filepath.Walk(filepath.Dir(dir), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			found = append(found, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if want := "/requests/20270115T080000-0a-1-9.parquet /skips/x.parquet /stints/x.parquet /tables.md"; err != nil || strings.Join(found, " ") != want {
		t.Errorf("there are %q, want %q, %v", found, want, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// describe: what an engine incarnation is, is known from what is sealed, also after periods were merged.
func describe(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b := Random(t, 2, 200)
	e := b.Engines[0]
	if _, err := s.Describe(ctx, e.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nothing is sealed: %v", err)
	}
	SealAll(t, s, b, 100, 200)
	check := func(when string) {
		t.Helper()
		got, err := s.Describe(ctx, e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != e.ID || got.Name != e.Name || got.Version != e.Version || got.Producer != e.Producer || got.Began != e.TileStart(e.First) || len(got.Settings) != len(e.Settings) {
			t.Errorf("%s: %+v, of %+v", when, got, e)
		}
	}
	check("sealed")
	if n, err := s.Compact(ctx, 1_000, 2); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	check("merged")
	other := ledger.EngineID{Deployment: "x"}
	if _, err := s.Describe(ctx, other); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an engine of nobody: %v", err)
	}
}
