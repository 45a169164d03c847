package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/whylate/whylate/internal/vfs"
)

// TablesFile is the name of the description of the tables in an export.
const TablesFile = "tables.md"

// Put takes one file of an export: its name (TABLE/PERIOD.parquet, or [TablesFile]), its size and what is in it, which is to be read
// before Put returns.
type Put func(name string, size int64, in io.Reader) error

// Exporter gives what is sealed away, file by file.
type Exporter interface {
	// ExportFiles gives put everything that is sealed as plain Parquet, and the description of the columns. It holds up nobody
	// while put takes its time, and needs room on the disk for one file at a time. A damaged period is left out, and
	// the error at the end names it; an error of put ends the export and is returned.
	ExportFiles(ctx context.Context, put Put) error
}

var periodName = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z._-]{0,199}$`)

// CheckExportName refuses what is no name of a file of an export: it may come from elsewhere, and is to become a path.
func CheckExportName(name string) error {
	if name == TablesFile {
		return nil
	}
	table, file, _ := strings.Cut(name, "/")
	period, parquet := strings.CutSuffix(file, ".parquet")
	for _, t := range Tables {
		if t.Name == table && !t.Private && parquet && periodName.MatchString(period) {
			return nil
		}
	}
	return &Error{Err: ErrInvalid, What: "export", Where: fmt.Sprintf("%.100q", name), Value: "no name of a file of an export", Remedy: "look at who answers there, and whether it is newer than this program"}
}

// ExportInto returns what puts the files of an export into a new directory. It is made with the first of them.
func ExportInto(f vfs.FS, dir string) (Put, error) {
	if list, err := f.ReadDir(dir); err == nil && len(list) > 0 {
		return nil, &Error{Err: ErrInvalid, What: "export", Where: dir, Value: "it is there and not empty", Remedy: "name a new directory"}
	}
	failed := func(where string, err error) error {
		return &Error{Err: ErrInvalid, What: "export", Where: where, Cause: err, Remedy: "look at the disk that is exported to"}
	}
	there := map[string]bool{}
	return func(name string, size int64, in io.Reader) error {
		if err := CheckExportName(name); err != nil {
			return err
		}
		if there[name] {
			return &Error{Err: ErrInvalid, What: "export", Where: name, Value: "it comes twice", Remedy: "look at who answers there"}
		}
		for _, t := range Tables { // not before there is something to put: an export that is refused leaves nothing behind
			if !t.Private && len(there) == 0 {
				if err := f.Mkdir(filepath.Join(dir, t.Name)); err != nil {
					return failed(dir, err)
				}
			}
		}
		there[name] = true
		path := filepath.Join(dir, filepath.FromSlash(name))
		to, err := f.Create(path)
		if err != nil {
			return failed(path, err)
		}
		source := &reading{in: in}
		n, err := io.Copy(to, source)
		closed := errors.Join(to.Sync(), to.Close())
		switch {
		case source.err != nil:
			return source.err
		case err != nil || closed != nil:
			return failed(path, errors.Join(err, closed))
		case n != size:
			return &Error{Err: ErrCorrupt, What: "export", Where: name, Value: fmt.Sprintf("%d of %d bytes came", n, size), Remedy: "export again"}
		}
		return nil
	}, nil
}

// reading tells an error of what is read from one of what is written.
type reading struct {
	in  io.Reader
	err error
}

func (r *reading) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}
