package embedded

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// maxCandidates bounds how many requests of one period a short prefix may make us look at.
const maxCandidates = 1 << 16

// Find implements [store.Sealed].
func (s *Store) Find(ctx context.Context, prefix string, limit int) ([]store.RequestRef, error) {
	if prefix == "" || limit <= 0 {
		return nil, &store.Error{Err: store.ErrInvalid, What: "find a request", Value: "no id, or a limit of 0", Remedy: "give the beginning of an id"}
	}
	for {
		out, err := s.find(ctx, prefix, limit)
		if !errors.Is(err, errGone) {
			return out, err
		}
	}
}

func (s *Store) find(ctx context.Context, prefix string, limit int) ([]store.RequestRef, error) {
	ps, err := s.all("find a request")
	if err != nil {
		return nil, err
	}
	newestFirst(ps)
	for _, whole := range []bool{true, false} {
		if out, err := lookUp(ctx, ps, prefix, limit, whole); err != nil || len(out) > 0 {
			return out, err
		}
	}
	return nil, nil
}

// newestFirst sorts periods by their end.
func newestFirst(ps []*period) {
	slices.SortStableFunc(ps, func(a, b *period) int { return cmp.Compare(b.m.To, a.m.To) })
}

// lookUp looks for requests in periods that are sorted by [newestFirst]: those of which prefix is a whole id, or all.
func lookUp(ctx context.Context, ps []*period, prefix string, limit int, whole bool) (out []store.RequestRef, err error) {
	for _, p := range ps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(out) == limit && p.m.Files != nil && out[limit-1].At > p.m.To {
			break // whatever it has is older
		}
		if whole && !p.mayHave(prefix) {
			continue
		}
		refs, err := p.find(prefix, limit)
		if err != nil && !errors.Is(err, store.ErrCorrupt) { // the rest answers; Periods names what does not
			return nil, err
		}
		for _, ref := range refs {
			if ref.Exact || !whole {
				out = append(out, ref)
			}
		}
		slices.SortStableFunc(out, func(a, b store.RequestRef) int { return cmp.Compare(b.At, a.At) })
		out = out[:min(len(out), limit)]
	}
	return out, nil
}

// Has implements [store.Sealed].
func (s *Store) Has(ctx context.Context, engine ledger.EngineID, id string) (bool, error) {
	for {
		ps, err := s.all("look for a sequence")
		if err != nil {
			return false, err
		}
		known, err := has(ctx, ofEngine(ps, engine), id)
		if !errors.Is(err, errGone) {
			return known, err
		}
	}
}

// has reports whether a request that has a sequence with this internal id is sealed in one of the periods.
func has(ctx context.Context, ps []*period, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	for _, p := range slices.Backward(ps) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if !p.mayHave(id) {
			continue
		}
		refs, err := p.find(id, 1)
		if err != nil && !errors.Is(err, store.ErrCorrupt) {
			return false, err
		}
		if len(refs) > 0 && refs[0].Exact {
			return true, nil
		}
	}
	return false, nil
}

// find looks an id up in one period: the entries of the index that may be it, then the requests themselves.
func (p *period) find(prefix string, limit int) (out []store.RequestRef, err error) {
	err = p.use([]string{"ids", "requests", "sequences"}, func(t map[string]*table) error {
		near, rest, err := candidates(t["ids"], prefix)
		if err != nil {
			return err
		}
		for _, list := range [][]int32{near, rest} {
			slices.Sort(list)
			list = slices.Compact(list)
			for len(list) > 0 && len(out) < limit { // from the newest back, as many at once as may be needed
				n := min(len(list), limit-len(out))
				refs, err := p.check(t, list[len(list)-n:], prefix)
				if err != nil {
					return err
				}
				for _, ref := range refs {
					if !slices.ContainsFunc(out, func(r store.RequestRef) bool { return r.Row == ref.Row }) {
						out = append(out, ref)
					}
				}
				list = list[:len(list)-n]
			}
		}
		return nil
	})
	return out, err
}

// candidates returns the requests of the index's entries that begin with prefix, or are the beginning of it: near are those that may be
// the whole id.
func candidates(t *table, prefix string) (near, rest []int32, err error) {
	err = guard(func() error {
		from, err := t.pageBefore("id", prefix)
		if err != nil {
			return err
		}
		const step = 512
		var last []store.IDRow // the entries just before prefix, of which prefix goes on
		for at := from; ; at += step {
			rows, err := readRows[store.IDRow](t, at, step)
			if err != nil {
				return err
			}
			for _, e := range rows {
				switch {
				case strings.HasPrefix(e.ID, prefix):
					if e.ID == prefix {
						near = append(near, e.Request)
					} else if len(rest) < maxCandidates {
						rest = append(rest, e.Request)
					}
				case e.ID < prefix:
					if len(last) > 0 && last[0].ID != e.ID {
						last = last[:0]
					}
					if strings.HasPrefix(prefix, e.ID) {
						last = append(last, e)
					}
				default:
					rows = nil
				}
				if rows == nil {
					break
				}
			}
			if len(rows) < step {
				break
			}
		}
		for _, e := range last {
			near = append(near, e.Request)
		}
		return nil
	})
	return near, rest, err
}

// pageBefore returns the first row of the last page that begins before a text, in a column that is sorted.
func (t *table) pageBefore(name, text string) (int64, error) {
	k, err := t.column(name)
	if err != nil {
		return 0, err
	}
	var row, base int64
	for _, g := range t.file.RowGroups() {
		chunk := g.ColumnChunks()[k]
		ci, err := chunk.ColumnIndex()
		if err != nil {
			return 0, err
		}
		oi, err := chunk.OffsetIndex()
		if err != nil {
			return 0, err
		}
		for p := range ci.NumPages() {
			if parquetText(ci.MinValue(p)) >= text {
				return row, nil
			}
			row = base + oi.FirstRowIndex(p)
		}
		base += g.NumRows()
	}
	return row, nil
}

func parquetText(v parquet.Value) string { return string(v.ByteArray()) }

// requestIDs and sequenceIDs are the columns that ids are in, with the names and types of the tables they are read from.
type requestIDs struct {
	From         int64   `parquet:"from_unix_ns,delta"`
	RequestID    string  `parquet:"request_id,delta"`
	ResponseID   string  `parquet:"response_id,dict"`
	TraceID      string  `parquet:"trace_id,delta"`
	Templates    bool    `parquet:"templates"`
	SequenceRows []int32 `parquet:"sequence_rows,list" parquet-element:",delta"`
	Level        int32   `parquet:"level,dict"`
}

type sequenceIDs struct {
	ID        string `parquet:"id,delta"`
	External  string `parquet:"external_id,dict"`
	Parent    string `parquet:"parent_id,dict"`
	Templates bool   `parquet:"templates"`
}

// check reads requests (rows sorted) and returns those that have an id that is or begins with prefix, the newest first.
func (p *period) check(t map[string]*table, rows []int32, prefix string) (out []store.RequestRef, err error) {
	requests := make([]requestIDs, 0, len(rows))
	if err := scattered(t["requests"], rows, func(_ int32, r *requestIDs) { requests = append(requests, *r) }); err != nil {
		return nil, err
	}
	var want []int32
	for _, r := range requests {
		want = append(want, r.SequenceRows...)
	}
	slices.Sort(want)
	sequences := map[int32]*sequenceIDs{}
	if err := scattered(t["sequences"], slices.Compact(want), func(at int32, q *sequenceIDs) { sequences[at] = q }); err != nil {
		return nil, err
	}
	for i := len(requests) - 1; i >= 0; i-- {
		k := requests[i]
		r := requestOf(&store.RequestRow{RequestID: k.RequestID, ResponseID: k.ResponseID, TraceID: k.TraceID, Templates: k.Templates}, nil)
		for _, at := range k.SequenceRows {
			q := sequences[at]
			r.Sequences = append(r.Sequences, sequenceOf(&store.SequenceRow{ID: q.ID, External: q.External, Parent: q.Parent, Templates: q.Templates}, r))
		}
		ref, ok := store.RequestRef{Period: p.m.ID, Row: int64(rows[i]), Name: r.Name(), At: k.From, Level: int(k.Level)}, false
		for _, id := range r.IDs() {
			ok = ok || strings.HasPrefix(id, prefix)
			ref.Exact = ref.Exact || id == prefix
		}
		if ok {
			out = append(out, ref)
		}
	}
	return out, nil
}
