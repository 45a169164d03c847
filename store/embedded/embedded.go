package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// Options are how a store is opened. The zero value is good.
type Options struct {
	FS           vfs.FS // nil = the machine's
	SegmentBytes int64  // bytes of a file of the log; 0 = 64 MiB
	OpenPeriods  int    // periods whose files are kept open; 0 = 64
	Writer       string // name and version of this program, for manifests; "" = "whylate"
}

// Store is the embedded body of [store.Store].
type Store struct {
	fs     vfs.FS
	dir    string
	writer string
	lock   io.Closer
	*log
	spans *log // docs/adr/0009-spans.md

	sealing sync.Mutex // one of Seal, Compact, Retain at a time

	mu      sync.Mutex
	periods []*period // in order of engine, iterations, time
	open    int       // periods with open files
	limit   int
	clock   uint64        // of uses, to close what was used longest ago
	exports atomic.Uint64 // files that were written for exports
	closed  bool
}

var _ store.Store = (*Store)(nil)

const (
	sealedDir = "sealed"
	logDir    = "log"
	spansDir  = "spans"
	lockFile  = "LOCK"
	tmpPrefix = ".tmp-"
	oldPrefix = ".old-"
)

// Open opens the store in dir, which is made if it is not there. It fails with [store.ErrLocked] if another process has it open, and with
// [store.ErrNewer] if a newer whylate wrote it; then nothing is changed. Damaged periods are named by Periods and left out of answers.
func Open(dir string, o Options) (*Store, error) {
	f := o.FS
	if f == nil {
		f = vfs.OS{}
	}
	s := &Store{fs: f, dir: dir, writer: cmp.Or(o.Writer, "whylate"), limit: cmp.Or(o.OpenPeriods, 64)}
	for _, d := range []string{dir, s.sealed()} {
		if err := f.Mkdir(d); err != nil {
			return nil, diskError("open the store", d, err)
		}
	}
	lock, err := f.Lock(filepath.Join(dir, lockFile))
	if held, ok := errors.AsType[*vfs.Held](err); ok {
		return nil, &store.Error{Err: store.ErrLocked, What: "open the store", Where: dir, Value: fmt.Sprintf("process %d has it open", held.PID), Remedy: "ask that server (leave --data-dir out, or give --server), stop it, or name another data directory"}
	}
	if err != nil {
		return nil, diskError("open the store", dir, err)
	}
	s.lock = lock
	if err := s.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if s.log, err = openLog(f, filepath.Join(dir, logDir), cmp.Or(o.SegmentBytes, 64<<20)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if s.spans, err = openLog(f, filepath.Join(dir, spansDir), cmp.Or(o.SegmentBytes, 64<<20)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := syncAbove(f, dir); err != nil {
		return nil, errors.Join(diskError("open the store", dir, err), lock.Close())
	}
	return s, nil
}

// Spans implements [store.Store].
func (s *Store) Spans() store.Log { return s.spans }

// syncAbove syncs a directory and those above it: the names of what was just made must be there after a crash, or nothing below them
// is. One that we may not read was not made by us.
func syncAbove(f vfs.FS, dir string) error {
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		err := f.SyncDir(dir)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || dir == filepath.Dir(dir) {
			return err
		}
	}
}

func (s *Store) sealed() string { return filepath.Join(s.dir, sealedDir) }

// load finds the sealed periods, and sweeps what a crash left half done.
func (s *Store) load() error {
	list, err := s.fs.ReadDir(s.sealed())
	if err != nil {
		return diskError("open the store", s.sealed(), err)
	}
	var found []*period
	for _, e := range list {
		path := filepath.Join(s.sealed(), e.Name)
		if strings.HasPrefix(e.Name, ".") || !e.Dir {
			continue
		}
		m, err := readManifest(s.fs, path)
		if errors.Is(err, store.ErrNewer) {
			return err
		}
		p := &period{s: s, dir: path, m: m}
		if err != nil {
			p.m.ID, p.damaged = e.Name, err.Error()
		}
		found = append(found, p)
	}
	for _, e := range list { // only now that nothing newer was met
		if strings.HasPrefix(e.Name, tmpPrefix) || strings.HasPrefix(e.Name, oldPrefix) {
			if err := s.fs.RemoveAll(filepath.Join(s.sealed(), e.Name)); err != nil {
				return diskError("sweep the store", e.Name, err)
			}
		}
	}
	// A merge that was not swept up: what it replaces is in it.
	gone := map[string]bool{}
	for _, p := range found {
		for _, r := range p.m.Replaces {
			gone[r.ID] = true
		}
	}
	for _, p := range found {
		if !gone[p.m.ID] {
			s.periods = append(s.periods, p)
		} else if err := s.unlink(p); err != nil {
			return err
		}
	}
	for _, p := range s.periods { // files of a retention that was not swept up
		for _, name := range p.m.Dropped {
			_ = s.fs.Remove(filepath.Join(p.dir, name+".parquet"))
		}
	}
	s.sort()
	return nil
}

func (s *Store) sort() {
	slices.SortStableFunc(s.periods, func(a, b *period) int {
		return cmp.Or(cmp.Compare(engineKey(a.m.Engine), engineKey(b.m.Engine)), cmp.Compare(a.m.First, b.m.First), cmp.Compare(a.m.From, b.m.From), cmp.Compare(a.m.ID, b.m.ID))
	})
}

// unlink removes a period's directory, as soon as nobody holds it any more; it is out of sight at once.
func (s *Store) unlink(p *period) error {
	p.mu.Lock()
	p.doomed = true
	held := p.held > 0
	p.mu.Unlock()
	if held {
		return nil
	}
	s.forget(p)
	old := filepath.Join(s.sealed(), oldPrefix+filepath.Base(p.dir))
	if err := s.fs.RemoveAll(old); err != nil {
		return diskError("remove a period", p.m.ID, err)
	}
	if err := s.fs.Rename(p.dir, old); err != nil {
		return diskError("remove a period", p.m.ID, err)
	}
	if err := s.fs.SyncDir(s.sealed()); err != nil {
		return diskError("remove a period", p.m.ID, err)
	}
	if err := s.fs.RemoveAll(old); err != nil {
		return diskError("remove a period", p.m.ID, err)
	}
	return nil
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	periods := s.periods
	s.mu.Unlock()
	s.sealing.Lock()
	defer s.sealing.Unlock()
	for _, p := range periods {
		s.forget(p)
	}
	s.log.close()
	s.spans.close()
	return s.lock.Close()
}

// all returns the periods as they are now.
func (s *Store) all(what string) ([]*period, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, closedError(what)
	}
	return slices.Clone(s.periods), nil
}

// Periods implements [store.Sealed].
func (s *Store) Periods(context.Context) ([]store.PeriodInfo, error) {
	ps, err := s.all("list the periods")
	if err != nil {
		return nil, err
	}
	out := make([]store.PeriodInfo, 0, len(ps))
	for _, p := range ps {
		out = append(out, p.info())
	}
	return out, nil
}

// ofEngine returns the periods of one engine incarnation, in order.
func ofEngine(ps []*period, id ledger.EngineID) []*period {
	var out []*period
	for _, p := range ps {
		if p.m.Engine == id {
			out = append(out, p)
		}
	}
	return out
}
