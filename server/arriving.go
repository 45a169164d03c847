package server

import (
	"context"
	"slices"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics/native"
)

// Signals implements [api.Observer].
func (s *Server) Signals(ctx context.Context) (*api.SignalList, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	return s.arriving.get(s.set.Now, func() (*api.SignalList, error) {
		scene, err := s.scene(ctx, native.Sight)
		if err != nil {
			return nil, err
		}
		who, err := s.joined(ctx)
		if err != nil {
			return nil, err
		}
		list := &api.SignalList{Now: s.set.Now().UnixNano(), Window: int64(lookedBack), Inventory: *look.TakeInventory(scene), Records: s.records(), Refused: []api.RefusedSeries{}}
		list.Facts = slices.Concat(list.Facts, look.Unseen(scene, s.set.Promises), s.contradictions(scene, who))
		db := s.series()
		if db == nil {
			return list, nil
		}
		for i := range list.Unused {
			u := &list.Unused[i]
			u.BytesPerDay = int64(u.PerSecond * db.SampleBytes() * (24 * time.Hour).Seconds())
		}
		for _, r := range db.Refused() {
			list.Refused = append(list.Refused, api.RefusedSeries{Store: r.Store, Metric: r.Metric, Label: r.Label, Why: r.Why, Count: r.Count, Example: r.Example, Last: r.Last.UnixNano()})
		}
		return list, nil
	})
}

// records are what probes and tracers have told.
func (s *Server) records() []api.Records {
	out := []api.Records{}
	unlock := s.hot.lock()
	for _, e := range s.hot.l.Book.Engines {
		r := api.Records{Came: probe, Name: e.ID.String(), Count: uint64(len(e.Iterations))}
		if n := len(e.Iterations); n > 0 {
			r.Newest = e.Iterations[n-1].Decided
		}
		out = append(out, r)
	}
	unlock()
	t := s.spans.traces
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken > 0 {
		out = append(out, api.Records{Came: "spans", Count: t.taken, Newest: t.newest.UnixNano()})
	}
	return out
}
