package server

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// seal seals what is older than the hot period, lets go of it in memory and in the log, merges, and keeps to the retention.
func (s *Server) seal(ctx context.Context) {
	failed := func(what string, err error) {
		if err != nil && ctx.Err() == nil { // at the end what is under way is given up: the log has it
			s.faults.note(what, err, s.set.Now())
			s.set.Log.Error(what, "error", err)
		}
	}
	alive := s.alive()
	s.hot.abandon(alive)
	until := s.sealUntil()
	engines := s.hot.engines()
	s.noteArrivals(engines)
	for _, e := range engines {
		failed("seal "+e.ID.String(), s.sealEngine(ctx, e, until))
	}
	failed("seal what no engine took up", s.sealUnserved(ctx, until))
	s.hot.retire(alive)
	failed("trim the log", s.trimLog(ctx))
	n, err := s.store.Compact(ctx, mergedRows, mergeFan)
	failed("merge periods", err)
	if n > 0 {
		s.set.Log.Info("periods merged", "fewer", n)
	}
	r, err := s.store.Retain(ctx, s.set.Retention, s.set.Now())
	failed("retention", err)
	if r.Details+r.Periods > 0 {
		s.set.Log.Info("retention", "details", r.Details, "periods", r.Periods, "bytes", r.Bytes)
	}
}

// alive tells which engines' processes live, as far as this host's rings say it.
func (s *Server) alive() func(ledger.EngineID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rings := s.watcher.rings
	return func(id ledger.EngineID) bool {
		st, known := rings[id]
		return known && ledger.BeatState(st.Liveness) != ledger.BeatDead
	}
}

// patience is how long something is waited for that should have been told: the end of a request whose engine died or whose record is lost.
// silence is how long an engine that was sealed to its end is still listed.
const (
	patience = 15 * time.Minute
	silence  = 24 * time.Hour
)

// Requests that no engine took up, such as refused ones, are sealed a thousand at once, or when the oldest is ten minutes old: a period costs
// the same whatever is in it.
const (
	unservedAtOnce = 1000
	unservedFor    = 10 * time.Minute
)

// mergedRows is how many iterations a merged period has at most: reading one to merge it takes about a kilobyte of memory each.
// mergeFan is how many of like size become one.
const (
	mergedRows = 500_000
	mergeFan   = 6
)

// sealUntil is the time (Unix ns) up to which is sealed: the hot period ago, or later where too many iterations ended since.
func (s *Server) sealUntil() int64 {
	defer s.hot.lock()()
	now := s.set.Now()
	until := now.Add(-s.set.HotPeriod)
	engines := s.hot.l.Book.Engines
	more := sort.Search(int(now.Sub(until)/time.Second), func(k int) bool {
		return endedSince(engines, until.Add(time.Duration(k)*time.Second).UnixNano()) <= s.set.HotIterations
	})
	return until.Add(time.Duration(more) * time.Second).UnixNano()
}

// endedSince counts the iterations that ended at t (Unix ns) or later, or have not ended.
func endedSince(engines []*ledger.Engine, t int64) (n int) {
	for _, e := range engines {
		n += len(e.Iterations) - endedBefore(e, t)
	}
	return n
}

// endedBefore counts the iterations in memory that ended before t (Unix ns).
func endedBefore(e *ledger.Engine, t int64) int {
	return sort.Search(len(e.Iterations), func(k int) bool { return e.Iterations[k].End == 0 || e.Iterations[k].End >= t })
}

// unsealed is how many iterations are in memory and nowhere else but in the log.
func (s *Server) unsealed() (n int) {
	defer s.hot.lock()()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.hot.l.Book.Engines {
		if last := e.Last(); len(e.Iterations) > 0 && last > s.sealed[e.ID] {
			n += min(int(last-s.sealed[e.ID]), len(e.Iterations))
		}
	}
	return n
}

// sealAgain seals at regular intervals, and before its time where too much is in memory.
func (s *Server) sealAgain(ctx context.Context) {
	due, full := time.NewTicker(s.set.SealEvery), time.NewTicker(s.set.FullEvery)
	defer due.Stop()
	defer full.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
			s.alone(ctx, func() { s.seal(ctx) })
		case <-full.C:
			if s.unsealed() > s.set.HotIterations+s.set.HotIterations/4 {
				s.alone(ctx, func() { s.seal(ctx) })
			}
		}
	}
}

// sealEngine seals an engine's iterations that ended before until (Unix ns), and the requests that are over.
func (s *Server) sealEngine(ctx context.Context, e *ledger.Engine, until int64) error {
	s.mu.Lock()
	after := s.sealed[e.ID]
	s.mu.Unlock()
	// The period only points at what is alive, so the hot period holds still until it is copied. Frames go on to be acknowledged
	// meanwhile: the log does not wait for this lock.
	s.hot.mu.Lock()
	unlock := sync.OnceFunc(s.hot.mu.Unlock)
	defer unlock()
	s.hot.show()
	n := endedBefore(e, until)
	through := max(e.First+uint64(n)-1, min(s.arrived.before(e.ID, until), e.Completed()))
	fresh := through >= e.First && through > after
	if !fresh {
		through = after
	}
	over := func(q *ledger.Sequence) bool { return ingest.Sealable(q, through) }
	p := store.Cut(e, s.hot.l.Book.Requests, s.hot.l.Model(e), after, through, over)
	if p != nil && !fresh { // requests alone, of an engine that does nothing more: they are waited for no longer
		p.Requests = slices.DeleteFunc(p.Requests, func(r *ledger.Request) bool { return endOf(r) > until-int64(unservedFor) })
	}
	if p == nil || !fresh && len(p.Requests) == 0 {
		return nil
	}
	sealed := map[*ledger.Sequence]bool{}
	for _, r := range p.Requests {
		for _, q := range r.Sequences {
			sealed[q] = true
		}
	}
	began := s.set.Now()
	p.Copied = unlock
	info, err := s.store.Seal(ctx, p)
	if err != nil {
		return err
	}
	unlock() // sealed already, it was not copied
	s.hot.forget(e.ID, through, func(q *ledger.Sequence) bool { return sealed[q] })
	s.mu.Lock()
	s.sealed[e.ID] = through
	s.mu.Unlock()
	s.set.Log.Info("sealed", "engine", e.ID.String(), "first", p.First, "last", p.Last, "requests", len(p.Requests), "bytes", info.Size(), "took", s.set.Now().Sub(began).String())
	s.feed.Publish(api.Event{Kind: api.EventSealed, At: s.set.Now().UnixNano(), Engine: e.ID.String(), Iteration: through, Text: "iterations up to here are sealed"})
	return nil
}

// sealUnserved seals requests that are over and that no engine took up.
func (s *Server) sealUnserved(ctx context.Context, until int64) error {
	s.hot.mu.Lock()
	unlock := sync.OnceFunc(s.hot.mu.Unlock)
	defer unlock()
	s.hot.show()
	var over []*ledger.Request
	oldest := until
	for _, r := range s.hot.l.Book.Requests {
		if t := endOfUnserved(r); t != 0 && t < until {
			over = append(over, r)
			oldest = min(oldest, t)
		}
	}
	if len(over) == 0 || len(over) < unservedAtOnce && until-oldest < int64(unservedFor) {
		return nil
	}
	if _, err := s.store.Seal(ctx, &store.Period{Requests: over, Copied: unlock}); err != nil {
		return err
	}
	unlock()
	s.hot.forgetUnserved(over)
	return nil
}

// endOfUnserved is when a request was over that no engine took up, in Unix ns; 0 for every other.
func endOfUnserved(r *ledger.Request) int64 {
	if !ingest.Unserved(r) {
		return 0
	}
	return endOf(r)
}

// endOf is the last time, in Unix ns, that is known of a request that is over.
func endOf(r *ledger.Request) int64 {
	t := max(r.FirstSeen(), r.LastByte)
	for _, c := range r.Clients {
		t = max(t, c.Sent, c.Ended)
	}
	for _, q := range r.Sequences {
		t = max(t, q.Finished)
	}
	return t
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
	if k >= 0 {
		before = s.marks[k].pos
		s.marks = s.marks[k:]
	}
	s.mu.Unlock()
	if before.Segment <= s.store.LogInfo().First.Segment { // whole files only
		return nil
	}
	return s.store.Forget(ctx, before)
}
