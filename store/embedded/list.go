package embedded

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

const defaultLimit = 100

// List implements [store.Sealed]. It looks at the columns that choose and sort, passes over pages that cannot be among the first,
// and reads whole rows only of what it returns.
func (s *Store) List(ctx context.Context, f store.Filter) (store.RequestPage, error) {
	column, err := sortColumn(f.Sort)
	if err != nil {
		return store.RequestPage{}, err
	}
	f.Limit = cmp.Or(f.Limit, defaultLimit)
	after, err := parseMark(f.Page)
	if err != nil {
		return store.RequestPage{}, err
	}
	for {
		page, err := s.list(ctx, f, column, after)
		if !errors.Is(err, errGone) {
			return page, err
		}
	}
}

// sortColumn is the column of a sort key.
func sortColumn(by string) (string, error) {
	switch by {
	case "", "from":
		return "from_unix_ns", nil
	case "ttft", "tpot", "e2e":
		return by + "_ns", nil
	}
	for _, p := range account.Parts {
		if by == string(p) {
			return by + "_ns", nil
		}
	}
	return "", &store.Error{Err: store.ErrInvalid, What: "list requests", Where: "sort", Value: fmt.Sprintf("%q", by), Remedy: "choose from, ttft, tpot, e2e or a part's name"}
}

// mark is a row's place in the order of a list: the largest key first, then the newest, then by where it lies.
type mark struct {
	key, from int64
	period    string
	row       int64
}

func (m mark) compare(o mark) int {
	return cmp.Or(cmp.Compare(o.key, m.key), cmp.Compare(o.from, m.from), cmp.Compare(m.period, o.period), cmp.Compare(o.row, m.row))
}

func (m mark) String() string { return fmt.Sprintf("%d,%d,%d,%s", m.key, m.from, m.row, m.period) }

// parseMark reads the token of a page; nil for the first page.
func parseMark(s string) (*mark, error) {
	if s == "" {
		return nil, nil
	}
	var m mark
	if n, err := fmt.Sscanf(s, "%d,%d,%d,%s", &m.key, &m.from, &m.row, &m.period); n != 4 || err != nil {
		return nil, &store.Error{Err: store.ErrInvalid, What: "list requests", Where: "page", Value: fmt.Sprintf("%q", s), Remedy: "give what the page before ended with"}
	}
	return &m, nil
}

// worst is a heap of marks with the last one in order on top.
type worst []found

// found is a row that is among the first so far.
type found struct {
	mark
	p *period
}

func (w worst) Len() int           { return len(w) }
func (w worst) Less(i, j int) bool { return w[i].compare(w[j].mark) > 0 }
func (w worst) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *worst) Push(x any)        { *w = append(*w, x.(found)) }
func (w *worst) Pop() any {
	x := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return x
}

func (s *Store) list(ctx context.Context, f store.Filter, column string, after *mark) (page store.RequestPage, err error) {
	ps, err := s.all("list requests")
	if err != nil {
		return page, err
	}
	if f.Engine != nil {
		ps = ofEngine(ps, *f.Engine)
	}
	newestFirst(ps)
	var w worst
	for _, p := range ps {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		if p.m.Files != nil && (f.From != 0 && p.m.To < f.From || f.To != 0 && p.m.From >= f.To || f.At != 0 && (p.m.To < f.At || p.m.From > f.At)) {
			continue
		}
		err := p.use([]string{"requests"}, func(t map[string]*table) error { return p.best(t["requests"], f, column, after, &w) })
		switch {
		case errors.Is(err, store.ErrCorrupt):
			page.Missing = append(page.Missing, p.info())
		case err != nil:
			return page, err
		}
	}
	slices.SortFunc(w, func(a, b found) int { return a.compare(b.mark) })
	if len(w) > f.Limit {
		w = w[:f.Limit]
		page.Next = w[f.Limit-1].String()
	}
	return page, materialise(w, &page)
}

// best looks through one period for rows that belong among the first limit+1.
func (p *period) best(t *table, f store.Filter, column string, after *mark, w *worst) error {
	spans := []span{{0, t.file.NumRows()}}
	narrow := func(name string, may func(least, most int64) bool) error {
		s, err := t.pagesWhere(name, may)
		spans = intersect(spans, s)
		return err
	}
	until := cmp.Or(f.To, math.MaxInt64)
	if f.At != 0 {
		until = min(until, f.At+1)
	}
	if err := narrow("from_unix_ns", func(least, most int64) bool { return most >= f.From && least < until }); err != nil {
		return err
	}
	if f.Over > 0 {
		if err := narrow("e2e_ns", func(_, most int64) bool { return most > f.Over }); err != nil {
			return err
		}
	}
	for { // from the newest on; what has been found narrows what is left
		if err := narrow(column, func(least, most int64) bool {
			return (after == nil || least <= after.key) && (len(*w) <= f.Limit || most >= (*w)[0].key)
		}); err != nil {
			return err
		}
		if len(spans) == 0 {
			return nil
		}
		last := &spans[len(spans)-1]
		piece := span{max(last.from, last.to-listStep), last.to}
		if last.to = piece.from; last.from == last.to {
			spans = spans[:len(spans)-1]
		}
		if err := p.bestOf(t, piece, f, column, after, w); err != nil {
			return err
		}
	}
}

// listStep is how many rows are looked at at once.
const listStep = 1 << 14

func (p *period) bestOf(t *table, s span, f store.Filter, column string, after *mark, w *worst) error {
	keys, err := t.readColumn(column, s)
	if err != nil {
		return err
	}
	var froms []int64 // without a choice by time, equal keys come in the order in which they lie
	if column != "from_unix_ns" && (f.From != 0 || f.To != 0 || f.At != 0) {
		if froms, err = t.readColumn("from_unix_ns", s); err != nil {
			return err
		}
	}
	var lengths, seen []int64
	if f.Over > 0 || f.At != 0 {
		if lengths, err = t.readColumn("e2e_ns", s); err != nil {
			return err
		}
	}
	if p.m.Engine == (ledger.EngineID{}) {
		if seen, err = t.readColumn("seen_parts", s); err != nil {
			return err
		}
	}
	chosen, err := t.chosen(f, s)
	if err != nil {
		return err
	}
	for i, key := range keys {
		var from, length int64
		switch {
		case froms != nil:
			from = froms[i]
		case column == "from_unix_ns":
			from = key
		}
		if lengths != nil {
			length = lengths[i]
		}
		switch {
		case from < f.From || f.To != 0 && from >= f.To,
			f.Over > 0 && length <= f.Over,
			f.At != 0 && (from > f.At || from+length < f.At),
			seen != nil && seen[i] == 0,
			chosen != nil && !chosen[i],
			len(*w) > f.Limit && key < (*w)[0].key:
			continue
		}
		m := mark{key, from, p.m.ID, s.from + int64(i)}
		if after != nil && m.compare(*after) <= 0 {
			continue
		}
		if len(*w) <= f.Limit {
			heap.Push(w, found{m, p})
		} else if m.compare((*w)[0].mark) < 0 {
			(*w)[0] = found{m, p}
			heap.Fix(w, 0)
		}
	}
	return nil
}

// chosen says for each row whether its class and labels are those asked for; nil if it does not matter.
func (t *table) chosen(f store.Filter, s span) (rows []bool, err error) {
	equal := func(text, want string) bool { return text == want }
	for _, ask := range []struct {
		want    string
		columns map[string]func(text, want string) bool // any of them will do
	}{
		{f.Class, map[string]func(text, want string) bool{"class": equal, "class_label": ledger.LabelIs}},
		{f.Tenant, map[string]func(text, want string) bool{"tenant_label": ledger.LabelIs}},
		{f.Route, map[string]func(text, want string) bool{"route_label": ledger.LabelIs}},
	} {
		if ask.want == "" {
			continue
		}
		found := make([]bool, s.to-s.from)
		for name, is := range ask.columns {
			if !t.has(name) { // an older format did not keep it
				continue
			}
			i := 0
			if err := t.values(name, s, func(v parquet.Value) {
				found[i] = found[i] || is(parquetText(v), ask.want)
				i++
			}); err != nil {
				return nil, err
			}
		}
		for i := range rows { // what was asked for before
			found[i] = found[i] && rows[i]
		}
		rows = found
	}
	return rows, nil
}

// materialise reads the rows that were chosen.
func materialise(w worst, page *store.RequestPage) error {
	page.Rows = make([]store.Listed, len(w))
	byPeriod := map[*period][]int32{}
	place := map[*period]map[int32]int{}
	for i, k := range w {
		if place[k.p] == nil {
			place[k.p] = map[int32]int{}
		}
		place[k.p][int32(k.row)] = i
		byPeriod[k.p] = append(byPeriod[k.p], int32(k.row))
	}
	for p, rows := range byPeriod {
		slices.Sort(rows)
		err := p.use([]string{"requests"}, func(t map[string]*table) error {
			return scattered(t["requests"], rows, func(at int32, r *store.RequestRow) {
				row := plain(*r)
				page.Rows[place[p][at]] = store.Listed{Ref: store.RequestRef{Period: p.m.ID, Row: int64(at), Name: rowName(&row), At: row.From, Exact: true, Level: int(row.Level)}, Row: row}
			})
		})
		if err != nil {
			return err
		}
		if err := nameBySequence(p, rows, page.Rows, place[p]); err != nil {
			return err
		}
	}
	return nil
}

// nameBySequence names the rows of a period that have no id of their own, since no front end was seen: by the first of their sequences.
func nameBySequence(p *period, rows []int32, listed []store.Listed, place map[int32]int) error {
	nameless := map[int32][]*store.Listed{} // by the row of the first sequence
	var want []int32
	for _, at := range rows {
		if l := &listed[place[at]]; l.Ref.Name == unnamed && len(l.Row.SequenceRows) > 0 {
			first := l.Row.SequenceRows[0]
			nameless[first] = append(nameless[first], l)
			want = append(want, first)
		}
	}
	if len(want) == 0 {
		return nil
	}
	slices.Sort(want)
	return p.use([]string{"sequences"}, func(t map[string]*table) error {
		return scattered(t["sequences"], slices.Compact(want), func(at int32, q *sequenceIDs) {
			for _, l := range nameless[at] {
				r := requestOf(&l.Row, nil)
				r.Sequences = append(r.Sequences, sequenceOf(&store.SequenceRow{ID: q.ID, External: q.External, Parent: q.Parent, Templates: q.Templates}, r))
				l.Ref.Name = r.Name()
			}
		})
	})
}

// unnamed is how a request without any id is called.
const unnamed = "unknown"

// rowName is the id by which answers call a request, as far as its row alone says.
func rowName(r *store.RequestRow) string {
	return cmp.Or(r.RequestID, r.ResponseID, strings.TrimSpace(r.TraceID), unnamed)
}
