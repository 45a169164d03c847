package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/store"
)

// recordedKinds are the kinds of changes that query.Changes sees.
var recordedKinds = query.Kinds()

// recordedAndTold are those and the ones that are told from outside.
var recordedAndTold = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(recordedKinds), toldKinds...))))

// chosen is what a query asks of changes, which are in order.
func chosen(all []api.Change, recorded []api.ChangeKind, q api.ChangesQuery) *api.ChangeList {
	out := &api.ChangeList{Changes: []api.Change{}, Recorded: recorded}
	for _, c := range all {
		if !q.From.IsZero() && c.At < q.From.UnixNano() || !q.To.IsZero() && c.At >= q.To.UnixNano() {
			continue
		}
		if out.Matched++; q.Limit == 0 || len(out.Changes) < q.Limit {
			out.Changes = append(out.Changes, c)
		}
	}
	return out
}

// incarnations is the engine incarnations of the book.
func (s *Local) incarnations() []query.Incarnation {
	defer s.lock()()
	return s.l.Incarnations()
}

// Changes implements [api.Service]: of the engines in memory, and of those that are sealed.
func (s *Server) Changes(ctx context.Context, q api.ChangesQuery) (*api.ChangeList, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	live := s.hot.incarnations()
	all, err := s.sealedIncarnations(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range live {
		if old, ok := all[k.ID]; ok {
			k.Last = max(k.Last, old.Last)
			if old.Began != 0 && (k.Began == 0 || old.Began < k.Began) {
				k.Began = old.Began
			}
		}
		all[k.ID] = k
	}
	changes := query.Changes(slices.Collect(maps.Values(all)), s.beats())
	if s.set.Told == nil {
		return chosen(changes, recordedKinds, q), nil
	}
	changes = append(changes, s.set.Told.List()...)
	slices.SortStableFunc(changes, func(a, b api.Change) int { return cmp.Compare(b.At, a.At) })
	return chosen(changes, recordedAndTold, q), nil
}

// sealedIncarnations is the engine incarnations that are sealed. Of each it reads one row, once.
func (s *Server) sealedIncarnations(ctx context.Context) (map[ledger.EngineID]query.Incarnation, error) {
	periods, err := s.store.Periods(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	out := map[ledger.EngineID]query.Incarnation{}
	for _, p := range periods {
		if p.Engine != (ledger.EngineID{}) {
			k := out[p.Engine]
			k.Last = max(k.Last, p.To)
			out[p.Engine] = k
		}
	}
	s.mu.Lock()
	known := maps.Clone(s.known)
	s.mu.Unlock()
	maps.DeleteFunc(known, func(id ledger.EngineID, _ store.Described) bool { _, ok := out[id]; return !ok })
	for id, k := range out {
		d, ok := known[id]
		if !ok {
			if d, err = s.store.Describe(ctx, id); errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
				delete(out, id) // Periods names what is damaged
				continue
			} else if err != nil {
				return nil, storeError(err)
			}
			known[id] = d
		}
		k.Described = d
		out[id] = k
	}
	s.mu.Lock()
	s.known = known
	s.mu.Unlock()
	return out, nil
}

// changeWatch remembers which changes were told.
type changeWatch struct {
	told   map[changeKey]bool // nil: none were looked at yet
	looked time.Time
	seen   string // what the engines were then
}

// changeKey tells changes apart. The time is not in it: that of an end is refined with its clock.
type changeKey struct {
	kind                      api.ChangeKind
	engine, subject, from, to string
}

// changesEvery is how often changes are looked for where no engine came or went: a rank that does not come back shows only by time.
const changesEvery = time.Minute

// newChanges tells of the changes that were not there the last time. What was there when the server began is not news.
func (s *Server) newChanges(ctx context.Context, engines *api.EngineList) (out []api.Event) {
	w, now, seen := &s.watcher.changes, s.set.Now(), ""
	for _, e := range engines.Engines {
		if e.Iteration != 0 || e.Status == api.EngineDead {
			seen += e.ID + " "
		}
		if e.Status == api.EngineDead {
			seen += "dead "
		}
	}
	if w.told != nil && seen == w.seen && now.Sub(w.looked) < changesEvery {
		return nil
	}
	list, err := s.Changes(ctx, api.ChangesQuery{})
	if err != nil {
		return nil // it is tried again the next time
	}
	told := map[changeKey]bool{}
	for _, c := range slices.Backward(list.Changes) {
		if c.ID != "" { // whoever told it has published it
			continue
		}
		key := changeKey{c.Kind, c.Engine, c.Subject, c.From, c.To}
		told[key] = true
		if w.told != nil && !w.told[key] {
			out = append(out, api.Event{Kind: api.EventChange, At: c.At, Engine: c.Engine, Text: c.Engine + ": " + c.Text})
		}
	}
	w.told, w.looked, w.seen = told, now, seen
	return out
}
