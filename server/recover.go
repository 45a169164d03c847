package server

import (
	"context"
	"io"
	"slices"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// recover rebuilds the hot period from the log, and lets go of what of it is sealed.
func (s *Server) recover(ctx context.Context) error {
	pos, err := s.store.Replay(ctx, store.Position{}, s.hot)
	if err != nil {
		return err
	}
	s.noteMark(pos)
	periods, err := s.store.Periods(ctx)
	if err != nil {
		return err
	}
	for _, p := range periods {
		s.sealed[p.Engine] = max(s.sealed[p.Engine], p.Last)
	}
	if err := s.recoverUnserved(ctx, periods); err != nil {
		return err
	}
	// What was given up and sealed comes back alive from the log.
	s.hot.abandonIf(func(q *ledger.Sequence) bool {
		if q.Engine == nil || s.sealed[q.Engine.ID] == 0 {
			return false
		}
		sealed, err := s.store.Has(ctx, q.Engine.ID, q.ID)
		return err == nil && sealed
	})
	for id, through := range s.sealed {
		s.hot.forget(id, through, func(q *ledger.Sequence) bool {
			sealed, err := s.store.Has(ctx, id, q.ID)
			return err == nil && sealed
		})
	}
	return nil
}

// change does something to the assembler that no frame tells, and shows it.
func (h *hot) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
	h.l.Refresh(h.a.Live())
}

// forget lets go of what is sealed of an engine. Of the sequences that ended by then only those that isSealed knows go: one whose
// exchange ended later is not sealed yet.
func (h *hot) forget(id ledger.EngineID, through uint64, isSealed func(*ledger.Sequence) bool) {
	h.change(func() { h.l.Forget(h.a.ForgetIf(id, through, isSealed)) })
}

// recoverUnserved lets go of requests that no engine took up and that are sealed: those too whose exchange was given up, and which the log
// brings back open.
func (s *Server) recoverUnserved(ctx context.Context, periods []store.PeriodInfo) error {
	var last int64
	for _, p := range periods {
		if p.Engine == (ledger.EngineID{}) {
			last = max(last, p.To)
		}
	}
	unlock := s.hot.lock()
	var candidates []*ledger.Request
	first := last
	for _, r := range s.hot.l.Book.Requests {
		if !slices.ContainsFunc(r.Sequences, func(q *ledger.Sequence) bool { return q.Engine != nil }) && r.FirstSeen() <= last {
			candidates = append(candidates, r)
			first = min(first, r.FirstSeen())
		}
	}
	unlock()
	if len(candidates) == 0 {
		return nil
	}
	type key struct {
		at            int64
		request, path string
	}
	known := map[key]bool{}
	for page := ""; ; {
		rows, err := s.store.List(ctx, store.Filter{Engine: &ledger.EngineID{}, From: first, Limit: 1000, Page: page})
		if err != nil {
			return err
		}
		for _, k := range rows.Rows {
			known[key{k.Row.From, k.Row.RequestID, k.Row.Path}] = true
		}
		if page = rows.Next; page == "" {
			break
		}
	}
	var sealed []*ledger.Request
	for _, r := range candidates {
		is := known[key{r.FirstSeen(), r.RequestID, r.Path}]
		if ids := r.IDs(); !is && r.Received == 0 && len(ids) > 0 { // only its client spoke of it: it is in no list
			refs, err := s.store.Find(ctx, ids[0], 100)
			if err != nil {
				return err
			}
			is = slices.ContainsFunc(refs, func(ref store.RequestRef) bool { return ref.Exact && ref.At == r.FirstSeen() })
		}
		if is {
			sealed = append(sealed, r)
		}
	}
	s.hot.forgetUnserved(sealed)
	return nil
}

// abandon ends what nothing has come of for long.
func (h *hot) abandon(alive func(ledger.EngineID) bool) {
	h.change(func() { h.a.Abandon(h.now().UnixNano(), patience, alive) })
}

// abandonIf ends what was given up before.
func (h *hot) abandonIf(lost func(*ledger.Sequence) bool) {
	h.change(func() { h.a.AbandonIf(lost) })
}

// forgetUnserved lets go of requests that no engine took up.
func (h *hot) forgetUnserved(requests []*ledger.Request) {
	h.change(func() {
		h.a.ForgetUnserved(requests)
		h.l.Forget(requests)
	})
}

// retire lets go of engines that nothing has come of for very long.
func (h *hot) retire(alive func(ledger.EngineID) bool) {
	h.change(func() {
		for _, e := range h.a.Retire(h.now().UnixNano(), silence, alive) {
			h.l.ForgetEngine(e)
		}
	})
}

func readCapture(in io.Reader, name string, sink wire.Sink) error {
	return ingest.ReadCapture(in, name, sink)
}
