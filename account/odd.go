package account

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/numeric"
	"github.com/whylate/whylate/ledger"
)

// What makes an iteration odd: it took at least oddFactor times what the model expected, and at least oddExcess longer.
// The excess keeps ordinary jitter of very short iterations out; both are far outside any fitted model's own error.
const (
	oddFactor = 3.0
	oddExcess = 50e6 // ns
)

// Odd is a single iteration far above what its work explains. It needs no reference period and no second occurrence.
type Odd struct {
	Iteration *ledger.Iteration
	Expected  float64  // ns
	Excess    float64  // ns
	New       []New    // what it carried that no earlier iteration of the engine had, or that joined with it
	Waiters   []Waiter // who waited for it without being in it
	Members   []Member // who was in it
}

// New is something an iteration was the first to carry, with who brought it.
type New struct {
	What  string             // "logprobs"
	First bool               // no earlier iteration of this engine incarnation carried it
	By    []*ledger.Sequence // the members that brought it
}

// Waiter is a sequence that waited while an iteration ran that it was not a member of.
type Waiter struct {
	Seq   *ledger.Sequence
	NS    int64
	Where Part // inbox or queue
}

// FindOdd returns the odd iterations of e in the order of their excess. Without a model the median duration takes the
// place of the expectation.
func FindOdd(e *ledger.Engine, m *Model) []Odd {
	expect := func(it *ledger.Iteration) float64 { return m.Predict(WorkOf(e, it)) }
	if m == nil {
		var ds []float64
		for k := range e.Iterations {
			if it := &e.Iterations[k]; it.Complete() && it.Tokens > 0 {
				ds = append(ds, float64(it.Duration()))
			}
		}
		median := numeric.Quantile(ds, 0.5)
		expect = func(*ledger.Iteration) float64 { return median }
	}
	var out []Odd
	for k := range e.Iterations {
		it := &e.Iterations[k]
		if !it.Complete() || it.Tokens == 0 {
			continue
		}
		if want := expect(it); isOdd(it, want) {
			out = append(out, Odd{Iteration: it, Expected: want, Excess: float64(it.Duration()) - want})
		}
	}
	slices.SortFunc(out, func(a, b Odd) int { return cmp.Compare(b.Excess, a.Excess) })
	firsts := Firsts(e)
	for i := range out {
		out[i].look(e, m, firsts)
	}
	return out
}

// IsOdd reports whether an iteration is odd by the model, and what was expected of it in ns.
func IsOdd(e *ledger.Engine, m *Model, it *ledger.Iteration) (expected float64, odd bool) {
	if !it.Complete() || it.Tokens == 0 {
		return 0, false
	}
	expected = m.Predict(WorkOf(e, it))
	return expected, isOdd(it, expected)
}

func isOdd(it *ledger.Iteration, want float64) bool {
	got := float64(it.Duration())
	return got >= oddFactor*want && got-want >= oddExcess
}

// Inspect tells the same of any iteration that FindOdd tells of an odd one: members, what was new, who waited.
func Inspect(e *ledger.Engine, m *Model, it *ledger.Iteration) Odd {
	o := Odd{Iteration: it}
	o.look(e, m, Firsts(e))
	return o
}

func (o *Odd) look(e *ledger.Engine, m *Model, firsts map[string]uint64) {
	o.Members = Members(e, m, o.Iteration.Number)
	o.New = news(o.Members, firsts, o.Iteration.Number)
	if o.Iteration.End != 0 {
		o.Waiters = waiters(e, o.Iteration)
	}
}

// kinds are the things that an engine may have to do for the first time, with what tells that a member asks for it.
var kinds = []struct {
	what string
	has  func(s *ledger.Stint) bool
}{
	{"prefill", func(s *ledger.Stint) bool { return s.Phase == ledger.Prefill }},
	{"decode", func(s *ledger.Stint) bool { return s.Phase == ledger.Decode }},
	{"recompute after a preemption", func(s *ledger.Stint) bool { return s.Phase == ledger.Recompute }},
	{"logprobs", func(s *ledger.Stint) bool { return s.Seq.Logprobs >= 0 }},
	{"prompt_logprobs", func(s *ledger.Stint) bool { return s.Seq.PromptLogprobs >= 0 && s.Phase == ledger.Prefill }},
	{"penalties", func(s *ledger.Stint) bool { return s.Seq.Features&ledger.FeaturePenalties != 0 }},
	{"a grammar", func(s *ledger.Stint) bool { return s.Seq.Features&ledger.FeatureGrammar != 0 }},
	{"an adapter", func(s *ledger.Stint) bool { return s.Seq.Features&ledger.FeatureAdapter != 0 }},
	{"multimodal input", func(s *ledger.Stint) bool { return s.Seq.Features&ledger.FeatureMultimodal != 0 }},
}

// Firsts tells for each kind of work the first iteration of the engine that carried it. It is only meaningful when the
// engine was recorded from its start; otherwise "first" means first recorded.
func Firsts(e *ledger.Engine) map[string]uint64 {
	firsts := map[string]uint64{}
	maps.Copy(firsts, e.Firsts)
	for _, q := range e.Sequences {
		for k := range q.Stints {
			s := &q.Stints[k]
			for _, kind := range kinds {
				if n, ok := firsts[kind.what]; (!ok || s.First < n) && kind.has(s) {
					firsts[kind.what] = s.First
				}
			}
		}
	}
	return firsts
}

// news lists what iteration n was the first to carry, and what joined in it.
func news(members []Member, firsts map[string]uint64, n uint64) []New {
	var out []New
	for _, kind := range kinds {
		if firsts[kind.what] != n {
			continue
		}
		f := New{What: kind.what, First: true}
		for _, m := range members {
			for k := range m.Seq.Stints {
				if s := &m.Seq.Stints[k]; s.First <= n && n <= s.Last && kind.has(s) {
					f.By = append(f.By, m.Seq)
				}
			}
		}
		out = append(out, f)
	}
	joined := New{What: "newly scheduled"}
	for _, m := range members {
		if m.Joined {
			joined.By = append(joined.By, m.Seq)
		}
	}
	if joined.By != nil {
		out = append(out, joined)
	}
	return out
}

// waiters lists the sequences that stood in the inbox or the queue while it ran, the longest wait first.
func waiters(e *ledger.Engine, it *ledger.Iteration) []Waiter {
	var out []Waiter
	for _, q := range e.Sequences {
		if ns := overlap(q.Arrived, q.Queued, it); q.Arrived != 0 && ns > 0 {
			out = append(out, Waiter{q, ns, Inbox})
		}
		if q.Queued == 0 {
			continue
		}
		left := q.Finished
		switch { // by numbers: a slice of the engine does not have every row
		case q.Join == 0: // it never was a member
		case q.Join <= it.Number:
			left = it.Start
		default:
			left = it.End
		}
		if ns := overlap(q.Queued, left, it); ns > 0 {
			out = append(out, Waiter{q, ns, Queue})
		}
	}
	slices.SortStableFunc(out, func(a, b Waiter) int { return cmp.Compare(b.NS, a.NS) })
	return out
}

// overlap is how much of from … to (0 = still going on) lies inside the iteration.
func overlap(from, to int64, it *ledger.Iteration) int64 {
	if to == 0 {
		to = it.End
	}
	return max(0, min(to, it.End)-max(from, it.Start))
}
