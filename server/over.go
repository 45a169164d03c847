package server

import (
	"context"
	"slices"
	"time"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// Outlet is told of every request once it is over, in no particular order.
type Outlet struct {
	// After is a time in Unix ns: requests that the log gave back at the start and that ended then or before have been told of by an
	// earlier run.
	After int64
	// Offer must not wait and must not keep the ledger: the hot period holds still meanwhile. end is in Unix ns.
	Offer func(l *query.Ledger, r *ledger.Request, end int64)
}

const (
	// offerEvery is how often is looked for requests that are over.
	offerEvery = 500 * time.Millisecond
	// offerAtOnce is how many are offered before the hot period may go on.
	offerAtOnce = 64
	// offerWait is how long a request that seems over waits for what another source may still say of it.
	offerWait = 5 * time.Second
)

// offering remembers what has been offered of what is in memory.
type offering struct {
	to   *Outlet
	done map[*ledger.Request]bool
}

// begin passes over what an earlier run has told of.
func (o *offering) begin(s *Server) {
	o.done = map[*ledger.Request]bool{}
	defer s.hot.lock()()
	now := s.set.Now().UnixNano()
	for _, r := range s.hot.l.Book.Requests {
		if end := overAt(r, now); end != 0 && end <= o.to.After {
			o.done[r] = true
		}
	}
}

// offer tells the outlet of what is over by now.
func (o *offering) offer(ctx context.Context, s *Server) {
	for o.some(s) && ctx.Err() == nil {
	}
}

// some offers a few requests, and reports whether there are more. The hot period goes on between two calls.
func (o *offering) some(s *Server) (more bool) {
	defer s.hot.lock()()
	now, n := s.set.Now().UnixNano(), 0
	for _, r := range s.hot.l.Book.Requests {
		if o.done[r] {
			continue
		}
		end := overAt(r, now)
		if end == 0 {
			continue
		}
		if n == offerAtOnce {
			return true
		}
		o.done[r] = true
		o.to.Offer(s.hot.l, r, end)
		n++
	}
	o.forget(s.hot.l.Book.Requests)
	return false
}

// forget lets go of requests that are no longer in memory, when they are many.
func (o *offering) forget(there []*ledger.Request) {
	if len(o.done) < 2*len(there)+1024 {
		return
	}
	done := make(map[*ledger.Request]bool, len(there))
	for _, r := range there {
		if o.done[r] {
			done[r] = true
		}
	}
	o.done = done
}

// overAt is when a request ended (Unix ns), 0 if it has not, or if another source's last word of it may still come: the engine's and the front
// end's come by ways of their own.
func overAt(r *ledger.Request, now int64) int64 {
	end := endOf(r)
	open := func(q *ledger.Sequence) bool { return q.Finished == 0 }
	switch {
	case ingest.Unserved(r):
		return end
	case len(r.Sequences) == 0, r.Received != 0 && r.LastByte == 0:
		return 0
	case now-end >= int64(offerWait):
		if r.LastByte == 0 && slices.ContainsFunc(r.Sequences, open) {
			return 0
		}
		return end
	case r.Received == 0 || slices.ContainsFunc(r.Sequences, open):
		return 0
	}
	return end
}
