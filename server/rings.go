package server

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/whylate/whylate/agent"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// agentComes is how long after the start of a server an agent that follows the same rings may take to connect: more than the longest
// pause between its attempts.
const agentComes = time.Minute

// lookEvery is how often the headers of the rings are read for what their writers are doing.
const lookEvery = 500 * time.Millisecond

// followRings reads this host's rings into the log. A writer is never asked to wait: what is not read in time is overwritten,
// and told. A ring that an agent sends to this server is left to the agent, which may have more of it in its spool than the ring has: what
// is on disk already is passed over, so either may go on where the other ended.
func (s *Server) followRings(ctx context.Context) {
	sink := &ringSink{batching: batching{ctx: ctx, accept: s.accept}, kept: s.store.Kept}
	f := wire.NewFollower(s.set.Rings, sink)
	defer f.Close()
	began := s.set.Now()
	expected := agent.Follows(s.set.Rings)
	f.Hold = func(id uint16, _ *wire.Ring) bool {
		source := sink.sources[id]
		if s.set.Sends(source.Name) {
			return true
		}
		// At the start the agent has not connected yet; what was kept of a ring before may have come from it.
		return expected && s.store.Kept(source) > 0 && s.set.Now().Sub(began) < agentComes
	}
	poll := func() {
		switch _, err := f.Poll(s.set.Now().UnixNano()); {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist): // no probe has written here yet, nor need one ever
			s.set.Log.Info("no rings on this host", "directory", s.set.Rings)
		default:
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
		if now := s.set.Now(); now.Sub(looked) >= lookEvery {
			looked = now
			expected = expected && now.Sub(began) < agentComes && agent.Follows(s.set.Rings)
			s.look(f, now)
		}
	}
}

// ringSink hands on what rings hold. Frames that a former run of the server, or an agent, has put on disk already are passed over there.
type ringSink struct {
	batching
	kept func(wire.Source) uint64 // sequence up to which everything is on disk
	owed []store.Record
}

// Gap leaves out what was kept before it was overwritten.
func (r *ringSink) Gap(id uint16, g wire.Gap) error {
	if k := r.kept(r.sources[id]); g.To != 0 && g.From <= k {
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
