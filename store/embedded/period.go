package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/whylate/whylate/store"
)

// period is one sealed directory. Its files are opened when they are first asked and closed when others are asked more.
type period struct {
	s   *Store
	dir string
	m   manifest // never changes: what changes on disk becomes another period

	mu      sync.RWMutex // held for reading while files are in use
	tables  map[string]*table
	used    uint64 // by Store.clock
	damaged string // what is wrong with it: it is left out of answers
	gone    bool   // merged or removed: whoever still holds it must ask again
	held    int    // by exports: it is not removed as long
	doomed  bool   // to be removed when nobody holds it
}

// hold keeps a period on the disk until release, whatever it is merged into or replaced by meanwhile.
func (p *period) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held++
}

// release gives up a hold.
func (p *period) release() error {
	p.mu.Lock()
	p.held--
	doomed := p.doomed && p.held == 0 && !p.gone
	p.mu.Unlock()
	if doomed {
		return p.s.unlink(p)
	}
	return nil
}

// info describes the period.
func (p *period) info() store.PeriodInfo {
	p.mu.RLock()
	defer p.mu.RUnlock()
	i := p.m.info()
	i.Damaged = p.damaged
	return i
}

// errGone tells a reader that the period was merged or removed while it looked.
var errGone = errors.New("the period is not there any more")

// use runs do with the period's tables open. An error of do about bytes marks the period as damaged, and is returned as
// [store.ErrCorrupt]; a table whose retention is over is [store.ErrExpired].
func (p *period) use(names []string, do func(t map[string]*table) error) error {
	if err := p.ensure(names); err != nil {
		return err
	}
	p.mu.RLock()
	if p.gone {
		p.mu.RUnlock()
		return errGone
	}
	if p.damaged != "" {
		defer p.mu.RUnlock()
		return p.corrupt()
	}
	for _, n := range names {
		if p.tables[n] == nil && !p.m.lacks(n) { // closed between ensure and here
			p.mu.RUnlock()
			return p.use(names, do)
		}
	}
	err := do(p.tables)
	p.mu.RUnlock()
	if err == nil || isRefusal(err) {
		return err
	}
	p.mu.Lock()
	if p.gone {
		defer p.mu.Unlock()
		return errGone
	}
	p.damaged = fmt.Sprintf("%s: %v", p.m.ID, err)
	err = p.corrupt()
	p.mu.Unlock()
	return err
}

// isRefusal reports whether an error is about the question and not about the bytes.
func isRefusal(err error) bool {
	for _, e := range []error{store.ErrNotFound, store.ErrExpired, store.ErrCorrupt, store.ErrInvalid, errStop} {
		if errors.Is(err, e) {
			return true
		}
	}
	return isContext(err)
}

func (p *period) corrupt() error {
	return &store.Error{Err: store.ErrCorrupt, What: "read a sealed period", Where: p.dir, Value: p.damaged, Remedy: "the rest of the store answers without it; restore it from a copy, or delete its directory"}
}

// ensure opens the named tables.
func (p *period) ensure(names []string) error {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return errGone
	}
	if p.damaged != "" {
		defer p.mu.Unlock()
		return p.corrupt()
	}
	first := len(p.tables) == 0
	for _, n := range names {
		if p.tables[n] != nil || p.m.lacks(n) {
			continue
		}
		if slices.Contains(p.m.Dropped, n) {
			p.mu.Unlock()
			return &store.Error{Err: store.ErrExpired, What: "read a sealed period", Where: p.m.ID, Value: "table " + n, Remedy: "its requests are still listed; a longer retention of detail keeps what comes"}
		}
		want, ok := p.m.Files[n]
		path := filepath.Join(p.dir, n+".parquet")
		t, err := openTable(p.s.fs, path, want)
		if err == nil && !ok {
			err = fs.ErrNotExist
		}
		if err != nil {
			p.damaged = fmt.Sprintf("%s: %v", n+".parquet", err)
			err = p.corrupt()
			p.mu.Unlock()
			return err
		}
		if p.tables == nil {
			p.tables = map[string]*table{}
		}
		p.tables[n] = t
	}
	p.mu.Unlock()
	p.s.touch(p, first)
	return nil
}

// touch notes the use of a period, and closes the files of the one that was used longest ago if too many are open.
func (s *Store) touch(p *period, opened bool) {
	s.mu.Lock()
	s.clock++
	p.used = s.clock
	var oldest *period
	if opened {
		if s.open++; s.open > s.limit {
			for _, q := range s.periods {
				if q != p && q.used != 0 && (oldest == nil || q.used < oldest.used) {
					oldest = q
				}
			}
		}
	}
	if oldest != nil {
		oldest.used = 0
		s.open--
	}
	s.mu.Unlock()
	if oldest != nil {
		oldest.mu.Lock()
		oldest.closeTables()
		oldest.mu.Unlock()
	}
}

func (p *period) closeTables() {
	for _, t := range p.tables {
		t.close()
	}
	p.tables = nil
}

// forget closes a period's files for good: it is no longer there.
func (s *Store) forget(p *period) {
	p.mu.Lock()
	p.gone = true
	p.closeTables()
	p.mu.Unlock()
	s.mu.Lock()
	if p.used != 0 {
		p.used = 0
		s.open--
	}
	s.mu.Unlock()
}
