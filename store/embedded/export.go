package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
)

// Export implements [store.Sealed].
func (s *Store) Export(ctx context.Context, dir string) error {
	if _, err := s.all("export"); err != nil {
		return err
	}
	put, err := store.ExportInto(s.fs, dir)
	if err != nil {
		return err
	}
	return s.ExportFiles(ctx, put)
}

// ExportFiles implements [store.Exporter]. It exports what was sealed when it began, whatever is merged meanwhile.
func (s *Store) ExportFiles(ctx context.Context, put store.Put) (err error) {
	ps, err := s.holdAll("export")
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range ps {
			if rerr := p.release(); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}
	}()
	var page strings.Builder
	if err := store.WriteTables(&page); err != nil {
		return err
	}
	if err := put(store.TablesFile, int64(page.Len()), strings.NewReader(page.String())); err != nil {
		return err
	}
	var damaged []error
	for _, p := range ps {
		for _, t := range store.Tables {
			if t.Private {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			in, err := p.exported(t.Name)
			for errors.Is(err, errGone) { // its detail was let go meanwhile
				q := s.named(p.m.ID)
				if q == nil {
					return &store.Error{Err: store.ErrNotFound, What: "export", Where: p.m.ID, Value: "it was let go meanwhile", Remedy: "export again into a new directory"}
				}
				in, err = q.exported(t.Name)
			}
			if errors.Is(err, store.ErrExpired) {
				continue
			}
			if errors.Is(err, store.ErrCorrupt) { // the rest is exported
				damaged = append(damaged, err)
				break
			}
			if err != nil {
				return err
			}
			if err := hand(put, t.Name+"/"+p.m.ID+".parquet", in); err != nil {
				return err
			}
		}
	}
	return errors.Join(damaged...)
}

// holdAll returns the periods as they are now, held.
func (s *Store) holdAll(what string) ([]*period, error) {
	s.sealing.Lock() // nothing is replaced between looking and holding
	defer s.sealing.Unlock()
	ps, err := s.all(what)
	for _, p := range ps {
		p.hold()
	}
	return ps, err
}

// named is the period of an id, nil if there is none.
func (s *Store) named(id string) *period {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.periods, func(p *period) bool { return p.m.ID == id }); i >= 0 {
		return s.periods[i]
	}
	return nil
}

// hand gives put an open file, and closes it.
func hand(put store.Put, name string, in vfs.File) error {
	defer in.Close()
	size, err := in.Size()
	if err != nil {
		return diskError("export", name, err)
	}
	return put(name, size, io.NewSectionReader(in, 0, size))
}

// exported opens a table of the period as it is exported: with ids in full, and with the tables of today whatever its format. Nothing of the period is held by it: whoever reads slowly holds
// up nobody. What had to be written anew has lost its name already, and its room goes when it is closed.
func (p *period) exported(name string) (in vfs.File, err error) {
	needs := map[string][]string{"requests": {"requests"}, "sequences": {"requests", "sequences"}, "stints": {"requests", "sequences"}}[name]
	if _, ok := p.m.Files["stints"]; ok && (name == "sequences" || name == "stints") { // unless their retention is over
		needs = append(needs, "stints")
	}
	switch {
	case p.m.lacks(name) && slices.Contains(callTables, name):
		needs = []string{"requests"}
	case p.m.lacks(name):
		needs = []string{"iterations"} // whose retention is theirs
	}
	if needs == nil {
		err = p.use([]string{name}, func(map[string]*table) error {
			in, err = p.s.fs.Open(filepath.Join(p.dir, name+".parquet"))
			return err
		})
		return in, err
	}
	err = p.use(needs, func(t map[string]*table) error {
		path := filepath.Join(p.s.sealed(), fmt.Sprintf("%sexport-%d", tmpPrefix, p.s.exports.Add(1))) // swept at the next open if it stays
		switch name {
		case "requests":
			err = p.exportRequests(t, path)
		case "sequences", "stints":
			err = p.exportSequences(t, name, path)
		case "executions":
			err = out(writeRows[store.ExecutionRow](p.s.fs, path, nil))
		case "evictions":
			err = out(writeRows[store.EvictionRow](p.s.fs, path, nil))
		case "calls":
			err = out(writeRows[store.CallRow](p.s.fs, path, nil))
		case "call_parts":
			err = out(writeRows[store.CallPartRow](p.s.fs, path, nil))
		case "call_spans":
			err = out(writeRows[store.CallSpanRow](p.s.fs, path, nil))
		}
		if err == nil {
			in, err = p.s.fs.Open(path)
			err = out(fileInfo{}, err)
		}
		_ = p.s.fs.Remove(path)
		return err
	})
	return in, err
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

// out marks an error as one of the file that is written, not of the period.
func out(_ fileInfo, err error) error {
	if err != nil {
		return &store.Error{Err: store.ErrInvalid, What: "export", Cause: err, Remedy: "look at the disk that the store is on"}
	}
	return nil
}
