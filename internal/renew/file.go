// Package renew takes up files that are replaced while the process runs: certificates, authorities, tokens. Whoever needs one asks
// each time for what is in force.
//
// Files are read and compared, not looked at by their times: they are small, and a time says neither that a file was swapped
// behind a link nor that it was written twice within one tick.
package renew

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// mostBytes is how long a file may be: certificates and tokens are far shorter.
const mostBytes = 4 << 20

// File is a value made from one or more files that belong together. What is broken never takes the place of what worked.
type File[T any] struct {
	what  string
	paths []string
	parse func(contents ...[]byte) (T, error)
	value atomic.Pointer[T]

	// The rest is of whoever looks: the group, one look at a time.
	seen    mark // what the last look found
	judged  mark // the last that two looks in a row found
	inForce mark
}

// mark stands for contents, or for the error with which they could not be read.
type mark [sha256.Size]byte

// Open reads files for the first time, and has the group look at them from now on. what names them in errors and logs; parse gets their
// contents in the order of the paths. Its errors are to say what to do.
func Open[T any](g *Group, what string, parse func(contents ...[]byte) (T, error), paths ...string) (*File[T], error) {
	f := &File[T]{what: what, paths: paths, parse: parse}
	m, contents, err := f.read()
	if err != nil {
		return nil, err
	}
	v, err := parse(contents...)
	if err != nil {
		return nil, err
	}
	f.value.Store(&v)
	f.seen, f.judged, f.inForce = m, m, m
	g.add(f)
	return f, nil
}

// Get is the value in force.
func (f *File[T]) Get() T { return *f.value.Load() }

// read reads all files.
func (f *File[T]) read() (m mark, contents [][]byte, err error) {
	h := sha256.New()
	for _, path := range f.paths {
		b, err := readFile(path)
		if err != nil {
			err = fmt.Errorf("%s: %w; make it readable for the user that this program runs as", f.what, err)
			return sha256.Sum256([]byte(err.Error())), nil, err
		}
		fmt.Fprintf(h, "%d\n", len(b))
		h.Write(b)
		contents = append(contents, b)
	}
	return mark(h.Sum(nil)), contents, nil
}

func readFile(path string) ([]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, mostBytes+1))
	if err == nil && len(b) > mostBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, mostBytes)
	}
	return b, err
}

// outcome is what a look found.
type outcome int

const (
	same    outcome = iota
	renewed         // new contents are in force
	refused         // new contents are broken; the old ones stay in force
	mended          // the contents in force are back in the files
)

// look reads the files. What they hold counts when two looks in a row find the same: a certificate and its key are replaced one
// after the other, and a file may be half written.
func (f *File[T]) look() (outcome, error) {
	m, contents, err := f.read()
	if m != f.seen {
		f.seen = m
		return same, nil
	}
	if m == f.judged {
		return same, nil
	}
	f.judged = m
	if m == f.inForce {
		return mended, nil
	}
	var v T
	if err == nil {
		v, err = f.parse(contents...)
	}
	if err != nil {
		return refused, err
	}
	f.value.Store(&v)
	f.inForce = m
	return renewed, nil
}

func (f *File[T]) name() string { return f.what }
