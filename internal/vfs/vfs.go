// Package vfs is the file layer under the store: the few operations that durability depends on, so that tests can take the
// power away ([Memory]), fill the disk or break it ([Faulty]) at any of them.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FS is a file system. Names are paths as the system understands them. What was written survives a loss of power only after
// [File.Sync], and a name that was made, renamed or removed only after [FS.SyncDir] of its directory.
type FS interface {
	Create(name string) (File, error)   // for writing and reading; a file of that name is emptied
	Open(name string) (File, error)     // for reading
	OpenEdit(name string) (File, error) // for truncating what is there
	Mkdir(name string) error            // with its parents; one that is there is no error
	ReadDir(name string) ([]Entry, error)
	Rename(from, to string) error
	Remove(name string) error // a file or an empty directory
	RemoveAll(name string) error
	SyncDir(name string) error
	Lock(name string) (io.Closer, error) // fails with [Held] if another process has it
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.Writer // at the end of what was written
	io.Closer
	Size() (int64, error)
	Sync() error
	Truncate(size int64) error
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Dir  bool
	Size int64 // bytes, of a file
}

// Held says that a lock is taken.
type Held struct {
	Name string
	PID  int // who holds it; 0 = not known
}

func (h *Held) Error() string { return fmt.Sprintf("%s is held by process %d", h.Name, h.PID) }

// OS is the file system of the machine.
type OS struct{}

type osFile struct{ *os.File }

// Size is the file's length in bytes.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func opened(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Create implements [FS].
func (OS) Create(name string) (File, error) {
	return opened(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600))
}

// Open implements [FS].
func (OS) Open(name string) (File, error) { return opened(os.Open(name)) }

// OpenEdit implements [FS].
func (OS) OpenEdit(name string) (File, error) { return opened(os.OpenFile(name, os.O_RDWR, 0)) }

// Mkdir implements [FS].
func (OS) Mkdir(name string) error { return os.MkdirAll(name, 0o700) }

// ReadDir implements [FS].
func (OS) ReadDir(name string) ([]Entry, error) {
	list, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, d := range list {
		e := Entry{Name: d.Name(), Dir: d.IsDir()}
		if info, err := d.Info(); err == nil {
			e.Size = info.Size()
		}
		out = append(out, e)
	}
	return out, nil
}

// Rename implements [FS].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements [FS].
func (OS) Remove(name string) error { return os.Remove(name) }

// RemoveAll implements [FS].
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// SyncDir implements [FS].
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock implements [FS] with flock, which the system lets go of when the process dies, however it dies.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		b, _ := io.ReadAll(f)
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &fs.PathError{Op: "flock", Path: name, Err: err}
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return nil, &Held{Name: name, PID: pid}
	}
	// Who holds it is for people; the lock itself is the system's.
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// ReadFile reads a whole file.
func ReadFile(f FS, name string) ([]byte, error) {
	in, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	size, err := in.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if n, err := in.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, err
	}
	return b, nil
}

// WriteFile puts b under name so that after a loss of power there is either the old content or the new, never a part.
func WriteFile(f FS, name string, b []byte) error {
	part := name + ".part"
	out, err := f.Create(part)
	if err != nil {
		return err
	}
	_, err = out.Write(b)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		_ = f.Remove(part)
		return err
	}
	if err := f.Rename(part, name); err != nil {
		_ = f.Remove(part)
		return err
	}
	return f.SyncDir(filepath.Dir(name))
}
