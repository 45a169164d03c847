package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// Describe implements [store.Describer].
func (s *Store) Describe(ctx context.Context, id ledger.EngineID) (store.Described, error) {
	for {
		d, err := s.describe(ctx, id)
		if !errors.Is(err, errGone) {
			return d, err
		}
	}
}

func (s *Store) describe(ctx context.Context, id ledger.EngineID) (d store.Described, err error) {
	ps, err := s.all("describe an engine")
	if err != nil {
		return d, err
	}
	found := false
	var damaged error
	for _, p := range ofEngine(ps, id) { // in order; those without iterations come first
		if err := ctx.Err(); err != nil {
			return d, err
		}
		if found && p.m.First == 0 {
			continue
		}
		row, ok, err := p.firstStretch()
		if errors.Is(err, store.ErrCorrupt) {
			damaged = err
			continue
		}
		if err != nil {
			return d, err
		}
		if !ok {
			continue
		}
		if d, err = describedOf(id, row); err != nil {
			return d, err
		}
		found = true
		if p.m.First != 0 {
			break // what comes after is later
		}
	}
	switch {
	case !found && damaged != nil:
		return d, damaged
	case !found:
		return d, &store.Error{Err: store.ErrNotFound, What: "describe an engine", Where: id.String(), Remedy: "list what is there with 'whylate store ls'"}
	}
	return d, nil
}

// firstStretch reads the first row of the period's engines.
func (p *period) firstStretch() (row store.EngineRow, ok bool, err error) {
	err = p.use([]string{"engines"}, func(t map[string]*table) error {
		rows, err := readRows[store.EngineRow](t["engines"], 0, 1)
		if err == nil && len(rows) > 0 {
			row, ok = rows[0], true
		}
		return err
	})
	return row, ok, err
}

func describedOf(id ledger.EngineID, r store.EngineRow) (store.Described, error) {
	d := store.Described{ID: id, Name: r.Name, Version: r.Version, Producer: r.Producer}
	if r.First != 0 && r.First == r.Began {
		d.Began = r.PreviousEnd
	}
	dec := json.NewDecoder(strings.NewReader(r.Settings))
	dec.UseNumber()
	if err := dec.Decode(&d.Settings); err != nil {
		return d, &store.Error{Err: store.ErrCorrupt, What: "describe an engine", Where: id.String(), Value: fmt.Sprintf("settings %.80q", r.Settings), Cause: err, Remedy: "restore the period from a copy"}
	}
	return d, nil
}
