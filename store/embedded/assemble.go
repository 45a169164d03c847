package embedded

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// sequences reads the sequences in the given rows, their requests, the other sequences of those, and the runs of all of them.
func (r *periodReader) sequences(refs map[int32]bool) error {
	rows := map[int32]*store.SequenceRow{}
	if err := r.sequenceRows(slices.Sorted(maps.Keys(refs)), rows); err != nil {
		return err
	}
	wanted := map[int32]bool{}
	for _, q := range rows {
		if q.Request >= 0 {
			wanted[q.Request] = true
		}
	}
	if err := r.requestRows(slices.Sorted(maps.Keys(wanted))); err != nil {
		return err
	}
	var siblings []int32
	for _, h := range r.requests {
		for _, k := range h.sequences {
			if rows[k] == nil {
				siblings = append(siblings, k)
			}
		}
	}
	slices.Sort(siblings)
	if err := r.sequenceRows(siblings, rows); err != nil {
		return err
	}
	order := slices.Sorted(maps.Keys(rows))
	for _, k := range order {
		r.take(k, rows[k])
	}
	for _, k := range slices.Sorted(maps.Keys(r.requests)) {
		h := r.requests[k]
		h.q.Sequences = h.q.Sequences[:0]
		for _, at := range h.sequences {
			if r.rows[at] == nil {
				return fmt.Errorf("requests.parquet: row %d has a sequence in row %d, which is not there", k, at)
			}
			h.q.Sequences = append(h.q.Sequences, r.rows[at].q)
		}
	}
	return r.runsOf(order, rows)
}

func (r *periodReader) sequenceRows(want []int32, into map[int32]*store.SequenceRow) error {
	return scattered(r.t["sequences"], want, func(at int32, q *store.SequenceRow) { into[at] = q })
}

// scattered reads the wanted rows (sorted) of a table; those that lie close in one go.
func scattered[T any](t *table, want []int32, each func(at int32, row *T)) error {
	i := 0
	for _, s := range runs(want) {
		if s.from < 0 {
			return fmt.Errorf("row %d", s.from)
		}
		rows, err := readRows[T](t, s.from, s.to-s.from)
		if err != nil {
			return err
		}
		for ; i < len(want) && int64(want[i]) < s.to; i++ {
			if k := int64(want[i]) - s.from; k < int64(len(rows)) {
				each(want[i], &rows[k])
			} else {
				return fmt.Errorf("row %d is not there", want[i])
			}
		}
	}
	return nil
}

// requestRows reads requests that have not been read yet, with their clients.
func (r *periodReader) requestRows(want []int32) error {
	want = slices.DeleteFunc(want, func(k int32) bool { return r.requests[k] != nil })
	var failed error
	err := scattered(r.t["requests"], want, func(at int32, row *store.RequestRow) {
		clients, err := readRows[store.ClientRow](r.t["clients"], int64(row.ClientRow), int64(row.Clients))
		if err != nil {
			failed = err
		}
		r.requests[at] = &home{requestOf(row, clients), row.SequenceRows}
	})
	return cmp.Or(err, failed)
}

// take adds a sequence, or what this period knows better of one that is there already. Who points to it goes on pointing to it.
func (r *periodReader) take(at int32, row *store.SequenceRow) {
	b := r.b
	var request *ledger.Request
	if h := r.requests[row.Request]; row.Request >= 0 && h != nil {
		request = h.q
	} else {
		if request = b.strangers[row.RequestName]; request == nil {
			request = &ledger.Request{RequestID: row.RequestName}
			if row.RequestName == "" {
				request = &ledger.Request{}
			} else {
				b.strangers[row.RequestName] = request
			}
		}
	}
	q := sequenceOf(row, request)
	q.Engine = b.e
	if row.Engine == "" {
		q.Engine = nil
	}
	k := b.byID[q.ID]
	switch {
	case k == nil:
		k = &piece{q: q, guest: row.Guest}
		b.order = append(b.order, k)
		b.byID[q.ID] = k
	case !row.Guest: // at home: all of it is here
		*k.q = *q
		k.guest, k.skips = false, nil
	case k.guest: // still a guest, later
		q.Stints = k.q.Stints
		*k.q = *q
	}
	r.rows[at] = k
}

// runsOf reads stints and skips of sequences that were taken.
func (r *periodReader) runsOf(order []int32, rows map[int32]*store.SequenceRow) error {
	for len(order) > 0 { // neighbours' runs are neighbours
		n := 1
		for n < len(order) && order[n] == order[n-1]+1 {
			n++
		}
		first, last := rows[order[0]], rows[order[n-1]]
		stints, err := readRows[store.StintRow](r.t["stints"], int64(first.StintRow), int64(last.StintRow+last.Stints-first.StintRow))
		if err != nil {
			return err
		}
		skips, err := readRows[store.SkipRow](r.t["skips"], int64(first.SkipRow), int64(last.SkipRow+last.Skips-first.SkipRow))
		if err != nil {
			return err
		}
		for _, at := range order[:n] {
			row, k := rows[at], r.rows[at]
			if !k.guest && row.Guest {
				continue // its home was read before
			}
			a, z := row.StintRow-first.StintRow, row.StintRow+row.Stints-first.StintRow
			c, e := row.SkipRow-first.SkipRow, row.SkipRow+row.Skips-first.SkipRow
			if a < 0 || c < 0 || int(z) > len(stints) || int(e) > len(skips) || a > z || c > e {
				return fmt.Errorf("sequences.parquet: row %d points outside of its runs", at)
			}
			mine := stints[a:z]
			if row.Usual {
				mine = usual(row, at)
			}
			for i := range mine {
				k.q.Stints = append(k.q.Stints, stintOf(&mine[i], k.q))
			}
			for _, s := range skips[c:e] {
				p := skipPiece{row: s}
				if h := r.rows[s.Head]; s.Head >= 0 && h != nil {
					p.head = h.q
				}
				k.skips = append(k.skips, p)
			}
		}
		order = order[n:]
	}
	return nil
}

// events puts heads, preemptions, holdings and evictions into the engine.
func (r *periodReader) events(iterations []store.IterationRow, preemptions []store.PreemptionRow, holdings []store.HoldingRow, evictions []store.EvictionRow) {
	e := r.b.e
	who := func(at int32) *ledger.Sequence {
		if k := r.rows[at]; at >= 0 && k != nil {
			return k.q
		}
		return nil
	}
	for i := range iterations {
		e.Row(uint64(iterations[i].Iteration)).Head = who(iterations[i].Head)
	}
	for _, p := range preemptions {
		e.Preemptions = append(e.Preemptions, &ledger.Preemption{Iteration: uint64(p.Iteration), At: p.At, Victim: who(p.Victim), Preemptor: who(p.Preemptor), Lost: uint32(p.Lost),
			Output: uint32(p.Output), FreeBlocks: uint32(p.FreeBlocks), Blocks: uint32(p.Blocks), Reset: p.Reset})
	}
	for i, h := range holdings {
		if i == 0 || holdings[i-1].Iteration != h.Iteration {
			e.Holdings = append(e.Holdings, ledger.Holding{Iteration: uint64(h.Iteration), Head: who(h.Head), Need: uint32(h.Need), Free: uint32(h.Free)})
		}
		if q := who(h.Holder); q != nil {
			last := &e.Holdings[len(e.Holdings)-1]
			last.Holders = append(last.Holders, ledger.Holder{Seq: q, Blocks: uint32(h.Blocks), Weight: h.Weight})
		}
	}
	for _, v := range evictions {
		e.Evictions = append(e.Evictions, ledger.Eviction{Iteration: uint64(v.Iteration), At: v.At, Seq: who(v.LastUser), Blocks: uint32(v.Blocks)})
	}
}

// gaps reads the gaps of the period: of its engine, or with a request that no engine took up those of the time.
func (r *periodReader) gaps(detail bool) error {
	rows, err := readRows[store.GapRow](r.t["gaps"], 0, r.p.m.Files["gaps"].Rows)
	if err == nil && r.b.e != nil && detail {
		r.b.e.Gaps = append(r.b.e.Gaps, gapsOf(rows, r.b.e.ID.String())...)
	}
	return err
}

// finish makes what depends on all periods: skips that follow from iterations, preemptions of each sequence, the order of everything.
func (b *slicer) finish() *store.Slice {
	requests := map[*ledger.Request]bool{}
	addRequest := func(r *ledger.Request) {
		if r != nil && !requests[r] {
			requests[r] = true
			b.out.Requests = append(b.out.Requests, r)
		}
	}
	slices.SortStableFunc(b.order, func(x, y *piece) int { return cmp.Compare(x.q.Queued, y.q.Queued) })
	for _, k := range b.order {
		q := k.q
		for _, s := range k.skips {
			first, last := uint64(s.row.First), uint64(s.row.First)+uint64(s.row.Iterations)-1
			if s.row.Reason != 0 {
				q.Skips = append(q.Skips, ledger.Skip{First: first, Last: last, Reason: ledger.SkipReason(s.row.Reason), Code: uint8(s.row.Code), Head: s.head, Away: s.row.Away})
			} else if b.e != nil {
				q.Skips = append(q.Skips, expand(b.e, q, first, last, s.row.Away)...)
			}
		}
		if k.guest { // a run that goes over the end of a period is in both
			q.Stints = longest(q.Stints, func(s *ledger.Stint) (uint64, uint64) { return s.First, s.Last })
			q.Skips = longest(q.Skips, func(s *ledger.Skip) (uint64, uint64) { return s.First, s.Last })
		}
		for i := range q.Stints {
			q.Stints[i].Seq = q
		}
		if q.Engine != nil && q.Engine == b.e {
			b.e.Sequences = append(b.e.Sequences, q)
		}
		addRequest(q.Request)
	}
	addRequest(b.request)
	if b.e != nil {
		for _, p := range b.e.Preemptions {
			if p.Victim != nil {
				p.Victim.Preemptions = append(p.Victim.Preemptions, p)
			}
		}
	}
	return b.out
}

// longest sorts runs and leaves out those that lie inside of another.
func longest[T any](runs []T, span func(*T) (first, last uint64)) []T {
	slices.SortStableFunc(runs, func(x, y T) int {
		f, l := span(&x)
		g, m := span(&y)
		return cmp.Or(cmp.Compare(f, g), cmp.Compare(m, l))
	})
	kept := runs[:0]
	for i := range runs {
		if n := len(kept); n > 0 {
			_, before := span(&kept[n-1])
			if _, last := span(&runs[i]); last <= before {
				continue
			}
		}
		kept = append(kept, runs[i])
	}
	return kept
}
