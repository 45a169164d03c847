package ingest

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Book puts together what has been taken so far. The assembler must not be fed afterwards: the book shares its memory.
func (a *Assembler) Book() *ledger.Book {
	for _, s := range a.sources {
		s.batch.flush(s)
		for _, g := range s.refusals {
			if s.engine != nil {
				s.engine.e.Gaps = append(s.engine.e.Gaps, *g)
			} else {
				a.gaps = append(a.gaps, *g)
			}
		}
		s.refusals = map[wire.Type]*ledger.Gap{}
	}
	b := &ledger.Book{Notices: a.notices, Now: a.now}
	for _, w := range a.inInbox { // whom the scheduler has not taken up belong to their engine all the same
		if g := a.engines[w.engine]; g != nil && w.seq.Queued == 0 {
			w.seq.Engine = g.e
			g.e.Sequences = append(g.e.Sequences, w.seq)
		}
	}
	for _, g := range a.engines {
		g.settleBook()
		for _, v := range ledger.Check(g.e) {
			g.e.Gaps = append(g.e.Gaps, ledger.Gap{Producer: g.s.Name, Engine: g.e.ID.String(), At: v.At, Why: v.String()})
		}
		b.Engines = append(b.Engines, g.e)
	}
	slices.SortFunc(b.Engines, func(x, y *ledger.Engine) int {
		return cmp.Or(cmp.Compare(firstTime(x), firstTime(y)), cmp.Compare(x.ID.String(), y.ID.String()))
	})
	a.attach()
	a.joinClients()
	b.Requests, b.Gaps = a.requests, a.gaps
	slices.SortStableFunc(b.Requests, func(x, y *ledger.Request) int { return cmp.Compare(FirstSeen(x), FirstSeen(y)) })
	for _, s := range a.sources {
		b.Sources = append(b.Sources, s.Source)
	}
	return b
}

func firstTime(e *ledger.Engine) int64 {
	if len(e.Iterations) == 0 {
		return 0
	}
	return e.Iterations[0].Decided
}

// FirstSeen is the first time that anybody saw the request.
func FirstSeen(r *ledger.Request) int64 {
	t := r.Received
	for _, q := range r.Sequences {
		for _, s := range []int64{q.Submitted, q.Arrived, q.Queued} {
			if s != 0 && (t == 0 || s < t) {
				t = s
			}
		}
	}
	if t == 0 && len(r.Clients) > 0 {
		t = r.Clients[0].Sent
	}
	return t
}

// attach gives every sequence its request. Sequences whose front end was not seen get one of their own; children of
// one parent share it.
func (a *Assembler) attach() {
	type parentKey struct {
		e  *ledger.Engine
		id string
	}
	byParent := map[parentKey]*ledger.Request{}
	for _, q := range a.all {
		if q.Request == nil && q.Parent != "" {
			q.Request = byParent[parentKey{q.Engine, q.Parent}]
		}
		if q.Request == nil {
			q.Request = &ledger.Request{}
			a.requests = append(a.requests, q.Request)
			if q.Parent != "" {
				byParent[parentKey{q.Engine, q.Parent}] = q.Request
			}
		}
		q.Request.Sequences = append(q.Request.Sequences, q)
	}
	for _, r := range a.requests {
		slices.SortStableFunc(r.Sequences, func(x, y *ledger.Sequence) int { return cmp.Compare(x.Index, y.Index) })
		siblings := map[string]uint16{}
		for _, q := range r.Sequences {
			siblings[q.Parent]++
		}
		for _, q := range r.Sequences {
			if q.Parent != "" {
				q.N = max(q.N, siblings[q.Parent])
			}
		}
	}
	a.all = nil
}

// settleBook brings what is carried as sums up to the newest iteration, for live sequences and for those whose last
// decision has not been followed by another.
func (g *engine) settleBook() {
	last := g.current()
	bring := func(k *member) {
		q := k.seq
		if k.in {
			k.stint().Last = last
			q.Leave = last
		}
		if s := k.openSkip(); s != nil {
			s.Last = last
		}
		if k.ended {
			return
		}
		lastEmit(g.e, k)
	}
	for _, k := range g.members {
		bring(k)
	}
	for _, k := range g.gone {
		bring(k)
	}
	for _, q := range g.e.Sequences { // aborted ones: the engine did not say when they last emitted
		if q.Finished != 0 && q.LastEmit == 0 && q.FirstEmit != 0 {
			lastEmit(g.e, &member{seq: q})
		}
	}
}

// lastEmit finds the newest completed iteration in which a sequence emitted: the last of its decode stint, or the end of
// its prefill. Its output is counted the same way where the engine has not said it.
func lastEmit(e *ledger.Engine, k *member) {
	q := k.seq
	completed := e.Completed()
	var output uint64
	for i := range q.Stints {
		s := &q.Stints[i]
		l := min(s.Last, completed)
		if l < s.First {
			continue
		}
		if q.Finished != 0 { // what was computed after its end was thrown away
			for l >= s.First && e.Row(l).End > q.Finished {
				l--
			}
			if l < s.First {
				continue
			}
		}
		switch {
		case s.Phase == ledger.Decode:
			output += l - s.First + 1
			q.LastEmit = l
		case s.Final && l == s.Last:
			output++
			q.LastEmit = l
		}
	}
	if row := e.Row(q.LastEmit); row != nil {
		q.LastToken = row.End
	}
	if q.Output == 0 {
		q.Output = uint32(output)
	}
}
