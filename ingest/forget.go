package ingest

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// Forget lets go of what has been sealed: the sequences of an engine that ended in iterations up to through, with their requests,
// and the iterations up to there that nobody who is left lived through. through is a completed iteration.
func (a *Assembler) Forget(id ledger.EngineID, through uint64) {
	a.ForgetIf(id, through, func(*ledger.Sequence) bool { return true })
}

// ForgetIf is Forget for those sequences that also sealed returns true for: where sealing and forgetting are two moments, more
// may have ended in between.
func (a *Assembler) ForgetIf(id ledger.EngineID, through uint64, sealed func(*ledger.Sequence) bool) {
	g := a.engines[id]
	if g == nil || through < g.e.First || through > g.e.Completed() {
		return
	}
	a.update()
	e := g.e
	gone := map[*ledger.Sequence]bool{}
	e.Sequences = slices.DeleteFunc(e.Sequences, func(q *ledger.Sequence) bool {
		if Sealable(q, through) && sealed(q) {
			gone[q] = true
		} else if n := first(q); n != 0 {
			through = min(through, n-1) // its iterations are still needed
		}
		return gone[q]
	})
	a.release(gone)
	if through < e.First {
		return
	}
	e.Firsts = account.Firsts(e)
	last := e.Row(through)
	e.Base, e.BaseEnd = last.Sums, last.End
	e.Iterations = slices.Clone(e.Iterations[through-e.First+1:])
	e.First = through + 1
	old := func(n uint64) bool { return n <= through }
	e.Preemptions = slices.DeleteFunc(e.Preemptions, func(p *ledger.Preemption) bool { return old(p.Iteration) })
	e.Evictions = slices.DeleteFunc(e.Evictions, func(v ledger.Eviction) bool { return old(v.Iteration) })
	e.Holdings = slices.DeleteFunc(e.Holdings, func(h ledger.Holding) bool { return old(h.Iteration) })
}

// first is the first iteration that a sequence lived through, 0 if it has seen none yet.
func first(q *ledger.Sequence) uint64 {
	n := q.Join
	if len(q.Skips) > 0 && (n == 0 || q.Skips[0].First < n) {
		n = q.Skips[0].First
	}
	return n
}

// release forgets sequences wherever they are known, and the requests that have no other.
func (a *Assembler) release(gone map[*ledger.Sequence]bool) {
	ended := map[*ledger.Request]bool{}
	a.requests = slices.DeleteFunc(a.requests, func(r *ledger.Request) bool {
		if len(r.Sequences) == 0 {
			return false
		}
		for _, q := range r.Sequences {
			if !gone[q] {
				return false
			}
		}
		ended[r] = true
		return true
	})
	for _, g := range a.engines {
		maps.DeleteFunc(g.known, func(_ uint32, q *ledger.Sequence) bool { return gone[q] })
	}
	maps.DeleteFunc(a.byID, func(_ sequenceKey, q *ledger.Sequence) bool { return gone[q] })
	maps.DeleteFunc(a.byParent, func(_ sequenceKey, r *ledger.Request) bool { return ended[r] })
	maps.DeleteFunc(a.byTrace, func(_ string, r *ledger.Request) bool { return ended[r] })
	maps.DeleteFunc(a.byRequest, func(_ string, rs []*ledger.Request) bool {
		return !slices.ContainsFunc(rs, func(r *ledger.Request) bool { return !ended[r] })
	})
	for _, s := range a.sources {
		maps.DeleteFunc(s.handles, func(_ uint32, q *ledger.Sequence) bool { return gone[q] })
		maps.DeleteFunc(s.http, func(_ uint32, r *ledger.Request) bool { return ended[r] })
	}
}

// Sealable reports whether a sequence ended in iterations up to through, and its request's exchange with it: nothing more can
// be told of it. An exchange whose front end was not seen ends with its sequences.
func Sealable(q *ledger.Sequence, through uint64) bool {
	if q.Finished == 0 || q.Leave > through || len(q.Skips) > 0 && q.Skips[len(q.Skips)-1].Last > through {
		return false
	}
	r := q.Request
	if r == nil {
		return true
	}
	for _, s := range r.Sequences {
		if s.Finished == 0 || s.Leave > through {
			return false
		}
	}
	return r.Received == 0 || r.LastByte != 0
}
