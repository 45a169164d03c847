package embedded

import (
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// Almost every skip says what its iterations say already: who waits, waits for what stopped admission. When that changes back and
// forth, every waiting sequence gets a new skip each time, and the skips would be the largest table. So a run of skips that
// follow from the iterations is kept as one row with reason 0, and made anew when it is read.

// derived is the skip of a waiting sequence that follows from an iteration. It is the rule of docs/formats/stream.md §2, message 12.
func derived(it *ledger.Iteration, q *ledger.Sequence, away bool) ledger.Skip {
	s := ledger.Skip{Reason: it.Stop, Away: away}
	switch {
	case s.Reason == ledger.SkipNone:
		s.Reason = ledger.SkipOther
	case s.Reason == ledger.SkipKVBlocks && it.Head != nil && it.Head != q:
		s.Reason, s.Head = ledger.SkipHeadOfLine, it.Head
	}
	return s
}

func sameSkip(a, b *ledger.Skip) bool {
	return a.Reason == b.Reason && a.Code == b.Code && a.Head == b.Head && a.Away == b.Away
}

// skips makes the rows of those of a sequence's skips that touch iterations begin … limit, cut off at limit.
func (w *rower) skips(q *ledger.Sequence, row int32, begin, limit uint64) {
	c := w.c
	joins := false // the last row follows from its iterations, and may be continued
	for i := range q.Skips {
		s := q.Skips[i]
		if s.First > limit {
			break
		}
		if s.Last < s.First { // still open
			s.Last = limit
		}
		if s.Last = min(s.Last, limit); s.Last < begin {
			continue
		}
		follows := w.follows(q, &s)
		if n := len(c.skips); follows && joins && c.skips[n-1].First+int64(c.skips[n-1].Iterations) == int64(s.First) && c.skips[n-1].Away == s.Away && !sameSkip(&q.Skips[i-1], &q.Skips[i]) {
			c.skips[n-1].Iterations += int32(s.Last - s.First + 1)
			continue
		}
		joins = follows
		r := store.SkipRow{Engine: w.key, Sequence: row, First: int64(s.First), Iterations: int32(s.Last - s.First + 1), Away: s.Away, Head: -1}
		if !follows {
			r.Reason, r.Code, r.Head = int32(s.Reason), int32(s.Code), w.ref(s.Head)
		}
		c.skips = append(c.skips, r)
	}
}

// follows reports whether a skip is what each of its iterations says. All of them must be in this period, since they are read with it.
func (w *rower) follows(q *ledger.Sequence, s *ledger.Skip) bool {
	if !w.inside(s.First) || !w.inside(s.Last) || s.Code != 0 || w.runs[s.First-w.p.First] != w.runs[s.Last-w.p.First] {
		return false
	}
	if it := w.e.Row(s.First); it.Known&ledger.KnownDecision != 0 {
		d := derived(it, q, s.Away)
		return sameSkip(&d, s)
	}
	return false
}

// expand makes the skips of a row that follows from its iterations, those of them that e has.
func expand(e *ledger.Engine, q *ledger.Sequence, first, last uint64, away bool) []ledger.Skip {
	var out []ledger.Skip
	for n := max(first, e.First); n <= min(last, e.Last()); n++ {
		d := derived(e.Row(n), q, away)
		if k := len(out); k > 0 && sameSkip(&out[k-1], &d) {
			out[k-1].Last = n
			continue
		}
		d.First, d.Last = n, n
		out = append(out, d)
	}
	return out
}
