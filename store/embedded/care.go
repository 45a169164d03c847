package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
)

// Verify implements [store.Sealed]. A period that was damaged and has been restored answers again.
func (s *Store) Verify(ctx context.Context) ([]store.PeriodInfo, error) {
	ps, err := s.all("verify")
	if err != nil {
		return nil, err
	}
	var out []store.PeriodInfo
	for _, p := range ps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p, ok := s.verify(p); ok {
			out = append(out, p.info())
		}
	}
	return out, nil
}

// verify reads all files of a period. It returns the period as it is afterwards: another one where a manifest has been restored. It is not ok
// for one that is not there any more.
func (s *Store) verify(p *period) (*period, bool) {
	m, err := readManifest(s.fs, p.dir)
	var bad []string
	if err != nil {
		bad = append(bad, err.Error())
	}
	for _, t := range store.Tables {
		want, ok := m.Files[t.Name]
		if err != nil || slices.Contains(m.Dropped, t.Name) {
			continue
		}
		if !ok {
			bad = append(bad, t.Name+".parquet: the manifest does not name it")
		} else if err := verifyFile(s.fs, filepath.Join(p.dir, t.Name+".parquet"), want); err != nil {
			bad = append(bad, fmt.Sprintf("%s.parquet: %v", t.Name, err))
		}
	}
	if err == nil && m.Filter != nil {
		if err := verifyFile(s.fs, filepath.Join(p.dir, filterFile), *m.Filter); err != nil {
			bad = append(bad, fmt.Sprintf("%s: %v", filterFile, err))
		}
	}
	p.mu.Lock()
	if p.gone { // while it was read
		p.mu.Unlock()
		return nil, false
	}
	was := p.damaged
	p.damaged = strings.Join(bad, "; ")
	if was != "" || p.damaged != "" {
		p.closeTables() // what was opened may have been another file
	}
	p.mu.Unlock()
	if p.m.Files == nil && err == nil {
		q := &period{s: s, dir: p.dir, m: m, damaged: strings.Join(bad, "; ")}
		s.swap(p, q)
		return q, true
	}
	return p, true
}

// swap puts another period in the place of one. Whoever holds the old one asks again.
func (s *Store) swap(old, q *period) {
	s.forget(old)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.periods = slices.Clone(s.periods)
	if i := slices.Index(s.periods, old); i >= 0 {
		s.periods[i] = q
	}
	s.sort()
}

func verifyFile(f vfs.FS, path string, want fileInfo) error {
	in, err := f.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Size()
	if err != nil {
		return err
	}
	if size != want.Bytes {
		return fmt.Errorf("it has %d bytes, %d were written", size, want.Bytes)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(in, 0, size)); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != want.SHA256 {
		return errors.New("its checksum is not the one that was written")
	}
	return nil
}

// Retain implements [store.Sealed].
func (s *Store) Retain(ctx context.Context, policy store.Policy, now time.Time) (done store.Retained, err error) {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	ps, err := s.all("retain")
	if err != nil {
		return done, err
	}
	old := func(p *period, keep time.Duration) bool {
		return keep > 0 && p.m.Files != nil && p.m.To < now.Add(-keep).UnixNano()
	}
	for _, p := range ps {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		switch {
		case old(p, policy.Requests):
			n := p.info().Size()
			if err := s.remove(p); err != nil {
				return done, err
			}
			done.Periods++
			done.Bytes += n
		case old(p, policy.Detail) && len(p.m.Dropped) == 0 && p.info().Damaged == "":
			n, err := s.dropDetail(p)
			if err != nil {
				return done, err
			}
			done.Details++
			done.Bytes += n
		}
	}
	return done, nil
}

// remove takes a period out of sight and off the disk.
func (s *Store) remove(p *period) error {
	if err := s.unlink(p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.periods = slices.DeleteFunc(slices.Clone(s.periods), func(q *period) bool { return q == p })
	return nil
}

// dropDetail lets go of the tables of which the retention is over: first the manifest says so, then they are unlinked.
func (s *Store) dropDetail(p *period) (freed int64, err error) {
	m := p.m
	m.Files = map[string]fileInfo{}
	for name, f := range p.m.Files {
		if tableOf(name).Keep == store.KeepDetail {
			m.Dropped = append(m.Dropped, name)
			freed += f.Bytes
		} else {
			m.Files[name] = f
		}
	}
	slices.Sort(m.Dropped)
	b, err := m.encode()
	if err != nil {
		return 0, err
	}
	if err := vfs.WriteFile(s.fs, filepath.Join(p.dir, manifestFile), b); err != nil {
		return 0, diskError("let go of detail", p.dir, err)
	}
	s.swap(p, &period{s: s, dir: p.dir, m: m})
	for _, name := range m.Dropped {
		if err := s.fs.Remove(filepath.Join(p.dir, name+".parquet")); err != nil {
			return freed, diskError("let go of detail", p.dir, err) // it is swept at the next open
		}
	}
	return freed, nil
}

// Export implements [store.Sealed].
func (s *Store) Export(ctx context.Context, dir string) error {
	ps, err := s.all("export")
	if err != nil {
		return err
	}
	if list, err := s.fs.ReadDir(dir); err == nil && len(list) > 0 {
		return &store.Error{Err: store.ErrInvalid, What: "export", Where: dir, Value: "it is there and not empty", Remedy: "name a new directory"}
	}
	for _, t := range store.Tables {
		if !t.Private {
			if err := s.fs.Mkdir(filepath.Join(dir, t.Name)); err != nil {
				return diskError("export", dir, err)
			}
		}
	}
	var page strings.Builder
	if err := store.WriteTables(&page); err != nil {
		return err
	}
	if err := vfs.WriteFile(s.fs, filepath.Join(dir, "tables.md"), []byte(page.String())); err != nil {
		return diskError("export", dir, err)
	}
	var failed []error
	for _, p := range ps {
		if err := p.export(ctx, dir); err != nil {
			if errors.Is(err, errGone) {
				err = &store.Error{Err: store.ErrNotFound, What: "export", Where: p.m.ID, Value: "it was merged or let go meanwhile", Remedy: "export again"}
			} else if !errors.Is(err, store.ErrCorrupt) {
				return err
			}
			failed = append(failed, err) // the rest is exported
		}
	}
	return errors.Join(failed...)
}

// export writes one period's tables. Ids are written in full.
func (p *period) export(ctx context.Context, dir string) error {
	var names []string
	for _, t := range store.Tables {
		if _, ok := p.m.Files[t.Name]; ok {
			names = append(names, t.Name)
		}
	}
	return p.use(names, func(t map[string]*table) error {
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if tableOf(name).Private {
				continue
			}
			path := filepath.Join(dir, name, p.m.ID+".parquet")
			var err error
			switch name {
			case "requests":
				err = p.exportRequests(t, path)
			case "sequences", "stints":
				err = p.exportSequences(t, name, path)
			default:
				err = copyFile(p.s.fs, t[name], path, p.m.Files[name].Bytes)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *period) exportRequests(t map[string]*table, path string) error {
	rows, err := readRows[store.RequestRow](t["requests"], 0, t["requests"].file.NumRows())
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i] = plain(rows[i])
	}
	return out(writeRows(p.s.fs, path, rows))
}

// exportSequences writes the sequences, or their stints: those too that are no rows here.
func (p *period) exportSequences(t map[string]*table, name, path string) error {
	rows, err := readRows[store.SequenceRow](t["sequences"], 0, t["sequences"].file.NumRows())
	if err != nil {
		return err
	}
	if t["stints"] != nil {
		stints, err := readRows[store.StintRow](t["stints"], 0, t["stints"].file.NumRows())
		if err != nil {
			return err
		}
		if rows, stints = spelt(rows, stints); name == "stints" {
			return out(writeRows(p.s.fs, path, stints))
		}
	}
	requests, err := readRows[store.RequestRow](t["requests"], 0, t["requests"].file.NumRows())
	if err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		if r.Templates && int(r.Request) < len(requests) {
			id := requests[r.Request].RequestID
			r.ID, r.External, r.Parent, r.Templates = untemplate(r.ID, id), untemplate(r.External, id), untemplate(r.Parent, id), false
		}
	}
	return out(writeRows(p.s.fs, path, rows))
}

// out marks an error as one of the place that is written to, not of the period.
func out(_ fileInfo, err error) error {
	if err != nil {
		return &store.Error{Err: store.ErrInvalid, What: "export", Cause: err, Remedy: "look at the disk that is exported to"}
	}
	return nil
}

func copyFile(f vfs.FS, t *table, path string, size int64) error {
	to, err := f.Create(path)
	if err != nil {
		return out(fileInfo{}, err)
	}
	_, err = io.Copy(to, io.NewSectionReader(t.in, 0, size))
	return out(fileInfo{}, errors.Join(err, to.Sync(), to.Close()))
}
