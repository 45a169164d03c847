package server

import (
	"context"
	"io"

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
	for id, through := range s.sealed {
		s.hot.forget(id, through, func(q *ledger.Sequence) bool {
			sealed, err := s.store.Has(ctx, id, q.ID)
			return err == nil && sealed
		})
	}
	return nil
}

// forget lets go of what is sealed of an engine. Of the sequences that ended by then only those that isSealed knows go: one whose
// exchange ended later is not sealed yet.
func (h *hot) forget(id ledger.EngineID, through uint64, isSealed func(*ledger.Sequence) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := h.a.ForgetIf(id, through, isSealed)
	h.l.Forget(gone)
	h.l.Refresh(h.a.Live())
}

func readCapture(in io.Reader, name string, sink wire.Sink) error {
	return ingest.ReadCapture(in, name, sink)
}
