package embedded

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// errStop ends a walk early; it is no error.
var errStop = errors.New("stop")

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Seal implements [store.Sealed].
func (s *Store) Seal(ctx context.Context, p *store.Period) (store.PeriodInfo, error) {
	if err := p.Check(); err != nil {
		return store.PeriodInfo{}, err
	}
	s.sealing.Lock()
	defer s.sealing.Unlock()
	ps, err := s.all("seal")
	if err != nil {
		return store.PeriodInfo{}, err
	}
	q := *p
	var b before
	if p.Engine != nil {
		earlier := ofEngine(ps, p.Engine.ID)
		for _, old := range earlier {
			if old.m.First == 0 || p.First == 0 {
				continue
			}
			if old.m.First == p.First && old.m.Last == p.Last {
				return old.info(), nil
			}
			if old.m.First <= p.Last && p.First <= old.m.Last {
				return store.PeriodInfo{}, &store.Error{Err: store.ErrInvalid, What: "seal", Where: p.Engine.ID.String(),
					Value: fmt.Sprintf("iterations %d to %d, of which %d to %d are sealed", p.First, p.Last, old.m.First, old.m.Last), Remedy: "seal what comes after them"}
			}
		}
		b = earlierOf(earlier)
		if q.Requests, err = s.unsealed(ctx, earlier, p); err != nil {
			return store.PeriodInfo{}, err
		}
	}
	c, err := contentOf(&q, b)
	if err != nil {
		return store.PeriodInfo{}, err
	}
	m := manifest{First: p.First, Last: p.Last, Batch: p.Batch}
	if p.Engine != nil {
		m.Engine = p.Engine.ID
	}
	if p.Copied != nil {
		p.Copied()
	}
	return s.publish(ctx, c, m)
}

// earlierOf is what is sealed of an engine so far.
func earlierOf(ps []*period) before {
	b := before{firsts: map[string]uint64{}}
	for _, p := range ps {
		if p.m.Began != 0 && (b.began == 0 || p.m.Began < b.began) {
			b.began = p.m.Began
		}
		for what, n := range p.m.Firsts {
			if old, ok := b.firsts[what]; !ok || n < old {
				b.firsts[what] = n
			}
		}
	}
	return b
}

// unsealed leaves out requests that a period before has already: after a restart the log tells again of some that were sealed. Only
// those that were over before this period begins can be among them.
func (s *Store) unsealed(ctx context.Context, earlier []*period, p *store.Period) ([]*ledger.Request, error) {
	var out []*ledger.Request
	for _, r := range p.Requests {
		var leave uint64
		for _, q := range r.Sequences {
			_, l := store.Span(q)
			leave = max(leave, l)
		}
		if p.First != 0 && leave >= p.First || len(r.Sequences) == 0 {
			out = append(out, r)
			continue
		}
		known, err := has(ctx, earlier, r.Sequences[0].ID)
		if err != nil {
			return nil, err
		}
		if !known {
			out = append(out, r)
		}
	}
	return out, nil
}

// publish writes a period beside its place and renames it into it. Either all of it is there afterwards or nothing.
func (s *Store) publish(ctx context.Context, c *content, m manifest) (store.PeriodInfo, error) {
	m.Format, m.Writer = format, s.writer
	for i, r := range c.sequences {
		if r.From != 0 && (m.Earliest == 0 || r.From < m.Earliest) {
			m.Earliest = c.sequences[i].From
		}
		m.Latest = max(m.Latest, r.To)
	}
	for _, r := range c.engines {
		if m.Began == 0 || r.Began != 0 && uint64(r.Began) < m.Began {
			m.Began = uint64(r.Began)
		}
		if err := mergeFirsts(&m.Firsts, r.Firsts); err != nil {
			return store.PeriodInfo{}, err
		}
	}
	m.From, m.To = c.span()
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d %d %d %v", engineKey(m.Engine), m.First, m.Last, m.From, m.Replaces)
	if m.Batch != 0 {
		fmt.Fprintf(h, " %d", m.Batch)
	}
	m.ID = s.freeID(fmt.Sprintf("%s-%08x-%d-%d", time.Unix(0, m.From).UTC().Format("20060102T150405"), h.Sum32(), m.First, m.Last))
	final := filepath.Join(s.sealed(), m.ID)
	tmp := filepath.Join(s.sealed(), tmpPrefix+m.ID)
	fail := func(err error) (store.PeriodInfo, error) {
		_ = s.fs.RemoveAll(tmp) // if it stays, it is swept at the next open
		if isContext(err) {
			return store.PeriodInfo{}, err
		}
		return store.PeriodInfo{}, diskError("seal", final, err)
	}
	for _, left := range []string{tmp, final} { // by a publication that failed: a period of that name is not known
		if err := s.fs.RemoveAll(left); err != nil {
			return fail(err)
		}
	}
	if err := s.fs.Mkdir(tmp); err != nil {
		return fail(err)
	}
	var err error
	if m.Files, err = c.write(ctx, s.fs, tmp); err != nil {
		return fail(err)
	}
	if m.Filter, err = writeFilter(s.fs, tmp, c.filter); err != nil {
		return fail(err)
	}
	b, err := m.encode()
	if err != nil {
		return fail(err)
	}
	if err := vfs.WriteFile(s.fs, filepath.Join(tmp, manifestFile), b); err != nil { // and syncs the directory
		return fail(err)
	}
	if err := s.fs.Rename(tmp, final); err != nil {
		return fail(err)
	}
	if err := s.fs.SyncDir(s.sealed()); err != nil {
		// Nobody knows whether the name is on the disk: it is taken back, so that what is said and what is there agree.
		if s.fs.Rename(final, tmp) == nil {
			_ = s.fs.SyncDir(s.sealed())
		}
		return fail(err)
	}
	p := &period{s: s, dir: final, m: m}
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := map[string]bool{}
	for _, r := range m.Replaces {
		gone[r.ID] = true
	}
	kept := make([]*period, 0, len(s.periods)+1)
	for _, old := range s.periods {
		if !gone[old.m.ID] {
			kept = append(kept, old)
		}
	}
	s.periods = append(kept, p)
	s.sort()
	return p.m.info(), nil
}

// freeID is an id that no period has: want, or want with a number.
func (s *Store) freeID(want string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := want
	for n := 2; slices.ContainsFunc(s.periods, func(p *period) bool { return p.m.ID == id }); n++ {
		id = fmt.Sprintf("%s-%d", want, n)
	}
	return id
}

// span is the time that the content is about: of its requests, and of its iterations where there are any.
func (c *content) span() (from, to int64) {
	take := func(f, t int64) {
		if f != 0 && (from == 0 || f < from) {
			from = f
		}
		to = max(to, t)
	}
	for i := range c.requests {
		take(c.requests[i].From, c.requests[i].From+c.requests[i].E2E)
	}
	if n := len(c.iterations); n > 0 {
		take(c.engines[0].PreviousEnd, c.iterations[n-1].End)
	}
	for _, k := range c.clients {
		take(k.Sent, k.Ended)
	}
	for _, g := range c.gaps {
		take(g.At, g.At)
	}
	return from, to
}

// write writes all tables.
func (c *content) write(ctx context.Context, f vfs.FS, dir string) (map[string]fileInfo, error) {
	files := map[string]fileInfo{}
	tables := map[string]func(path string) (fileInfo, error){
		"engines":     func(p string) (fileInfo, error) { return writeRows(f, p, c.engines) },
		"iterations":  func(p string) (fileInfo, error) { return writeRows(f, p, c.iterations) },
		"sequences":   func(p string) (fileInfo, error) { return writeRows(f, p, c.sequences) },
		"stints":      func(p string) (fileInfo, error) { return writeRows(f, p, c.stints) },
		"skips":       func(p string) (fileInfo, error) { return writeRows(f, p, c.skips) },
		"preemptions": func(p string) (fileInfo, error) { return writeRows(f, p, c.preemptions) },
		"holdings":    func(p string) (fileInfo, error) { return writeRows(f, p, c.holdings) },
		"executions":  func(p string) (fileInfo, error) { return writeRows(f, p, c.executions) },
		"evictions":   func(p string) (fileInfo, error) { return writeRows(f, p, c.evictions) },
		"requests":    func(p string) (fileInfo, error) { return writeRows(f, p, c.requests) },
		"clients":     func(p string) (fileInfo, error) { return writeRows(f, p, c.clients) },
		"gaps":        func(p string) (fileInfo, error) { return writeRows(f, p, c.gaps) },
		"ids":         func(p string) (fileInfo, error) { return writeRows(f, p, c.ids) },
	}
	if len(c.calls) > 0 {
		tables["calls"] = func(p string) (fileInfo, error) { return writeRows(f, p, c.calls) }
		tables["call_parts"] = func(p string) (fileInfo, error) { return writeRows(f, p, c.callParts) }
		tables["call_spans"] = func(p string) (fileInfo, error) { return writeRows(f, p, c.callSpans) }
	}
	for name, write := range tables {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		if files[name], err = write(filepath.Join(dir, name+".parquet")); err != nil {
			return nil, err
		}
	}
	return files, nil
}
