package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/vfs"
)

// journal keeps what is told from outside and is few enough to be read whole: one JSON object a line, each under an id, the newest of them.
type journal[T any] struct {
	fs   vfs.FS
	dir  string
	name string // of its file
	most int    // how many are kept; the oldest go first
	id   func(*T) string

	mu   sync.Mutex
	list []T // in the order in which they were told
	ids  map[string]int
	file vfs.File
}

// openJournal opens a file of a data directory, and makes it where there is none. A last line that was not written whole is cut off: whoever told
// it was not answered.
func openJournal[T any](disk vfs.FS, dir, name string, most int, id func(*T) string) (*journal[T], error) {
	j := &journal[T]{fs: disk, dir: dir, name: name, most: most, id: id, ids: map[string]int{}}
	path := filepath.Join(dir, name)
	if err := disk.Mkdir(dir); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b, err := vfs.ReadFile(disk, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	whole := bytes.LastIndexByte(b, '\n') + 1
	for i, line := range bytes.Split(b[:whole], []byte("\n")) {
		var v T
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("%s line %d cannot be read: %w; mend or remove the line", path, i+1, err)
		}
		j.list = append(j.list, v)
	}
	return j, j.rewrite()
}

// rewrite writes the newest anew, makes them durable before their file takes the old one's place, and leaves it open at its end.
func (j *journal[T]) rewrite() (err error) {
	j.list = slices.Clone(j.list[max(0, len(j.list)-j.most):])
	path := filepath.Join(j.dir, j.name)
	draft := path + ".new"
	f, err := j.fs.Create(draft)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	j.ids = map[string]int{}
	for i := range j.list {
		j.ids[j.id(&j.list[i])] = i
		line, err := json.Marshal(j.list[i])
		if err != nil {
			return errors.Join(err, f.Close())
		}
		b.Write(append(line, '\n'))
	}
	if _, err = f.Write(b.Bytes()); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = j.fs.Rename(draft, path)
	}
	if err == nil {
		err = j.fs.SyncDir(j.dir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if j.file != nil {
		err = j.file.Close()
	}
	j.file = f
	return err
}

// tell keeps those whose id is not known, and returns which of the list they were, when they are durable. Of one id the first is kept.
func (j *journal[T]) tell(list ...T) (fresh []int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b bytes.Buffer
	coming := map[string]bool{}
	for i := range list {
		id := j.id(&list[i])
		if _, ok := j.ids[id]; ok || coming[id] {
			continue
		}
		line, err := json.Marshal(list[i])
		if err != nil {
			return nil, err
		}
		coming[id] = true
		fresh = append(fresh, i)
		b.Write(append(line, '\n'))
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	if j.file == nil {
		return nil, fmt.Errorf("%s: an earlier line could not be written; restart the server when the disk is well", j.name)
	}
	if _, err = j.file.Write(b.Bytes()); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		err = errors.Join(err, j.file.Close())
		j.file = nil // what stands at its end is not known; the next start cuts it off
		return nil, err
	}
	for _, i := range fresh {
		j.ids[j.id(&list[i])] = len(j.list)
		j.list = append(j.list, list[i])
	}
	if len(j.list) >= 2*j.most {
		if err := j.rewrite(); err != nil { // what was told is durable; what is too much stays until the next time
			return fresh, nil
		}
	}
	return fresh, nil
}

// get is what was told under an id.
func (j *journal[T]) get(id string) (v T, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k, ok := j.ids[id]
	if ok {
		v = j.list[k]
	}
	return v, ok
}

// all is what was told, the oldest first.
func (j *journal[T]) all() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.list)
}

func (j *journal[T]) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
