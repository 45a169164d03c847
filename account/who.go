package account

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/ledger"
)

// Cost is what one sequence cost another: the modelled time of an interval with it minus without it. Marginal costs are
// answers to "who?"; they do not sum to anything and are never added up.
type Cost struct {
	Seq    *ledger.Sequence
	NS     float64
	Tokens uint64 // scheduled for it in the interval
	First  uint64 // first and last shared iteration
	Last   uint64
	Phase  ledger.Phase // in which it cost most
}

// Beside returns what every other sequence cost q in iterations from … to in which q was a member, the dearest first. Only
// stints for which want returns true count. Sequences of the same request are left out: they are the request's own work.
func Beside(m *Model, q *ledger.Sequence, from, to uint64, want func(*ledger.Stint) bool) []Cost {
	if m == nil || from > to {
		return nil
	}
	costs := map[*ledger.Sequence]*Cost{}
	top := map[*ledger.Sequence]float64{}
	for s := range q.Engine.Overlapping(from, to) {
		if s.Seq == q || q.Request != nil && s.Seq.Request == q.Request || !want(s) {
			continue
		}
		for k := range q.Stints {
			mine := &q.Stints[k]
			f, l := max(s.First, mine.First, from), min(s.Last, mine.Last, to)
			if f > l {
				continue
			}
			ns := m.Predict(ledger.MemberWork(s, f, l))
			c := costs[s.Seq]
			if c == nil {
				c = &Cost{Seq: s.Seq, First: f}
				costs[s.Seq] = c
			}
			c.NS += ns
			c.First, c.Last = min(c.First, f), max(c.Last, l)
			for i := f; i <= l; i++ {
				if s.Tokens == nil {
					c.Tokens += l - f + 1
					break
				}
				c.Tokens += uint64(s.TokensIn(i))
			}
			if ns > top[s.Seq] {
				top[s.Seq], c.Phase = ns, s.Phase
			}
		}
	}
	out := make([]Cost, 0, len(costs))
	for _, c := range costs {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Seq.ID, b.Seq.ID))
	})
	return out
}

// Prefills wants stints that compute prompt tokens, recompute included.
func Prefills(s *ledger.Stint) bool { return s.Phase != ledger.Decode }

// Decodes wants stints in decode.
func Decodes(s *ledger.Stint) bool { return s.Phase == ledger.Decode }

// MembersWork is the work of iteration n as its members say it: for an iteration in flight, which is in no sum yet.
func MembersWork(e *ledger.Engine, n uint64) ledger.Work {
	w := ledger.Work{ledger.WorkIterations: 1}
	for s := range e.Overlapping(n, n) {
		w = w.Add(ledger.MemberWork(s, n, n))
	}
	return w
}

// Member is one member of one iteration.
type Member struct {
	Seq      *ledger.Sequence
	Phase    ledger.Phase
	Tokens   uint32
	Before   uint32  // tokens computed before
	Drafts   uint32  // of the tokens, speculative ones
	Rejected uint32  // of the drafts, as far as the completion told
	Joined   bool    // was not a member of the iteration before
	Share    float64 // ns of the iteration's measured time; the members' shares sum to it
	Marginal float64 // ns of modelled time with it minus without it; these do not sum
}

// Members lists who was in iteration n of e and shares its measured duration out (invariant 6): the fixed cost equally, each
// member's own modelled work to it, and the residual in proportion. Without a model the time is shared by tokens.
func Members(e *ledger.Engine, m *Model, n uint64) []Member {
	it := e.Row(n)
	if it == nil {
		return nil
	}
	var out []Member
	var tokens, modelled float64
	for s := range e.Overlapping(n, n) {
		k := Member{Seq: s.Seq, Phase: s.Phase, Tokens: s.TokensIn(n), Before: uint32(s.ComputedBefore(n)), Joined: s.First == n && !memberAt(s.Seq, n-1)}
		k.Drafts, k.Rejected = s.DraftsIn(n)
		if m != nil {
			k.Marginal = m.Predict(ledger.MemberWork(s, n, n))
		}
		tokens += float64(k.Tokens)
		modelled += k.Marginal
		out = append(out, k)
	}
	if it.End == 0 || len(out) == 0 {
		return out
	}
	duration, count := float64(it.Duration()), float64(len(out))
	for i := range out {
		k := &out[i]
		switch {
		case m == nil || m.Coefficients[ledger.WorkIterations]+modelled == 0:
			k.Share = duration * float64(k.Tokens) / tokens
		default:
			fixed := m.Coefficients[ledger.WorkIterations]
			k.Share = duration * (fixed/count + k.Marginal) / (fixed + modelled)
		}
	}
	return out
}

func memberAt(q *ledger.Sequence, n uint64) bool {
	for k := range q.Stints {
		if s := &q.Stints[k]; s.First <= n && n <= s.Last {
			return true
		}
	}
	return false
}
