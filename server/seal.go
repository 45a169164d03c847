package server

import (
	"context"
	"sort"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// seal seals what is older than the hot period, lets go of it in memory and in the log, and keeps to the retention.
func (s *Server) seal(ctx context.Context) {
	until := s.set.Now().Add(-s.set.HotPeriod).UnixNano()
	engines := s.hot.engines()
	s.noteArrivals(engines)
	for _, e := range engines {
		if err := s.sealEngine(ctx, e, until); err != nil {
			s.faults.note("seal "+e.ID.String(), err, s.set.Now())
			s.set.Log.Error("seal", "engine", e.ID.String(), "error", err)
		}
	}
	if err := s.trimLog(ctx); err != nil {
		s.faults.note("trim the log", err, s.set.Now())
		s.set.Log.Error("trim the log", "error", err)
	}
	if r, err := s.store.Retain(ctx, s.set.Retention, s.set.Now()); err != nil {
		s.faults.note("retention", err, s.set.Now())
		s.set.Log.Error("retention", "error", err)
	} else if r.Details+r.Periods > 0 {
		s.set.Log.Info("retention", "details", r.Details, "periods", r.Periods, "bytes", r.Bytes)
	}
}

// sealEngine seals an engine's iterations that ended before until (Unix ns), and the requests that are over.
func (s *Server) sealEngine(ctx context.Context, e *ledger.Engine, until int64) error {
	s.mu.Lock()
	after := s.sealed[e.ID]
	s.mu.Unlock()
	// The period only points at what is alive, so the hot period holds still while it is written. Frames go on to be
	// acknowledged meanwhile: the log does not wait for this lock.
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	s.hot.show()
	n := sort.Search(len(e.Iterations), func(k int) bool { return e.Iterations[k].End == 0 || e.Iterations[k].End >= until })
	through := max(e.First+uint64(n)-1, min(s.arrived.before(e.ID, until), e.Completed()))
	if through < e.First || through <= after {
		return nil
	}
	over := func(q *ledger.Sequence) bool { return ingest.Sealable(q, through) }
	p := store.Cut(e, s.hot.l.Book.Requests, s.hot.l.Model(e), after, through, over)
	if p == nil {
		return nil
	}
	began := s.set.Now()
	info, err := s.store.Seal(ctx, p)
	if err != nil {
		return err
	}
	sealed := map[*ledger.Sequence]bool{}
	for _, r := range p.Requests {
		for _, q := range r.Sequences {
			sealed[q] = true
		}
	}
	s.hot.a.ForgetIf(e.ID, through, func(q *ledger.Sequence) bool { return sealed[q] })
	s.hot.l.Refresh(s.hot.a.Live())
	s.mu.Lock()
	s.sealed[e.ID] = through
	s.mu.Unlock()
	s.set.Log.Info("sealed", "engine", e.ID.String(), "first", p.First, "last", p.Last, "requests", len(p.Requests), "bytes", info.Size(), "took", s.set.Now().Sub(began).String())
	s.feed.Publish(api.Event{Kind: api.EventSealed, At: s.set.Now().UnixNano(), Engine: e.ID.String(), Iteration: through, Text: "iterations up to here are sealed"})
	return nil
}

// logMargin is how much of the log is kept before the oldest thing that is still needed: whoever starts in the middle of a
// stream knows the membership from the next full record on, and an exchange begins before its sequences are queued.
const logMargin = 60 * time.Second

// trimLog forgets the log before everything that is not sealed.
func (s *Server) trimLog(ctx context.Context) error {
	now := s.set.Now().UnixNano()
	oldest := now
	s.hot.mu.Lock()
	s.hot.show()
	for _, e := range s.hot.l.Book.Engines {
		s.mu.Lock()
		through := s.sealed[e.ID]
		s.mu.Unlock()
		if row := e.Row(through + 1); row != nil && row.Decided != 0 {
			oldest = min(oldest, row.Decided)
		}
		if len(e.Iterations) > 0 {
			oldest = min(oldest, e.Iterations[0].Start)
			if e.Iterations[len(e.Iterations)-1].Decided > now { // its clock is ahead: its times do not say where in the log it lies
				oldest = min(oldest, s.arrived.of(e.ID, e.First))
			}
		}
	}
	for _, r := range s.hot.l.Book.Requests {
		if t := r.FirstSeen(); t != 0 {
			oldest = min(oldest, t)
		}
	}
	s.hot.mu.Unlock()
	oldest -= int64(logMargin)

	s.mu.Lock()
	k := sort.Search(len(s.marks), func(k int) bool { return s.marks[k].at > oldest }) - 1
	var before store.Position
	if k > 0 {
		before = s.marks[k].pos
		s.marks = s.marks[k:]
	}
	s.mu.Unlock()
	if before == (store.Position{}) {
		return nil
	}
	return s.store.Forget(ctx, before)
}
