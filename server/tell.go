package server

import (
	"context"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/agent"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/wire"
)

// watcher remembers what has been told, so that each thing is told once.
type watcher struct {
	ended    int64                           // newest end of a request that was told, Unix ns
	gaps     int                             // gap records told
	iter     map[ledger.EngineID]uint64      // iterations looked at
	preempts map[ledger.EngineID]int64       // time of the newest preemption told
	states   map[string]api.EngineStatus     // by engine
	rings    map[ledger.EngineID]agent.State // what the headers of this host's rings say
	changes  changeWatch
	devices  map[ledger.DeviceID]*deviceWatch
}

// look reads the headers of this host's rings: they say which engine's process lives and what it launched, also when it is stuck.
func (s *Server) look(f *wire.Follower, now time.Time) {
	mono, err := monotonic()
	if err != nil {
		return
	}
	s.mu.Lock()
	before := s.watcher.rings
	s.mu.Unlock()
	rings := map[ledger.EngineID]agent.State{}
	for _, r := range f.Rings() {
		raw, err := r.Hello()
		if err != nil || raw == nil {
			continue
		}
		h, err := wire.ParseHello(raw)
		if err != nil || h.Role != "engine" || h.Thread != "scheduler" {
			continue
		}
		if st, err := r.Status(); err == nil {
			id := ledger.EngineID{Deployment: h.Engine.Deployment, Replica: h.Engine.Replica, Rank: h.Engine.Rank, Incarnation: h.Engine.Incarnation}
			rings[id] = agent.Liveness(st, before[id], mono, agent.LivenessSettings{})
		}
	}
	s.mu.Lock()
	s.watcher.rings = rings
	s.mu.Unlock()
}

// monotonic reads the clock that rings' times are of, in ns.
func monotonic() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano(), err
}

// Engines implements [api.Service]: what the records say, corrected by the readers of the rings, here or at an agent: they know
// which process lives, and see an iteration that does not end while no record comes.
func (s *Server) Engines(ctx context.Context) (*api.EngineList, error) {
	list, err := s.engines(ctx)
	if err != nil || s.series() == nil {
		return list, err
	}
	if who, err := s.joined(ctx); err == nil { // what is not known of targets is no reason to say nothing of engines
		for i := range list.Engines {
			list.Engines[i].Targets = who.targets[list.Engines[i].ID]
		}
	}
	return list, nil
}

// engines is the state of all engines without where their metrics are read.
func (s *Server) engines(ctx context.Context) (*api.EngineList, error) {
	list, err := s.hot.Engines(ctx)
	if err != nil {
		return nil, err
	}
	beats := map[string]ledger.Beat{}
	for id, b := range s.beats() {
		beats[id.String()] = b
	}
	for i := range list.Engines {
		e := &list.Engines[i]
		b, known := beats[e.ID]
		switch {
		case known && b.State == ledger.BeatDead:
			e.Status, e.Since = api.EngineDead, b.Since
		case known && b.State == ledger.BeatStuck:
			e.Status, e.Since, e.Iteration = api.EngineStuck, b.Since, b.Iteration
		}
	}
	return list, nil
}

// beats is what the readers of the rings, here or at an agent, said last of each scheduler.
func (s *Server) beats() map[ledger.EngineID]ledger.Beat {
	unlock := s.hot.lock()
	now := s.hot.l.Book.Now
	beats := maps.Clone(s.hot.l.Book.Beats)
	offsets := map[ledger.EngineID]int64{}
	for _, e := range s.hot.l.Book.Engines {
		offsets[e.ID] = e.Clock.Offset
	}
	unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, st := range s.watcher.rings {
		beats[id] = ledger.Beat{At: now, State: ledger.BeatState(st.Liveness), Iteration: st.Iteration, Since: st.Since + offsets[id]}
	}
	return beats
}

// tell publishes what has happened since the last time.
func (s *Server) tell(ctx context.Context) {
	engines, err := s.engines(ctx)
	if err != nil {
		return
	}
	var events []api.Event
	w := &s.watcher
	if w.iter == nil {
		w.iter, w.preempts, w.states = map[ledger.EngineID]uint64{}, map[ledger.EngineID]int64{}, map[string]api.EngineStatus{}
	}
	for _, e := range engines.Engines {
		if w.states[e.ID] != e.Status {
			w.states[e.ID] = e.Status
			text := fmt.Sprintf("%s is %s", e.ID, e.Status)
			if e.Status == api.EngineStuck {
				text = fmt.Sprintf("%s is stuck in iteration %d since %s", e.ID, e.Iteration, diagnose.Clock(e.Launched))
			}
			events = append(events, api.Event{Kind: api.EventEngine, At: engines.Now, Engine: e.ID, State: e.Status, Iteration: e.Iteration, Text: text})
		}
	}
	events = append(events, s.newChanges(ctx, engines)...)
	unlock := s.hot.lock()
	l := s.hot.l
	for _, e := range l.Book.Engines {
		events = append(events, w.engine(l, e)...)
	}
	events = append(events, w.requests(l)...)
	events = append(events, w.devicesOf(l.Book)...)
	if gaps := l.Book.AllGaps(); len(gaps) > w.gaps {
		for _, g := range gaps[w.gaps:] {
			events = append(events, api.Event{Kind: api.EventGap, At: g.At, Engine: g.Engine, Text: g.String()})
		}
		w.gaps = len(gaps)
	}
	unlock()
	for _, e := range events {
		s.feed.Publish(e)
	}
}

// engine tells of odd iterations and preemptions.
func (w *watcher) engine(l *query.Ledger, e *ledger.Engine) (out []api.Event) {
	done := e.Completed()
	if m := l.Model(e); m != nil {
		for n := max(w.iter[e.ID]+1, e.First); n <= done; n++ {
			it := e.Row(n)
			if want, odd := account.IsOdd(e, m, it); odd {
				out = append(out, api.Event{Kind: api.EventOdd, At: it.End, Engine: e.ID.String(), Iteration: n, NS: it.Duration() - int64(want), Text: diagnose.DescribeIteration(l, e, it)})
			}
		}
	}
	w.iter[e.ID] = done
	for _, p := range e.Preemptions {
		if p.At > w.preempts[e.ID] {
			w.preempts[e.ID] = p.At
			out = append(out, api.Event{Kind: api.EventPreempted, At: p.At, Engine: e.ID.String(), Iteration: p.Iteration, Request: p.Victim.Request.Name(),
				Text: fmt.Sprintf("%s lost %d blocks and %d computed tokens", p.Victim.Request.Name(), p.Blocks, p.Lost)})
		}
	}
	return out
}

// requests tells of requests that ended.
func (w *watcher) requests(l *query.Ledger) (out []api.Event) {
	newest := w.ended
	for i := len(l.Book.Requests) - 1; i >= 0; i-- {
		r := l.Book.Requests[i]
		if r.LastByte <= w.ended {
			continue
		}
		newest = max(newest, r.LastByte)
		a := l.Account(r)
		out = append(out, api.Event{Kind: api.EventRequest, At: r.LastByte, Request: r.Name(), NS: a.E2E(), Text: fmt.Sprintf("%s took %s: %s", r.Name(), diagnose.Span(a.E2E()), r.End)})
	}
	w.ended = newest
	return out
}
