package ingest

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// Forget lets go of what has been sealed: the sequences of an engine that ended in iterations up to through, with their requests,
// and the iterations up to there that nobody who is left lived through. Of whoever shared those that stay, the sequence stays with them: who is
// still here must be able to say who sat beside it. through is a completed iteration.
func (a *Assembler) Forget(id ledger.EngineID, through uint64) {
	a.ForgetIf(id, through, func(*ledger.Sequence) bool { return true })
}

// ForgetIf is Forget for those sequences that also sealed returns true for: where sealing and forgetting are two moments, more
// may have ended in between. It returns the requests that are gone.
func (a *Assembler) ForgetIf(id ledger.EngineID, through uint64, sealed func(*ledger.Sequence) bool) []*ledger.Request {
	g := a.engines[id]
	if g == nil {
		return nil
	}
	if len(g.e.Iterations) > 0 { // more may be sealed than this assembler has been told of
		through = min(through, g.e.Completed())
	}
	a.update()
	e := g.e
	over := map[*ledger.Sequence]bool{}
	until := through // the newest iteration that nobody needs
	for _, q := range e.Sequences {
		if g.past[q] {
			continue
		}
		if Sealable(q, through) && sealed(q) {
			over[q] = true
		} else if n := first(q); n != 0 {
			until = min(until, n-1) // its iterations are still needed
		}
	}
	released := a.release(id, over)
	maps.Copy(g.past, over)
	e.Sequences = slices.DeleteFunc(e.Sequences, func(q *ledger.Sequence) bool { return g.past[q] && last(q) <= until })
	maps.DeleteFunc(g.known, func(_ uint32, q *ledger.Sequence) bool { return g.past[q] && last(q) <= until })
	maps.DeleteFunc(g.past, func(q *ledger.Sequence, _ bool) bool { return last(q) <= until })
	if until < e.First || len(e.Iterations) == 0 {
		return released
	}
	e.Firsts = account.Firsts(e)
	row := e.Row(until)
	e.Base, e.BaseEnd = row.Sums, row.End
	e.Iterations = slices.Clone(e.Iterations[until-e.First+1:])
	e.First = until + 1
	old := func(n uint64) bool { return n <= until }
	e.Preemptions = slices.DeleteFunc(e.Preemptions, func(p *ledger.Preemption) bool { return old(p.Iteration) })
	e.Evictions = slices.DeleteFunc(e.Evictions, func(v ledger.Eviction) bool { return old(v.Iteration) })
	if len(e.Gaps) > keepGaps {
		e.Gaps = slices.DeleteFunc(e.Gaps, func(g ledger.Gap) bool { return g.At <= e.BaseEnd })
	}
	e.Holdings = slices.DeleteFunc(e.Holdings, func(h ledger.Holding) bool { return old(h.Iteration) })
	return released
}

// first is the first iteration that a sequence lived through, 0 if it has seen none yet.
func first(q *ledger.Sequence) uint64 {
	n := q.Join
	if len(q.Skips) > 0 && (n == 0 || q.Skips[0].First < n) {
		n = q.Skips[0].First
	}
	return n
}

// last is the last iteration that a sequence that has ended lived through, 0 if it saw none.
func last(q *ledger.Sequence) uint64 {
	n := q.Leave
	if k := len(q.Skips); k > 0 {
		n = max(n, q.Skips[k-1].Last)
	}
	return n
}

// release forgets sequences of an engine wherever they are known, and the requests that have no other, which it returns.
func (a *Assembler) release(id ledger.EngineID, gone map[*ledger.Sequence]bool) []*ledger.Request {
	ended := map[*ledger.Request]bool{}
	var out []*ledger.Request
	for q := range gone {
		r := q.Request
		if r != nil && !ended[r] && !slices.ContainsFunc(r.Sequences, func(s *ledger.Sequence) bool { return !gone[s] }) {
			ended[r] = true
			out = append(out, r)
		}
	}
	a.unname(gone, ended)
	for q := range gone {
		for _, incarnation := range []string{id.Incarnation, ""} { // it may have been met before its engine was known
			if key := (sequenceKey{incarnation, q.ID}); a.byID[key] == q {
				delete(a.byID, key)
			}
		}
	}
	a.drop(ended)
	for _, s := range a.sources {
		if s.id.Incarnation == id.Incarnation {
			maps.DeleteFunc(s.handles, func(_ uint32, q *ledger.Sequence) bool { return gone[q] })
			maps.DeleteFunc(s.http, func(_ uint32, r *ledger.Request) bool { return ended[r] })
		}
	}
	return out
}

// unname makes requests that are gone unknown under their names.
func (a *Assembler) unname(gone map[*ledger.Sequence]bool, ended map[*ledger.Request]bool) {
	for r := range ended {
		if a.byTrace[r.TraceID] == r {
			delete(a.byTrace, r.TraceID)
		}
		rs := slices.DeleteFunc(a.byRequest[r.RequestID], func(k *ledger.Request) bool { return k == r })
		if len(rs) > 0 {
			a.byRequest[r.RequestID] = rs
		} else {
			delete(a.byRequest, r.RequestID)
		}
	}
	for q := range gone {
		for _, incarnation := range []string{incarnationOf(q), ""} {
			if parent := (sequenceKey{incarnation, q.Parent}); ended[a.byParent[parent]] {
				delete(a.byParent, parent)
			}
		}
	}
}

// drop takes requests off the list.
func (a *Assembler) drop(gone map[*ledger.Request]bool) {
	before := 0
	kept := a.requests[:0]
	for i, r := range a.requests {
		if !gone[r] {
			kept = append(kept, r)
		} else if i < a.sorted {
			before++
		}
	}
	clear(a.requests[len(kept):])
	a.requests = kept
	a.sorted -= before
}

// Sealable reports whether a sequence ended in iterations up to through, and its request's exchange with it: nothing more can
// be told of it. An exchange whose front end was not seen ends with its sequences. See [Assembler.Abandon] for those whose end is lost.
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
