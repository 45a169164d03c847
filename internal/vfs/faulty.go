package vfs

import (
	"io"
	"sync/atomic"
)

// Op is one call to the file layer, as a fault sees it.
type Op struct {
	Kind string // create, open, edit, mkdir, readdir, rename, remove, syncdir, write, read, sync, truncate
	Name string
	N    int64 // calls so far, of all kinds, this one included
}

// Faulty hands calls on to another file system, and fails those that its Fault says: the call then does nothing and returns
// the error, but a write puts half of its bytes down first. A fault may also take its time.
type Faulty struct {
	FS
	Fault func(Op) error
	calls atomic.Int64
}

// Calls is the number of calls so far.
func (f *Faulty) Calls() int64 { return f.calls.Load() }

func (f *Faulty) try(kind, name string) error {
	n := f.calls.Add(1)
	if f.Fault == nil {
		return nil
	}
	return pathError(kind, name, f.Fault(Op{kind, name, n}))
}

func (f *Faulty) file(kind, name string, open func(string) (File, error)) (File, error) {
	if err := f.try(kind, name); err != nil {
		return nil, err
	}
	in, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{in, f, name}, nil
}

// Create implements [FS].
func (f *Faulty) Create(name string) (File, error) { return f.file("create", name, f.FS.Create) }

// Open implements [FS].
func (f *Faulty) Open(name string) (File, error) { return f.file("open", name, f.FS.Open) }

// OpenEdit implements [FS].
func (f *Faulty) OpenEdit(name string) (File, error) { return f.file("edit", name, f.FS.OpenEdit) }

// Mkdir implements [FS].
func (f *Faulty) Mkdir(name string) error {
	if err := f.try("mkdir", name); err != nil {
		return err
	}
	return f.FS.Mkdir(name)
}

// ReadDir implements [FS].
func (f *Faulty) ReadDir(name string) ([]Entry, error) {
	if err := f.try("readdir", name); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(name)
}

// Rename implements [FS].
func (f *Faulty) Rename(from, to string) error {
	if err := f.try("rename", to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// Remove implements [FS].
func (f *Faulty) Remove(name string) error {
	if err := f.try("remove", name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// RemoveAll implements [FS].
func (f *Faulty) RemoveAll(name string) error {
	if err := f.try("remove", name); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

// SyncDir implements [FS].
func (f *Faulty) SyncDir(name string) error {
	if err := f.try("syncdir", name); err != nil {
		return err
	}
	return f.FS.SyncDir(name)
}

// Lock implements [FS]; it never fails by a fault.
func (f *Faulty) Lock(name string) (io.Closer, error) { return f.FS.Lock(name) }

type faultyFile struct {
	File
	f    *Faulty
	name string
}

// Write implements [io.Writer].
func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.f.try("write", f.name); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

// ReadAt implements [io.ReaderAt].
func (f *faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.f.try("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, at)
}

// Sync implements [File].
func (f *faultyFile) Sync() error {
	if err := f.f.try("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// Truncate implements [File].
func (f *faultyFile) Truncate(size int64) error {
	if err := f.f.try("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}
