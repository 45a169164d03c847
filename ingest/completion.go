package ingest

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// clockSlack is how far a time of one scheduler thread may lie before an earlier one without being refused. The thread
// reads one monotonic clock, so anything beyond rounding is wrong.
const clockSlack = 1000 // ns

// done takes a completion.
func (g *engine) done(m *wire.Done) error {
	e, i := g.e, m.Iteration
	at := g.s.clock.at
	completed, end := at(m.Time), at(m.Returned)
	if i == 0 || i > 1<<62 {
		return fmt.Errorf("field iteration: %d; iterations are numbered from 1", i)
	}
	if end < completed {
		return fmt.Errorf("field returned: %d ns before time", completed-end)
	}
	if end < g.lastEnd-clockSlack {
		return fmt.Errorf("field time: done %d ns before the previous completion: the producer's monotonic clock went back", g.lastEnd-end)
	}
	if i > e.Last() { // its decision is missing
		if e.Last() == 0 {
			e.First, e.Began = i, i
		} else if err := g.holeError(i); err != nil {
			return err
		}
		for n := max(e.Last()+1, e.First); n <= i; n++ {
			g.openRow(ledger.Iteration{Number: n}, completed)
		}
		g.uncertain = true
	}
	d := g.decisionOf(i)
	if d == nil {
		return fmt.Errorf("field iteration: %d is not open: done twice, or out of order", i)
	}
	for g.open[0] != d { // completions come in launch order: the older ones are missing theirs
		g.close(g.open[0], completed, 0, 0)
	}

	quiet := map[uint32]bool{}
	sampled := map[uint32]uint32{}
	row := e.Row(i)
	row.Emitted = m.Tokens
	for _, emit := range m.Emits {
		row.Discarded += uint32(emit.Discarded)
		sampled[emit.Handle] = uint32(emit.Tokens) + uint32(emit.Discarded)
		if emit.Tokens == 0 {
			quiet[emit.Handle] = true
		}
		if k := g.find(emit.Handle); k != nil && !k.ended {
			k.extra += int(emit.Tokens) - 1
			if emit.Tokens == 0 {
				k.quiet = append(k.quiet, i)
			}
		}
	}
	d.reject(g, func(k *member) uint32 {
		if n, listed := sampled[k.handle]; listed {
			return n
		}
		return 1
	})
	row.Known |= ledger.KnownCompletion
	g.close(d, end, completed, row.Known)
	g.mute = slices.DeleteFunc(g.mute, func(k *member) bool {
		if k.due(i) && !quiet[k.handle] {
			emitFirst(k.seq, i, end)
		}
		return k.seq.FirstEmit != 0 || k.ended
	})
	for _, k := range d.finals {
		if !quiet[k.handle] {
			emitFirst(k.seq, i, end)
		} else if k.seq.FirstEmit == 0 && !k.ended && !slices.Contains(g.mute, k) {
			g.mute = append(g.mute, k)
		}
	}
	for _, f := range m.Finishes {
		k := g.members[f.Handle]
		if k == nil {
			continue
		}
		switch {
		case k.stintOf(i) == nil || quiet[f.Handle]: // it had emitted before, or nothing at all: an error, say
			g.aborted = append(g.aborted, k)
		default:
			k.seq.LastEmit, k.seq.LastToken = i, end
			emitFirst(k.seq, i, end)
		}
		g.end(k, end, f.Reason, f.Output)
	}
	return nil
}

// emitFirst notes a sequence's first token, once. A recompute that ends emits too, but not the first one.
func emitFirst(q *ledger.Sequence, i uint64, end int64) {
	if q.FirstEmit == 0 {
		q.FirstEmit, q.FirstToken = i, end
	}
}

func (g *engine) decisionOf(i uint64) *decision {
	for _, d := range g.open {
		if d.number == i {
			return d
		}
	}
	return nil
}

// close ends the oldest open decision at end. completed is 0 if its completion is missing: then end is only the next thing
// known, and the whole tile counts as unknown.
func (g *engine) close(d *decision, end, completed int64, known ledger.Known) {
	it := g.e.Row(d.number)
	g.open = g.open[1:]
	end = max(end, g.lastEnd)
	from := g.lastEnd
	if from == 0 {
		from = it.Decided
		if from == 0 {
			from = end
		}
	}
	it.Completed = completed
	it.Start = max(it.Decided, from)
	it.End = end
	it.Sums = g.e.Base
	if prev := g.e.Row(d.number - 1); prev != nil {
		it.Sums = prev.Sums
	}
	switch {
	case known != ledger.KnownAll && it.Known&ledger.KnownDecision != 0:
		// The gap before it ended with its decision, which is known; the rest is not.
		it.Sums.Gap += it.Start - from
		it.Sums.Unknown += end - it.Start
	case known != ledger.KnownAll:
		it.Sums.Unknown += end - from
	case it.Tokens == 0:
		it.Sums.Gap += end - from
	default:
		it.Sums.Gap += it.Start - from
		it.Sums.Busy += end - it.Start
		it.Sums.Work = it.Sums.Work.Add(d.work)
	}
	g.lastEnd = end
	if completed == 0 { // whoever was due to emit did so by now; the time is the next thing known
		for _, k := range d.finals {
			if k.seq.FirstEmit == 0 {
				k.seq.FirstUncertain = true
			}
			emitFirst(k.seq, d.number, end)
		}
	}
}
