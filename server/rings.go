package server

import (
	"context"
	"time"

	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// followRings reads this host's rings into the log. A writer is never asked to wait: what is not read in time is overwritten,
// and told.
func (s *Server) followRings(ctx context.Context) {
	sink := &ringSink{batching: batching{ctx: ctx, accept: s.accept}, kept: s.store.Kept}
	f := wire.NewFollower(s.set.Rings, sink)
	defer f.Close()
	poll := func() {
		if _, err := f.Poll(s.set.Now().UnixNano()); err != nil {
			s.faults.note("read rings", err, s.set.Now())
			s.set.Log.Warn("read rings", "error", err)
		}
		if err := sink.flush(); err != nil {
			s.set.Log.Error("rings", "error", err)
			sink.lost(err) // what could not be kept is gone from the reader's hands: told as a gap with the next batch
		}
	}
	t := time.NewTicker(s.set.Poll)
	defer t.Stop()
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			sink.ctx = context.WithoutCancel(ctx)
			poll()
			return
		case <-t.C:
			poll()
		}
		if now := s.set.Now(); now.Sub(looked) >= time.Second {
			looked = now
			s.look(f, now)
		}
	}
}

// ringSink hands on what rings hold, without what a former run of the server has kept already.
type ringSink struct {
	batching
	kept  func(wire.Source) uint64
	known []uint64 // by source: sequence up to which everything was kept
	owed  []store.Record
}

func (r *ringSink) Source(w wire.Source) (uint16, error) {
	id, err := r.batching.Source(w)
	r.known = append(r.known, r.kept(w))
	return id, err
}

func (r *ringSink) Frame(id uint16, f wire.Frame) error {
	if f.Sequence <= r.known[id] {
		return nil
	}
	return r.batching.Frame(id, f)
}

// Gap leaves out what was kept before it was overwritten.
func (r *ringSink) Gap(id uint16, g wire.Gap) error {
	if k := r.known[id]; g.To != 0 && g.From <= k {
		if g.To <= k {
			return nil
		}
		g.From = k + 1
		g.Count = g.To - k
	}
	return r.batching.Gap(id, g)
}

// flush hands on, the gaps that are owed first.
func (r *ringSink) flush() error {
	if len(r.owed) > 0 && len(r.records) > 0 {
		r.records = append(r.owed, r.records...)
		r.owed = nil
	}
	return r.batching.flush()
}

// lost owes a gap for each source that wanted to write when the log could not.
func (r *ringSink) lost(err error) {
	r.records, r.bytes = nil, 0
	for _, s := range r.sources {
		r.owed = append(r.owed, store.Record{Source: s, Gap: &wire.Gap{Why: "could not be kept: " + err.Error()}})
	}
}
