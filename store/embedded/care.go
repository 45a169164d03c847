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
		if err != nil || slices.Contains(m.Dropped, t.Name) || m.lacks(t.Name) {
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
