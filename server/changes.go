package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// incarnation is one start of an engine, as it is compared with the one before it.
type incarnation struct {
	store.Described
	last int64 // the newest time that is known of it
}

// rankWait is how long a start must have been recorded before a rank that says nothing counts as not there: ranks come up one
// after the other.
const rankWait = time.Minute

// recordedKinds are the kinds of changes that changesOf can see.
var recordedKinds = []api.ChangeKind{api.ChangeRestart, api.ChangeVersion, api.ChangeProbe, api.ChangeModel, api.ChangeSetting, api.ChangeRank, api.ChangeEnd}

// recordedAndTold are those and the ones that are told from outside.
var recordedAndTold = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(recordedKinds), toldKinds...))))

// changesOf compares each incarnation with the one before it of the same deployment, replica and rank. Those of which the beginning is not
// known are left out: nobody knows when they changed. beats says whose process is gone.
func changesOf(all []incarnation, beats map[ledger.EngineID]ledger.Beat) []api.Change {
	type replica struct{ deployment, name string }
	replicas := map[replica][]incarnation{}
	var out []api.Change
	for _, s := range all {
		if b := beats[s.ID]; b.State == ledger.BeatDead {
			out = append(out, change(s, b.Since, api.ChangeEnd, place(s.ID), s.ID.Incarnation, "", "its process is gone"))
		}
		if s.Began != 0 {
			k := replica{s.ID.Deployment, s.ID.Replica}
			replicas[k] = append(replicas[k], s)
		}
	}
	for _, list := range replicas {
		slices.SortFunc(list, func(a, b incarnation) int {
			return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.ID.Rank, b.ID.Rank), cmp.Compare(a.ID.Incarnation, b.ID.Incarnation))
		})
		newest := map[int]incarnation{} // by rank
		for _, s := range list {
			if before, ok := newest[s.ID.Rank]; ok {
				out = append(out, differences(before, s)...)
			}
			newest[s.ID.Rank] = s
		}
		out = append(out, ranks(list)...)
	}
	slices.SortStableFunc(out, func(a, b api.Change) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Engine, b.Engine),
			cmp.Compare(slices.Index(recordedKinds, a.Kind), slices.Index(recordedKinds, b.Kind)), cmp.Compare(a.Subject, b.Subject))
	})
	return out
}

// differences is what a restart brought.
func differences(before, s incarnation) []api.Change {
	out := []api.Change{change(s, s.Began, api.ChangeRestart, place(s.ID), before.ID.Incarnation, s.ID.Incarnation,
		fmt.Sprintf("restarted: %.8s after %.8s", s.ID.Incarnation, before.ID.Incarnation))}
	differ := func(kind api.ChangeKind, subject, from, to, text string) {
		if from != to {
			out = append(out, change(s, s.Began, kind, subject, from, to, text))
		}
	}
	from, to := before.Name+" "+before.Version, s.Name+" "+s.Version
	differ(api.ChangeVersion, place(s.ID), from, to, fmt.Sprintf("the engine is %s, was %s", to, from))
	differ(api.ChangeProbe, place(s.ID), before.Producer, s.Producer, fmt.Sprintf("it is recorded by %s, was by %s", s.Producer, before.Producer))
	names := map[string]bool{}
	for name := range before.Settings {
		names[name] = true
	}
	for name := range s.Settings {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from, to := setting(before.Settings, name), setting(s.Settings, name)
		kind, subject := api.ChangeSetting, name
		if name == "model" {
			kind, subject = api.ChangeModel, place(s.ID)
		}
		text := fmt.Sprintf("%s is %s, was %s", name, to, from)
		switch {
		case from == "":
			text = fmt.Sprintf("%s is %s, was not told", name, to)
		case to == "":
			text = fmt.Sprintf("%s is not told any more, was %s", name, from)
		}
		differ(kind, subject, from, to, text)
	}
	return out
}

// setting writes a setting's value: "" if it is not there.
func setting(settings map[string]any, name string) string {
	switch v, ok := settings[name]; v := v.(type) {
	case nil:
		if ok {
			return "none"
		}
		return ""
	case string:
		if v == "" {
			return `""`
		}
		return v
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(b)
	}
}

// ranks tells of the ranks of a replica that come or go with a start. list is in order of time; the ranks of one start have one
// incarnation.
func ranks(list []incarnation) (out []api.Change) {
	type group struct {
		of    map[int]incarnation
		began int64
		last  int64
	}
	var groups []group
	index := map[string]int{}
	for _, s := range list {
		k, ok := index[s.ID.Incarnation]
		if !ok {
			k = len(groups)
			index[s.ID.Incarnation] = k
			groups = append(groups, group{of: map[int]incarnation{}, began: s.Began})
		}
		groups[k].of[s.ID.Rank] = s
		groups[k].last = max(groups[k].last, s.last)
	}
	for k := 1; k < len(groups); k++ {
		was, is := groups[k-1], groups[k]
		for rank, s := range is.of {
			if _, ok := was.of[rank]; !ok {
				out = append(out, change(s, s.Began, api.ChangeRank, place(s.ID), "", s.ID.Incarnation, fmt.Sprintf("rank %d is there, which the start before did not have", rank)))
			}
		}
		for rank, s := range was.of {
			if _, ok := is.of[rank]; ok || s.last >= is.began || is.last-is.began < int64(rankWait) {
				continue
			}
			first := is.of[slices.Min(slices.Collect(maps.Keys(is.of)))]
			out = append(out, change(first, is.began, api.ChangeRank, place(s.ID), s.ID.Incarnation, "", fmt.Sprintf("rank %d is not there, which the start before had", rank)))
		}
	}
	return out
}

func change(s incarnation, at int64, kind api.ChangeKind, subject, from, to, text string) api.Change {
	return api.Change{At: at, Kind: kind, Engine: s.ID.String(), Subject: subject, From: from, To: to, Source: s.Producer, Text: text}
}

// place is an engine without its incarnation.
func place(id ledger.EngineID) string {
	return fmt.Sprintf("%s/%d", placeOf(id.Deployment, id.Replica), id.Rank)
}

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
func (s *Local) incarnations() (out []incarnation) {
	defer s.lock()()
	for _, e := range s.l.Book.Engines {
		k := incarnation{Described: store.Described{ID: e.ID, Name: e.Name, Version: e.Version, Producer: e.Producer, Settings: e.Settings}, last: e.BaseEnd}
		if e.First == e.Began { // else its beginning is sealed
			k.Began = e.TileStart(e.First)
		}
		if n := len(e.Iterations); n > 0 {
			k.last = max(k.last, e.Iterations[n-1].End, e.Iterations[n-1].Decided)
		}
		out = append(out, k)
	}
	return out
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
			k.last = max(k.last, old.last)
			if old.Began != 0 && (k.Began == 0 || old.Began < k.Began) {
				k.Began = old.Began
			}
		}
		all[k.ID] = k
	}
	changes := changesOf(slices.Collect(maps.Values(all)), s.beats())
	if s.set.Told == nil {
		return chosen(changes, recordedKinds, q), nil
	}
	changes = append(changes, s.set.Told.List()...)
	slices.SortStableFunc(changes, func(a, b api.Change) int { return cmp.Compare(b.At, a.At) })
	return chosen(changes, recordedAndTold, q), nil
}

// sealedIncarnations is the engine incarnations that are sealed. Of each it reads one row, once.
func (s *Server) sealedIncarnations(ctx context.Context) (map[ledger.EngineID]incarnation, error) {
	periods, err := s.store.Periods(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	out := map[ledger.EngineID]incarnation{}
	for _, p := range periods {
		if p.Engine != (ledger.EngineID{}) {
			k := out[p.Engine]
			k.last = max(k.last, p.To)
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
