package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/store"
)

var (
	_ api.Service  = (*Server)(nil)
	_ api.Importer = (*Server)(nil)
	_ api.Teller   = (*Server)(nil)
)

// refuse says that the log is still being read.
func (s *Server) refuse() error {
	if !s.ready.Load() {
		return &api.Unavailable{What: "the log is still being read"}
	}
	return nil
}

// Explain implements [api.Service]: from the hot period, else from the sealed ones.
func (s *Server) Explain(ctx context.Context, q api.ExplainQuery) (*diagnose.Explanation, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	if q.ID != "" {
		return s.explain(ctx, q.ID)
	}
	worst := q.RequestsQuery
	worst.Sort, worst.Limit, worst.Page = cmp.Or(q.Sort, "e2e"), 1, ""
	list, err := s.Requests(ctx, worst)
	if err != nil {
		return nil, err
	}
	if len(list.Requests) == 0 {
		return s.hot.Explain(ctx, q) // says that nothing matches
	}
	id := list.Requests[0].IDs[0]
	return s.explain(ctx, id)
}

// explain explains the request with an id, with how its answer was judged.
func (s *Server) explain(ctx context.Context, id string) (*diagnose.Explanation, error) {
	x, err := s.explainTime(ctx, id)
	if err == nil {
		s.judge(x)
	}
	return x, err
}

// explainTime explains by the ledger, with what spans tell beside it, else by spans alone.
func (s *Server) explainTime(ctx context.Context, id string) (*diagnose.Explanation, error) {
	x, err := ofRequest(ctx, s, id, func(l *Local) (*diagnose.Explanation, error) { return l.Explain(ctx, api.ExplainQuery{ID: id}) })
	switch {
	case err == nil:
		return x, s.besides(ctx, x)
	case isNotFound(err):
		if x, other := s.explainCalls(ctx, id); x != nil || other != nil {
			return x, other
		}
	}
	return nil, err
}

// ofRequest asks who holds a request, and once more if it went from the hot period into a sealed one before it was asked about.
func ofRequest[A any](ctx context.Context, s *Server, id string, ask func(*Local) (A, error)) (answer A, err error) {
	for again := false; ; again = true {
		local, err := s.holds(ctx, id)
		if err != nil {
			return answer, err
		}
		answer, err = ask(local)
		var missing *query.NotFound
		if again || local != s.hot.Local || !errors.As(err, &missing) {
			return answer, err
		}
	}
}

// holds finds who can answer about the request with an id: the hot period, or a slice of a sealed one that holds it.
func (s *Server) holds(ctx context.Context, id string) (*Local, error) {
	unlock := s.hot.lock()
	r, err := s.hot.l.Find(id)
	exact := err == nil && slices.Contains(r.IDs(), id)
	unlock()
	if exact {
		return s.hot.Local, nil
	}
	refs, serr := s.store.Find(ctx, id, 11)
	if serr != nil {
		return nil, storeError(serr)
	}
	refs = slices.DeleteFunc(refs, func(r store.RequestRef) bool { return r.Level == 1 }) // of which the ledger knows nothing
	var several *query.Ambiguous
	switch {
	case len(refs) == 0, errors.As(err, &several) && !refs[0].Exact:
		return s.hot.Local, nil // which has it, or says that nobody has, or several
	case !refs[0].Exact && (err == nil || len(refs) > 1):
		var names []*ledger.Request
		if err == nil {
			names = append(names, r)
		}
		for _, ref := range refs {
			names = append(names, &ledger.Request{RequestID: ref.Name})
		}
		return nil, &query.Ambiguous{ID: id, Matches: names}
	}
	slice, serr := s.store.Load(ctx, refs[0])
	if serr != nil {
		return nil, storeError(serr)
	}
	return localOf(slice), nil
}

// localOf answers from a slice of a sealed period as from any book.
func localOf(slice *store.Slice) *Local {
	e := slice.Engine
	b := &ledger.Book{Requests: slice.Requests}
	if e != nil {
		e.Firsts, e.Began = slice.Firsts, slice.Began
		b.Engines = []*ledger.Engine{e}
		if row := e.Row(e.Completed()); row != nil {
			b.Now = row.End
		}
	}
	if slice.Request != nil {
		b.Now = max(b.Now, slice.Request.LastByte)
	}
	l := query.Open(b)
	if e != nil {
		l.UseModel(e, slice.Model)
	}
	return &Local{l: l}
}

// storeError says what a store's refusal means to who asks.
func storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrExpired):
		return &api.Unsupported{What: err.Error(), Remedy: "the list still has the sums of its account; keep iterations longer (store.retention.iterations)"}
	case errors.Is(err, store.ErrCorrupt):
		return &api.Damaged{What: err.Error(), Remedy: "'whylate store verify' names what is damaged; the rest answers"}
	case errors.Is(err, store.ErrInvalid):
		return &api.InvalidArgument{Argument: "request", Problem: err.Error()}
	}
	return err
}

// Requests implements [api.Service]: hot and sealed ones, merged in the order asked for. A page is named by how many rows came before.
func (s *Server) Requests(ctx context.Context, q api.RequestsQuery) (*api.RequestList, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	skip := 0
	if q.Page != "" {
		n, err := strconv.Atoi(q.Page)
		if err != nil || n < 0 {
			return nil, &api.InvalidArgument{Argument: "page", Value: q.Page, Problem: "give the next_page of the list before, as it was"}
		}
		skip = n
	}
	limit := q.Limit
	if limit == 0 {
		limit = maxRows
	}
	// Whatever the order, the rows of this page are among the first skip + limit of either kind.
	live := q
	live.Limit, live.Page = skip+limit, ""
	out, err := s.hot.Requests(ctx, live)
	if err != nil {
		return nil, err
	}
	page, err := s.store.List(ctx, filterOf(q, skip+limit+1))
	if err != nil {
		return nil, storeError(err)
	}
	rows := withoutSealed(out, page.Rows)
	calls, err := s.callRows(ctx, q, page.Rows)
	if err != nil {
		return nil, storeError(err)
	}
	out.Matched += len(calls)
	rows = append(rows, calls...)
	for i := range page.Rows {
		rows = append(rows, sealedRow(&page.Rows[i], q.Sort))
	}
	slices.SortStableFunc(rows, before)
	sealed := len(page.Rows)
	if page.Next != "" { // a filter's matches are only counted as far as they were read; without one all are known
		if n, err := s.sealedRequests(ctx); err == nil && unfiltered(q) {
			sealed = n
		}
	}
	out.Matched += sealed
	out.Requests, out.Next = nil, ""
	if skip < len(rows) {
		out.Requests = rows[skip:min(skip+limit, len(rows))]
	}
	out.Calls = callStatement(out.Requests)
	if skip+limit < len(rows) || page.Next != "" || skip+limit < out.Matched {
		out.Next = strconv.Itoa(skip + limit)
	}
	return out, nil
}

// withoutSealed gives the rows of a list of the hot period without those that have been sealed since it was made.
func withoutSealed(hot *api.RequestList, sealed []store.Listed) []api.RequestRow {
	type key struct {
		name     string
		received int64
	}
	there := map[key]bool{}
	for i := range sealed {
		there[key{sealed[i].Ref.Name, sealed[i].Row.From}] = true
	}
	n := len(hot.Requests)
	rows := slices.DeleteFunc(hot.Requests, func(r api.RequestRow) bool { return r.State == account.Finished && there[key{r.Name, r.Received}] })
	hot.Matched -= n - len(rows)
	return rows
}

func unfiltered(q api.RequestsQuery) bool {
	return q.At.IsZero() && q.From.IsZero() && q.To.IsZero() && q.Over == 0 && q.Class == "" && q.Tenant == "" && q.Route == ""
}

func (s *Server) sealedRequests(ctx context.Context) (int, error) {
	periods, err := s.store.Periods(ctx)
	n := 0
	for _, p := range periods {
		n += int(p.Requests)
	}
	return n, err
}

// maxRows bounds a list without a limit.
const maxRows = 10_000

// filterOf is a question as the store understands it.
func filterOf(q api.RequestsQuery, limit int) store.Filter {
	f := store.Filter{Class: q.Class, Tenant: q.Tenant, Route: q.Route, Over: int64(q.Over), Sort: q.Sort, Limit: limit}
	if !q.At.IsZero() {
		f.At = q.At.UnixNano()
	}
	if !q.From.IsZero() {
		f.From = q.From.UnixNano()
	}
	if !q.To.IsZero() {
		f.To = q.To.UnixNano()
	}
	return f
}

// before is the order of a list that is sorted by a key: the largest first, and of those without one the newest.
func before(a, b api.RequestRow) int {
	return cmp.Or(cmp.Compare(b.Sorted, a.Sorted), cmp.Compare(b.Received, a.Received))
}

// Iterations implements [api.Service].
func (s *Server) Iterations(ctx context.Context, q api.IterationsQuery) (*api.IterationList, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	if q.Request != "" {
		return ofRequest(ctx, s, q.Request, func(l *Local) (*api.IterationList, error) { return l.Iterations(ctx, q) })
	}
	if q.From == 0 {
		return s.hot.Iterations(ctx, q)
	}
	return ofIteration(ctx, s, q.Engine, q.From, cmp.Or(q.To, q.From+uint64(cmp.Or(q.Limit, 1000))), func(l *Local) (*api.IterationList, error) { return l.Iterations(ctx, q) })
}

// ofIteration asks who has iteration from of an engine, and once more if it was sealed before it was asked about.
func ofIteration[A any](ctx context.Context, s *Server, engine string, from, to uint64, ask func(*Local) (A, error)) (answer A, err error) {
	local, err := s.sealedAt(ctx, engine, from, to)
	if err == nil && local == nil {
		answer, err := ask(s.hot.Local)
		if local, _ = s.sealedAt(ctx, engine, from, to); local == nil {
			return answer, err
		}
	}
	if err != nil {
		return answer, err
	}
	return ask(local)
}

// Iteration implements [api.Service].
func (s *Server) Iteration(ctx context.Context, q api.IterationQuery) (*api.IterationDetail, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	return ofIteration(ctx, s, q.Engine, q.Number, q.Number, func(l *Local) (*api.IterationDetail, error) { return l.Iteration(ctx, q) })
}

// sealedAt returns a slice with iterations from … to of an engine if the first of them is sealed, else nil. The hot period may still have
// its row, for the sake of somebody who lives longer, but no longer all of its members.
func (s *Server) sealedAt(ctx context.Context, prefix string, from, to uint64) (*Local, error) {
	unlock := s.hot.lock()
	e, err := s.hot.engine(prefix)
	var hotFrom uint64
	if err == nil {
		hotFrom = e.First
	}
	unlock()
	var id ledger.EngineID
	switch {
	case err == nil:
		id = e.ID
		s.mu.Lock()
		through := s.sealed[id]
		s.mu.Unlock()
		if through == 0 || from >= hotFrom && from > through {
			return nil, nil
		}
	default: // an engine that is gone from memory
		periods, perr := s.store.Periods(ctx)
		if perr != nil {
			return nil, storeError(perr)
		}
		found := map[ledger.EngineID]bool{}
		for _, p := range periods {
			if strings.HasPrefix(p.Engine.String(), prefix) || strings.HasPrefix(p.Engine.Incarnation, prefix) {
				found[p.Engine] = true
			}
		}
		if len(found) != 1 {
			return nil, err
		}
		for id = range found {
		}
	}
	slice, serr := s.store.Slice(ctx, id, from, to)
	if err == nil && from >= hotFrom && (errors.Is(serr, store.ErrNotFound) || errors.Is(serr, store.ErrExpired)) {
		return nil, nil // the hot period outlived it
	}
	err = serr
	if errors.Is(err, store.ErrNotFound) {
		return nil, &api.InvalidArgument{Argument: "iteration", Value: fmt.Sprint(from), Problem: err.Error()}
	}
	if err != nil {
		return nil, storeError(err)
	}
	return localOf(slice), nil
}

// Odd implements [api.Service]: those of the hot period.
func (s *Server) Odd(ctx context.Context) (*api.OddList, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	return s.hot.Odd(ctx)
}

// Overview implements [api.Service].
func (s *Server) Overview(ctx context.Context) (*api.Overview, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	o, err := s.hot.Overview(ctx)
	if err != nil {
		return nil, err
	}
	periods, err := s.store.Periods(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	o.Faults = s.faults.list()
	if s.set.Faults != nil {
		o.Faults = append(o.Faults, s.set.Faults()...)
	}
	o.Storage = s.storage(periods)
	for _, p := range periods {
		o.Requests += int(p.Requests)
		if p.From != 0 && (o.From == 0 || p.From < o.From) {
			o.From = p.From
		}
	}
	return o, nil
}

// Watch implements [api.Service].
func (s *Server) Watch(ctx context.Context, since string) (<-chan api.Event, error) {
	return s.feed.Watch(ctx, since)
}

// sealedRow is a row of the requests table as a list shows it that is sorted by a key.
func sealedRow(l *store.Listed, by string) api.RequestRow {
	r := &l.Row
	row := api.RequestRow{Name: l.Ref.Name, Class: r.Class, Labels: r.Labels(), Received: r.From, State: account.State(r.State), Status: int(r.Status), End: ledger.End(r.End),
		Reason: ledger.FinishReason(r.Reason), E2E: r.E2E, TTFT: r.TTFT, TPOT: r.TPOT, Sequences: len(r.SequenceRows), Prompt: uint32(r.Prompt), Output: uint32(r.Output),
		Preemptions: int(r.Preemptions), Level: int(r.Level)}
	if t := r.SampledAt(); t.Known {
		row.Weight = t.Weight()
	}
	for _, id := range []string{l.Ref.Name, r.RequestID, r.ResponseID, r.TraceID} {
		if id != "" && !slices.Contains(row.IDs, id) {
			row.IDs = append(row.IDs, id)
		}
	}
	for i, ns := range []int64{r.Gateway, r.Frontend, r.Inbox, r.Queue, r.Prefill, r.Decode, r.Transfer, r.Stream, r.Unexplained} {
		if share := float64(ns) / float64(max(r.E2E, 1)); share > row.Share {
			row.Largest, row.Share = account.Parts[i], share
		}
		if string(account.Parts[i]) == by {
			row.Sorted = ns
		}
	}
	switch by {
	case "ttft":
		row.Sorted = r.TTFT
	case "tpot":
		row.Sorted = r.TPOT
	case "e2e":
		row.Sorted = r.E2E
	}
	return row
}
