package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// Slice implements [store.Sealed].
func (s *Store) Slice(ctx context.Context, engine ledger.EngineID, from, to uint64) (*store.Slice, error) {
	for {
		ps, err := s.all("read iterations")
		if err != nil {
			return nil, err
		}
		out, err := s.slice(ctx, ofEngine(ps, engine), engine, from, to, nil, 0)
		if !errors.Is(err, errGone) {
			return out, err
		}
	}
}

// Load implements [store.Sealed].
func (s *Store) Load(ctx context.Context, ref store.RequestRef) (*store.Slice, error) {
	for {
		ps, err := s.all("load a request")
		if err != nil {
			return nil, err
		}
		p, row, err := resolve(ps, ref)
		if err != nil {
			return nil, err
		}
		out, err := s.load1(ctx, ps, p, row)
		if !errors.Is(err, errGone) {
			return out, err
		}
	}
}

// resolve finds the period of a reference, also if it was merged into another since.
func resolve(ps []*period, ref store.RequestRef) (*period, int64, error) {
	for _, p := range ps {
		if p.m.ID == ref.Period {
			return p, ref.Row, nil
		}
		for _, r := range p.m.Replaces {
			if r.ID == ref.Period {
				return p, r.Requests + ref.Row, nil
			}
		}
	}
	return nil, 0, &store.Error{Err: store.ErrNotFound, What: "load request " + ref.Name, Where: ref.Period, Value: "there is no such period", Remedy: "its retention may be over; look for the request again"}
}

func (s *Store) load1(ctx context.Context, ps []*period, p *period, row int64) (*store.Slice, error) {
	var r store.RequestRow
	err := p.use([]string{"requests"}, func(t map[string]*table) error {
		rows, err := readRows[store.RequestRow](t["requests"], row, 1)
		if err == nil && len(rows) == 0 {
			err = &store.Error{Err: store.ErrNotFound, What: "load a request", Where: p.m.ID, Value: fmt.Sprintf("row %d", row), Remedy: "look for the request again"}
		}
		if err == nil {
			r = rows[0]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.Level == 1 {
		calls, err := p.callsOf(row)
		return &store.Slice{Request: requestOf(&r, nil), Row: plain(r), Calls: calls}, err
	}
	return s.slice(ctx, ofEngine(ps, p.m.Engine), p.m.Engine, uint64(r.First), uint64(r.Last), p, row)
}

// slice puts iterations from … to of an engine together from its periods. owner and row name a request that is wanted whole; owner is nil
// if none is.
func (s *Store) slice(ctx context.Context, ps []*period, id ledger.EngineID, from, to uint64, owner *period, row int64) (*store.Slice, error) {
	b := &slicer{from: from, to: to, out: &store.Slice{}, byID: map[string]*piece{}, strangers: map[string]*ledger.Request{}}
	began := earlierOf(ps)
	b.out.Firsts, b.out.Began = began.firsts, began.began
	var expired error
	for _, p := range ps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		detail := to != 0 && p.m.First != 0 && p.m.First <= to && p.m.Last >= from
		if !detail && p != owner {
			continue
		}
		var want int64 = -1
		if p == owner {
			want = row
		}
		err := b.add(p, detail, want)
		switch {
		case err == nil:
		case errors.Is(err, store.ErrCorrupt) && p != owner:
			b.out.Missing = append(b.out.Missing, p.info())
		case errors.Is(err, store.ErrExpired) && p != owner:
			expired = err
		default:
			return nil, err
		}
	}
	if b.e == nil && b.request == nil && id != (ledger.EngineID{}) {
		if expired != nil {
			return nil, expired
		}
		if len(b.out.Missing) > 0 {
			return nil, &store.Error{Err: store.ErrCorrupt, What: "read iterations", Where: b.out.Missing[0].ID, Value: b.out.Missing[0].Damaged, Remedy: "restore the period from a copy"}
		}
		return nil, &store.Error{Err: store.ErrNotFound, What: "read iterations", Where: id.String(), Value: fmt.Sprintf("iterations %d to %d", from, to), Remedy: "list what is there with 'whylate store ls'"}
	}
	if expired != nil && owner != nil {
		return nil, expired
	}
	return b.finish(), nil
}

// slicer puts a slice together. Periods are added in order.
type slicer struct {
	from, to  uint64
	out       *store.Slice
	e         *ledger.Engine
	byID      map[string]*piece // sequences, by internal id: a guest of one period may be at home in another
	order     []*piece
	strangers map[string]*ledger.Request // requests of guests, by name
	request   *ledger.Request
	sums      ledger.Sums
	end       int64 // of the last iteration
}

// piece is a sequence as far as it is known so far.
type piece struct {
	q     *ledger.Sequence
	guest bool
	skips []skipPiece
}

// skipPiece is a skip row whose meaning may depend on iterations that are still to come.
type skipPiece struct {
	row  store.SkipRow
	head *ledger.Sequence
}

// sliceTables are what a slice is made of.
var sliceTables = []string{"engines", "iterations", "sequences", "stints", "skips", "preemptions", "holdings", "executions", "evictions", "requests", "clients", "gaps"}

// add adds what a period has: with detail its iterations and whoever was in them, and always the request in row want, if that is not −1.
func (b *slicer) add(p *period, detail bool, want int64) error {
	return p.use(sliceTables, func(t map[string]*table) error {
		r := &periodReader{b: b, p: p, t: t, rows: map[int32]*piece{}, requests: map[int32]*home{}}
		return r.read(detail, want)
	})
}

// periodReader reads one period into a slice.
type periodReader struct {
	b        *slicer
	p        *period
	t        map[string]*table
	rows     map[int32]*piece // sequences by row
	requests map[int32]*home
}

// home is a request of the period and the rows of its sequences.
type home struct {
	q         *ledger.Request
	sequences []int32
}

func (r *periodReader) read(detail bool, want int64) error {
	b := r.b
	engines, err := readRows[store.EngineRow](r.t["engines"], 0, r.p.m.Files["engines"].Rows)
	if err != nil {
		return err
	}
	if b.e == nil && len(engines) > 0 {
		if b.e, err = engineOf(&engines[len(engines)-1]); err != nil {
			return err
		}
		b.out.Engine = b.e
	}
	if len(engines) > 0 && want < 0 {
		if b.out.Model, err = modelOf(&engines[len(engines)-1]); err != nil {
			return err
		}
	}
	refs := map[int32]bool{}
	var iterations []store.IterationRow
	var preemptions []store.PreemptionRow
	var holdings []store.HoldingRow
	var evictions []store.EvictionRow
	if detail {
		if iterations, err = r.iterations(engines, refs); err != nil {
			return err
		}
		if preemptions, err = r.preemptions(refs); err != nil {
			return err
		}
		if holdings, err = r.holdings(refs); err != nil {
			return err
		}
		if evictions, err = r.evictions(refs); err != nil {
			return err
		}
		if err := r.overlapping(refs); err != nil {
			return err
		}
	}
	var target store.RequestRow
	if want >= 0 {
		rows, err := readRows[store.RequestRow](r.t["requests"], want, 1)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return fmt.Errorf("requests.parquet: row %d of %d", want, r.t["requests"].file.NumRows())
		}
		target = rows[0]
		for _, k := range target.SequenceRows {
			refs[k] = true
		}
		if int(target.Stretch) < len(engines) {
			if b.out.Model, err = modelOf(&engines[target.Stretch]); err != nil {
				return err
			}
		}
	}
	delete(refs, -1)
	if err := r.sequences(refs); err != nil {
		return err
	}
	if want >= 0 {
		b.out.Row = plain(target)
		if err := r.requestRows([]int32{int32(want)}); err != nil { // one without sequences has not been met yet
			return err
		}
		b.request = r.requests[int32(want)].q
		b.out.Request = b.request
	}
	if detail {
		r.events(iterations, preemptions, holdings, evictions)
	}
	return r.gaps(detail)
}

// iterations reads the rows of the slice and appends them to the engine.
func (r *periodReader) iterations(engines []store.EngineRow, refs map[int32]bool) ([]store.IterationRow, error) {
	b, m := r.b, &r.p.m
	first, last := max(b.from, m.First), min(b.to, m.Last)
	begin := int64(first - m.First)
	if begin > 0 { // with the one before, for its end
		begin--
	}
	rows, err := readRows[store.IterationRow](r.t["iterations"], begin, int64(last-m.First)-begin+1)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || len(engines) == 0 || uint64(rows[len(rows)-1].Iteration) != last {
		return nil, fmt.Errorf("iterations.parquet: iteration %d is not in its row", last)
	}
	end := engines[0].PreviousEnd
	if first > m.First {
		end, rows = rows[0].End, rows[1:]
	}
	e := b.e
	if len(e.Iterations) == 0 {
		e.First, e.BaseEnd = first, end
		b.end = end
	} else if e.Last()+1 != first { // a period between is missing: rows that say so
		for n := e.Last() + 1; n < first; n++ {
			b.sums.Unknown += end - b.end
			e.Iterations = append(e.Iterations, ledger.Iteration{Number: n, Start: end, End: end, Sums: b.sums})
			b.end = end
		}
	}
	b.end = end
	e.Iterations = slices.Grow(e.Iterations, len(rows))
	for i := range rows {
		it := iterationOf(&rows[i], b.end, b.sums)
		b.end, b.sums = it.End, it.Sums
		e.Iterations = append(e.Iterations, it)
		refs[rows[i].Head] = true
	}
	executions, err := between[store.ExecutionRow](r.t["executions"], first, last)
	for i := range executions {
		if row := e.Row(uint64(executions[i].Iteration)); row != nil {
			row.Execution = executionOf(&executions[i])
		}
	}
	return rows, err
}

// between reads the rows of a table that is sorted by iteration whose iteration lies in from … to.
func between[T any](t *table, from, to uint64) ([]T, error) {
	spans, err := t.pagesWhere("iteration", func(least, most int64) bool { return least <= int64(to) && most >= int64(from) })
	if err != nil {
		return nil, err
	}
	var out []T
	for _, s := range spans {
		numbers, err := t.readColumn("iteration", s)
		if err != nil {
			return nil, err
		}
		lo, _ := slices.BinarySearch(numbers, int64(from))
		hi, _ := slices.BinarySearch(numbers, int64(to)+1)
		rows, err := readRows[T](t, s.from+int64(lo), int64(hi-lo))
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

func (r *periodReader) preemptions(refs map[int32]bool) ([]store.PreemptionRow, error) {
	rows, err := between[store.PreemptionRow](r.t["preemptions"], r.b.from, r.b.to)
	for _, p := range rows {
		refs[p.Victim], refs[p.Preemptor] = true, true
	}
	return rows, err
}

func (r *periodReader) evictions(refs map[int32]bool) ([]store.EvictionRow, error) {
	rows, err := between[store.EvictionRow](r.t["evictions"], r.b.from, r.b.to)
	for _, v := range rows {
		refs[v.LastUser] = true
	}
	return rows, err
}

// holdings reads the reports of the slice, and the one before it: it is in force when the slice begins.
func (r *periodReader) holdings(refs map[int32]bool) ([]store.HoldingRow, error) {
	t := r.t["holdings"]
	from := r.b.from
	spans, err := t.pagesWhere("iteration", func(least, most int64) bool { return least < int64(from) })
	if err != nil {
		return nil, err
	}
	if n := len(spans); n > 0 && len(r.b.e.Holdings) == 0 {
		s := spans[n-1]
		s.from = max(s.from, s.to-pageBytes/4) // more than a page of integers has: the last one is enough
		numbers, err := t.readColumn("iteration", s)
		if err != nil {
			return nil, err
		}
		if i, _ := slices.BinarySearch(numbers, int64(from)); i > 0 {
			from = uint64(numbers[i-1])
		}
	}
	rows, err := between[store.HoldingRow](t, from, r.b.to)
	for _, h := range rows {
		refs[h.Head], refs[h.Holder] = true, true
	}
	return rows, err
}

// overlapping finds the sequences that were there in the slice's iterations, by the pages' own bounds first.
func (r *periodReader) overlapping(refs map[int32]bool) error {
	t := r.t["sequences"]
	early, err := t.pagesWhere("first_iteration", func(least, _ int64) bool { return least <= int64(r.b.to) })
	if err != nil {
		return err
	}
	late, err := t.pagesWhere("last_iteration", func(_, most int64) bool { return most >= int64(r.b.from) })
	if err != nil {
		return err
	}
	for _, s := range intersect(early, late) {
		firsts, err := t.readColumn("first_iteration", s)
		if err != nil {
			return err
		}
		lasts, err := t.readColumn("last_iteration", s)
		if err != nil {
			return err
		}
		for i := range firsts {
			if firsts[i] != 0 && firsts[i] <= int64(r.b.to) && lasts[i] >= int64(r.b.from) {
				refs[int32(s.from)+int32(i)] = true
			}
		}
	}
	return nil
}

// intersect returns the rows that are in both lists.
func intersect(a, b []span) []span {
	var out []span
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if f, t := max(a[i].from, b[j].from), min(a[i].to, b[j].to); f < t {
			out = append(out, span{f, t})
		}
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}
	return out
}

// runs groups sorted rows into spans; those that lie close are read in one go.
func runs(rows []int32) []span {
	const near = 16
	var out []span
	for _, k := range rows {
		if n := len(out); n > 0 && int64(k) <= out[n-1].to+near {
			out[n-1].to = max(out[n-1].to, int64(k)+1)
		} else {
			out = append(out, span{int64(k), int64(k) + 1})
		}
	}
	return out
}
