package server

import (
	"context"
	"time"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/store"
)

// sealAtOnce is how many spans become one period at most, a single trace apart: about 50,000 calls.
const sealAtOnce = 150_000

// sealSpansAgain seals quiet traces at regular intervals, and before their time where too many spans are in memory.
func (s *Server) sealSpansAgain(ctx context.Context) {
	due, full := time.NewTicker(s.set.SealEvery), time.NewTicker(s.set.FullEvery)
	defer due.Stop()
	defer full.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		case <-full.C:
			if s.spans.traces.size() <= s.set.HotSpans {
				continue
			}
		}
		s.sealSpans(ctx)
	}
}

// sealSpans seals the traces whose time has come, and lets go of them in memory and in the log.
func (s *Server) sealSpans(ctx context.Context) {
	failed := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			s.faults.note(what, err, s.set.Now())
			s.set.Log.Error(what, "error", err)
		}
	}
	s.spans.commit.Lock() // what is in memory now is all of the log up to here
	ready := s.spans.traces.cut(s.set.Now())
	through := s.spans.next - 1
	s.spans.commit.Unlock()
	for len(ready) > 0 {
		n, spans := 0, 0
		for n < len(ready) && (n == 0 || spans+len(ready[n].spans) <= sealAtOnce) {
			spans += len(ready[n].spans)
			n++
		}
		if err := s.sealTraces(ctx, ready[:n], through); err != nil {
			s.spans.traces.back(ready)
			failed("seal calls", err)
			return
		}
		ready = ready[n:]
	}
	failed("trim the log of spans", s.trimSpans(ctx))
}

// sealTraces seals the calls of some traces.
func (s *Server) sealTraces(ctx context.Context, list []*trace, through uint64) error {
	t := s.spans.traces
	var spans []genai.Span
	late := map[genai.TraceID]bool{}
	for _, tr := range list {
		spans = append(spans, tr.spans...)
		if tr.late {
			late[tr.id] = true
		}
	}
	t.mu.Lock()
	clk := t.clocks.Clone()
	t.mu.Unlock()
	v := genai.CallsAfter(spans, clk)
	p := &store.Period{Batch: through}
	views, err := s.standings(ctx, v.Calls)
	if err != nil {
		return err
	}
	amended := 0
	for _, c := range v.Calls {
		k := store.Call{Call: c}
		switch {
		case late[c.Trace] && t.amends(c):
			k.As = store.Amendment
			amended++
		case views[c]:
			k.As = store.View
		}
		p.Calls = append(p.Calls, k)
		for _, id := range c.Came { // it is found under that trace too, and known to be sealed
			other := *c
			other.Trace = id
			p.Calls = append(p.Calls, store.Call{Call: &other, As: store.View})
		}
	}
	if len(p.Calls) > 0 {
		began := s.set.Now()
		info, err := s.store.Seal(ctx, p)
		if err != nil {
			return err
		}
		s.set.Log.Info("calls sealed", "calls", len(v.Calls), "spans", len(spans), "bytes", info.Size(), "took", s.set.Now().Sub(began).String())
	}
	t.sealed(list, p.Calls, clk)
	s.callers.note(v.Calls, s.set.Now())
	s.spans.calls.Add(uint64(len(v.Calls) - amended))
	s.spans.amended.Add(uint64(amended))
	s.spans.elsewhere.Add(uint64(v.Counts.Elsewhere))
	return nil
}

// trimSpans forgets the log of spans before everything that is in no period.
func (s *Server) trimSpans(ctx context.Context) error {
	s.spans.commit.Lock()
	at, ok := s.spans.traces.oldest()
	if !ok {
		at = s.spans.before
	}
	s.spans.commit.Unlock()
	if at.Segment <= s.spans.log.LogInfo().First.Segment { // whole files only
		return nil
	}
	return s.spans.log.Forget(ctx, at)
}
