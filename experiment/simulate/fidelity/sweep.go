package fidelity

import (
	"slices"

	"github.com/whylate/whylate/ledger"
)

// sweep goes through an engine's decisions in order, and says what each was. It looks only at who is live.
type sweep struct {
	e           *ledger.Engine
	byID        map[string]*ledger.Sequence
	live        []*place
	preemptions []*ledger.Preemption // of decisions to come
}

// place is how far a sequence's stints have been gone through.
type place struct {
	q      *ledger.Sequence
	stint  int
	before uint64 // computed before its next iteration, as its engine counted then
}

func newSweep(e *ledger.Engine) *sweep {
	s := &sweep{e: e, byID: make(map[string]*ledger.Sequence, len(e.Sequences)), preemptions: e.Preemptions}
	for _, q := range e.Sequences {
		s.byID[q.ID] = q
	}
	return s
}

// enter takes up a sequence that has been queued; nil if the ledger does not know it.
func (s *sweep) enter(id string) *ledger.Sequence {
	q := s.byID[id]
	if q != nil && len(q.Stints) > 0 {
		s.live = append(s.live, &place{q: q, before: uint64(q.Stints[0].Before)})
	}
	return q
}

// at is the decision of iteration n; it is asked of one after the other.
func (s *sweep) at(n uint64) *Decided {
	d := &Decided{Number: n, Members: map[string]Share{}}
	row := s.e.Row(n)
	if row == nil {
		return d
	}
	d.Running, d.Waiting, d.Free = int(row.Running), int(row.Waiting), int(row.FreeBlocks)
	d.Left = row.Members < row.Running+row.Waiting
	for len(s.preemptions) > 0 && s.preemptions[0].Iteration <= n {
		if p := s.preemptions[0]; !p.Reset {
			d.Preempted = append(d.Preempted, p.Victim.ID)
		}
		s.preemptions = s.preemptions[1:]
	}
	kept := s.live[:0]
	for _, p := range s.live {
		if share, in := p.share(n); in {
			d.Members[p.q.ID] = share
		}
		if p.stint < len(p.q.Stints) {
			kept = append(kept, p)
		}
	}
	s.live = kept
	return d
}

// done takes the drafts that iteration n had rejected off what its members have computed: its engine knew of them no sooner.
func (s *sweep) done(n uint64) {
	for _, p := range s.live {
		for i := min(p.stint, len(p.q.Stints)-1); i >= 0 && p.q.Stints[i].Last >= n; i-- {
			if st := &p.q.Stints[i]; st.First <= n {
				_, rejected := st.DraftsIn(n)
				p.before -= uint64(rejected)
			}
		}
	}
}

// share is a sequence's part of iteration n.
func (p *place) share(n uint64) (Share, bool) {
	for p.stint < len(p.q.Stints) && p.q.Stints[p.stint].Last < n {
		last := p.q.Stints[p.stint].Last
		if p.stint++; p.stint < len(p.q.Stints) && p.preempted(last, p.q.Stints[p.stint].First) {
			p.before = uint64(p.q.Stints[p.stint].Before)
		}
	}
	if p.stint == len(p.q.Stints) || p.q.Stints[p.stint].First > n {
		return Share{}, false
	}
	st := &p.q.Stints[p.stint]
	drafts, _ := st.DraftsIn(n)
	m := Share{Tokens: int(st.TokensIn(n)), Before: int(p.before), Drafts: int(drafts), Prompt: int(p.q.Prompt)}
	p.before += uint64(m.Tokens)
	return m, true
}

// preempted reports whether the sequence lost its blocks between two of its stints.
func (p *place) preempted(last, first uint64) bool {
	return slices.ContainsFunc(p.q.Preemptions, func(x *ledger.Preemption) bool { return last < x.Iteration && x.Iteration <= first })
}
