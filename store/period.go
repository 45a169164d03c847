package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ledger"
)

// Period is what is to be sealed: a run of iterations of one engine incarnation, and the requests that are over. Everybody who was in
// those iterations or waited goes with them: whose request is not among Requests is sealed as a guest, as far as it is known up
// to Last. So the time to seal is free: no request holds up a seal, and none is sealed before it is over.
//
// The store only reads what it points to, and only until it calls Copied.
type Period struct {
	Engine      *ledger.Engine // nil: requests that no engine took up
	First, Last uint64         // iterations, all of them done; 0 = none
	Requests    []*ledger.Request
	Model       *account.Model // nil: there is none
	Gaps        []ledger.Gap
	Calls       []Call // that spans told of, of a period without an engine
	Batch       uint64 // the last batch of the log of spans that Calls were made of
	Copied      func() // called at most once, before the writing begins: the ledger may change again; nil = nobody waits for it
}

// Call is a model call to be sealed.
type Call struct {
	*genai.Call
	As Standing
}

// Standing is how a call is kept.
type Standing int

// Standings of calls. Only an own one is counted in lists.
const (
	Own       Standing = iota
	View               // another view of a request that the ledger has
	Amendment          // spans that came after their call was sealed
)

// Cut makes the period of iterations after+1 … through of a live engine (as far as it has them) and of the requests of which over
// says that every sequence has ended by then. It copies no rows. It is nil if there is nothing to seal.
func Cut(e *ledger.Engine, requests []*ledger.Request, m *account.Model, after, through uint64, over func(*ledger.Sequence) bool) *Period {
	p := &Period{Engine: e, Model: m}
	first, last := max(after+1, e.First), min(through, e.Completed())
	if len(e.Iterations) > 0 && first <= last {
		p.First, p.Last = first, last
	}
	for _, r := range requests {
		if len(r.Sequences) > 0 && !slices.ContainsFunc(r.Sequences, func(q *ledger.Sequence) bool { return q.Engine != e || !over(q) }) {
			p.Requests = append(p.Requests, r)
		}
	}
	if p.First != 0 {
		from, to := e.TileStart(p.First), e.Row(p.Last).End
		for _, g := range e.Gaps {
			if g.At > from && g.At <= to || g.At <= from && p.First == e.First && e.BaseEnd == 0 {
				p.Gaps = append(p.Gaps, g)
			}
		}
	}
	if p.First == 0 && len(p.Requests) == 0 {
		return nil
	}
	return p
}

// Check says what a body would refuse: iterations that are not there or not done, requests that are not over or not of the engine.
func (p *Period) Check() error {
	bad := func(where, value, remedy string) error {
		return &Error{Err: ErrInvalid, What: "seal", Where: where, Value: value, Remedy: remedy}
	}
	if e := p.Engine; e != nil {
		if (p.First == 0) != (p.Last == 0) || p.First > p.Last {
			return bad(e.ID.String(), fmt.Sprintf("iterations %d to %d", p.First, p.Last), "give the first and the last iteration, or neither")
		}
		for n := p.First; n != 0 && n <= p.Last; n++ {
			if it := e.Row(n); it == nil || it.End == 0 {
				return bad(e.ID.String(), fmt.Sprintf("iteration %d is not there or not done", n), "seal up to the last completed iteration")
			}
		}
	} else if p.First != 0 {
		return bad("a period without an engine", fmt.Sprintf("iterations %d to %d", p.First, p.Last), "name the engine")
	}
	if p.Engine != nil && len(p.Calls) > 0 {
		return bad(p.Engine.ID.String(), fmt.Sprintf("%d calls", len(p.Calls)), "calls that spans told of are sealed without an engine")
	}
	for _, r := range p.Requests {
		for _, q := range r.Sequences {
			switch {
			case q.Engine != p.Engine:
				return bad("request "+r.Name(), "a sequence of another engine", "seal it with its own engine")
			case q.Engine != nil && (q.Finished == 0 || openRun(q)):
				return bad("request "+r.Name(), "sequence "+q.ID+" is not over", "only what has ended is sealed")
			}
		}
	}
	return nil
}

// openRun reports whether a run of the sequence is still going on, as far as its ledger knows.
func openRun(q *ledger.Sequence) bool {
	if n := len(q.Stints); n > 0 && q.Stints[n-1].Last == math.MaxUint64 {
		return true
	}
	n := len(q.Skips)
	return n > 0 && (q.Skips[n-1].Last == math.MaxUint64 || q.Skips[n-1].Last == 0)
}

// Span is the run of iterations in which a sequence was there, as a member or waiting; 0, 0 if there is none.
func Span(q *ledger.Sequence) (first, last uint64) {
	take := func(f, l uint64) {
		if l < f { // open, in an older way of saying so
			l = math.MaxUint64
		}
		if first == 0 || f < first {
			first = f
		}
		last = max(last, l)
	}
	for i := range q.Stints {
		take(q.Stints[i].First, q.Stints[i].Last)
	}
	for _, s := range q.Skips {
		take(s.First, s.Last)
	}
	return first, last
}

// Matters is the run of iterations of e that a request's account and explanation look at: from the one that ran when it
// reached the engine to the one that ran when it ended; 0, 0 if there is none.
func Matters(e *ledger.Engine, r *ledger.Request) (first, last uint64) {
	at := func(t int64) uint64 { // the first iteration that ended at t or later
		i, _ := slices.BinarySearchFunc(e.Iterations, t, func(it ledger.Iteration, t int64) int {
			if it.End == 0 {
				return 1
			}
			return cmp.Compare(it.End, t)
		})
		return e.First + uint64(i)
	}
	take := func(f, l uint64) {
		if first == 0 || f < first {
			first = f
		}
		last = max(last, l)
	}
	for _, q := range r.Sequences {
		if q.Engine != e || len(e.Iterations) == 0 {
			continue
		}
		if f, l := Span(q); f != 0 {
			take(f, l)
		}
		if t := cmp.Or(q.Arrived, q.Queued); t != 0 {
			take(at(t), at(t))
		}
		if q.Finished != 0 {
			take(at(q.Finished), at(q.Finished))
		}
	}
	if first == 0 {
		return 0, 0
	}
	first, last = max(first, e.First), min(last, e.Completed())
	if first > last {
		return 0, 0
	}
	return first, last
}
