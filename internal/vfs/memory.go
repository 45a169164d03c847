package vfs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Memory is a file system in memory that knows what would survive a loss of power, and no more: the content of a file as of its
// last Sync, the names of a directory as of its last SyncDir.
type Memory struct {
	mu     sync.Mutex
	root   *node
	locked map[string]bool
}

// node is a file or a directory. entries and data are what programs see, kept and safe what is on the platter.
type node struct {
	dir     bool
	entries map[string]*node
	kept    map[string]*node
	data    []byte
	safe    []byte
}

func newDir() *node { return &node{dir: true, entries: map[string]*node{}, kept: map[string]*node{}} }

// NewMemory returns an empty file system.
func NewMemory() *Memory { return &Memory{root: newDir(), locked: map[string]bool{}} }

// Crash returns the file system as it is found after the power went. What was not synced is partly there and partly not, as
// rng says: of a file a beginning of what was added, perhaps with zeros at its end; of a directory some of the new names.
func (m *Memory) Crash(rng *rand.Rand) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{root: m.root.crash(rng, map[*node]*node{}), locked: map[string]bool{}}
}

func (n *node) crash(rng *rand.Rand, done map[*node]*node) *node {
	if c := done[n]; c != nil {
		return c
	}
	c := &node{dir: n.dir}
	done[n] = c
	if !n.dir {
		c.data = bytes.Clone(n.safe)
		if len(n.data) > len(n.safe) && bytes.HasPrefix(n.data, n.safe) && rng.IntN(2) == 0 {
			more := n.data[len(n.safe):][:rng.IntN(len(n.data)-len(n.safe)+1)]
			c.data = append(c.data, more...)
			if len(more) > 0 && rng.IntN(3) == 0 { // the length was written, the last block was not
				clear(c.data[len(c.data)-rng.IntN(len(more)+1):])
			}
		}
		c.safe = bytes.Clone(c.data)
		return c
	}
	c.entries = map[string]*node{}
	names := map[string]bool{}
	for name := range n.kept {
		names[name] = true
	}
	for name := range n.entries {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from := n.kept
		if n.kept[name] != n.entries[name] && rng.IntN(2) == 0 {
			from = n.entries
		}
		if k := from[name]; k != nil {
			c.entries[name] = k.crash(rng, done)
		}
	}
	c.kept = maps.Clone(c.entries)
	return c
}

func (m *Memory) find(name string) (*node, error) {
	n := m.root
	for _, part := range parts(name) {
		if n = n.entries[part]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

func parts(name string) []string {
	return strings.FieldsFunc(filepath.Clean(name), func(r rune) bool { return r == '/' })
}

func (m *Memory) parent(name string) (*node, string, error) {
	d, err := m.find(filepath.Dir(name))
	if err != nil {
		return nil, "", err
	}
	if !d.dir {
		return nil, "", syscall.ENOTDIR
	}
	return d, filepath.Base(name), nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Create implements [FS].
func (m *Memory) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err != nil {
		return nil, pathError("create", name, err)
	}
	n := d.entries[base]
	if n == nil {
		n = &node{}
		d.entries[base] = n
	}
	n.data = nil
	return &memoryFile{m: m, n: n}, nil
}

// Open implements [FS].
func (m *Memory) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &memoryFile{m: m, n: n}, nil
}

// OpenEdit implements [FS].
func (m *Memory) OpenEdit(name string) (File, error) { return m.Open(name) }

// Mkdir implements [FS].
func (m *Memory) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range parts(name) {
		k := n.entries[part]
		if k == nil {
			k = newDir()
			n.entries[part] = k
		}
		if n = k; !n.dir {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
	}
	return nil
}

// ReadDir implements [FS].
func (m *Memory) ReadDir(name string) ([]Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	var out []Entry
	for _, k := range slices.Sorted(maps.Keys(n.entries)) {
		out = append(out, Entry{Name: k, Dir: n.entries[k].dir, Size: int64(len(n.entries[k].data))})
	}
	return out, nil
}

// Rename implements [FS].
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(from)
	if err != nil {
		return pathError("rename", from, err)
	}
	t, name, err := m.parent(to)
	if err != nil {
		return pathError("rename", to, err)
	}
	n := d.entries[base]
	if n == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	if old := t.entries[name]; old != nil && old.dir && len(old.entries) > 0 {
		return pathError("rename", to, syscall.ENOTEMPTY)
	}
	delete(d.entries, base)
	t.entries[name] = n
	return nil
}

// Remove implements [FS].
func (m *Memory) Remove(name string) error { return m.remove(name, false) }

// RemoveAll implements [FS].
func (m *Memory) RemoveAll(name string) error { return m.remove(name, true) }

func (m *Memory) remove(name string, all bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.parent(name)
	if err == nil && d.entries[base] == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		if all {
			return nil
		}
		return pathError("remove", name, err)
	}
	if !all && len(d.entries[base].entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	delete(d.entries, base)
	return nil
}

// SyncDir implements [FS].
func (m *Memory) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return pathError("sync", name, err)
	}
	n.kept = maps.Clone(n.entries)
	return nil
}

// Lock implements [FS].
func (m *Memory) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, &Held{Name: name}
	}
	m.locked[name] = true
	return unlock(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locked, name)
	}), nil
}

type unlock func()

func (u unlock) Close() error { u(); return nil }

type memoryFile struct {
	m *Memory
	n *node
}

// ReadAt implements [io.ReaderAt].
func (f *memoryFile) ReadAt(b []byte, at int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if at < 0 {
		return 0, fmt.Errorf("offset %d", at)
	}
	if at >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// Write implements [io.Writer].
func (f *memoryFile) Write(b []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.data = append(f.n.data, b...)
	return len(b), nil
}

// Size implements [File].
func (f *memoryFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

// Sync implements [File].
func (f *memoryFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.safe = bytes.Clone(f.n.data)
	return nil
}

// Truncate implements [File].
func (f *memoryFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.data = append(f.n.data[:min(int64(len(f.n.data)), size):min(int64(len(f.n.data)), size)], make([]byte, max(0, size-int64(len(f.n.data))))...)
	return nil
}

// Close implements [io.Closer].
func (f *memoryFile) Close() error { return nil }
