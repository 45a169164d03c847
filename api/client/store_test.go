package client_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
)

// A server that is not one of ours, or not a good one, cannot write where it likes, nor pass off a part as the whole.
func TestExportOfAHostileServer(t *testing.T) {
	file := func(name, text string) func(*tar.Writer) {
		return func(w *tar.Writer) {
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o600})
			io.WriteString(w, text)
		}
	}
	special := func(kind byte, name, link string) func(*tar.Writer) {
		return func(w *tar.Writer) { w.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Linkname: link}) }
	}
	end := func(e api.ExportEnd) func(*tar.Writer) {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return file(api.ExportEndFile, string(b))
	}
	good := file("requests/p1.parquet", "rows")
	for name, c := range map[string]struct {
		files []func(*tar.Writer)
		cut   int // bytes that are left out at the end
		says  string
		as    any
	}{
		"whole":                {[]func(*tar.Writer){good, end(api.ExportEnd{Files: 1})}, 0, "", nil},
		"up":                   {[]func(*tar.Writer){file("../evil", "x")}, 0, "no name of a file of an export", nil},
		"up in a table":        {[]func(*tar.Writer){file("requests/../../evil.parquet", "x")}, 0, "no name of a file of an export", nil},
		"absolute":             {[]func(*tar.Writer){file("/tmp/evil.parquet", "x")}, 0, "no name of a file of an export", nil},
		"hidden":               {[]func(*tar.Writer){file("requests/.evil.parquet", "x")}, 0, "no name of a file of an export", nil},
		"another table":        {[]func(*tar.Writer){file("passwords/x.parquet", "x")}, 0, "no name of a file of an export", nil},
		"a link":               {[]func(*tar.Writer){special(tar.TypeSymlink, "requests/p1.parquet", "/etc/passwd")}, 0, "is no file", nil},
		"a hard link":          {[]func(*tar.Writer){special(tar.TypeLink, "requests/p1.parquet", "/etc/passwd")}, 0, "is no file", nil},
		"a directory":          {[]func(*tar.Writer){special(tar.TypeDir, "requests", "")}, 0, "is no file", nil},
		"a device":             {[]func(*tar.Writer){special(tar.TypeChar, "requests/p1.parquet", "")}, 0, "is no file", nil},
		"twice":                {[]func(*tar.Writer){good, good}, 0, "it comes twice", nil},
		"no end":               {[]func(*tar.Writer){good}, 0, "broke off", nil},
		"an end of fewer":      {[]func(*tar.Writer){good, end(api.ExportEnd{Files: 2})}, 0, "1 files of an export of 2", nil},
		"an end that is wrong": {[]func(*tar.Writer){good, file(api.ExportEndFile, "{")}, 0, "sends no export", nil},
		"behind the end":       {[]func(*tar.Writer){end(api.ExportEnd{}), good}, 0, "behind the end", nil},
		"an error at the end": {[]func(*tar.Writer){good, end(api.ExportEnd{Files: 1, Error: &api.Problem{Code: api.CodeDamaged, Message: "p2 is damaged", What: "p2 is damaged"}})}, 0,
			"p2 is damaged", new(*api.Damaged)},
		"cut in a file": {[]func(*tar.Writer){file("requests/p1.parquet", strings.Repeat("x", 5000))}, 3000, "broke off", nil},
		"no tar":        {nil, -1, "sends no export", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, f := range c.files {
				f(w)
			}
			w.Close()
			body := b.Bytes()
			if c.cut < 0 {
				body = []byte(strings.Repeat("this is no archive ", 100))
			} else {
				body = body[:len(body)-c.cut]
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-tar")
				w.Write(body)
			}))
			defer srv.Close()
			top := t.TempDir()
			put, err := store.ExportInto(vfs.OS{}, filepath.Join(top, "a", "b", "out"))
			if err != nil {
				t.Fatal(err)
			}
			err = dial(t, srv.URL, client.Options{}).ExportStore(context.Background(), put)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, must say %q", err, c.says)
			}
			if c.as != nil && !errors.As(err, c.as) {
				t.Errorf("%T is no %T", err, c.as)
			}
			err = filepath.Walk(top, func(path string, info os.FileInfo, err error) error {
				if err == nil && !info.IsDir() && (!info.Mode().IsRegular() || path != filepath.Join(top, "a", "b", "out", "requests", "p1.parquet")) {
					t.Errorf("it wrote %s", path)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExportSaysWhoFailed(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-tar")
		a := tar.NewWriter(w)
		a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "requests/p1.parquet", Size: 4, Mode: 0o600})
		io.WriteString(a, "rows")
		a.Flush()
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	full := errors.New("the disk is full")
	if err := dial(t, srv.URL, client.Options{}).ExportStore(context.Background(), func(string, int64, io.Reader) error { return full }); err != full {
		t.Errorf("what put says: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err := dial(t, srv.URL, client.Options{}).ExportStore(ctx, func(string, int64, io.Reader) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the caller's own end: %v", err)
	}
}
