// Package server builds whylate out of its parts. So far that is one body of [api.Service]: a ledger in memory.
package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// Local answers from a book in this process's memory. It may be asked by many at once; it answers one after the other.
type Local struct {
	mu sync.Mutex // models and accounts are made on first use
	l  *query.Ledger

	refresh func() // brings l up to date under the lock; nil for a book that does not grow
}

var _ api.Service = (*Local)(nil)

// NewLocal serves a book.
func NewLocal(b *ledger.Book) *Local { return &Local{l: query.Open(b)} }

// lock takes the lock, brings what is asked up to date, and returns what gives the lock back.
func (s *Local) lock() func() {
	s.mu.Lock()
	if s.refresh != nil {
		s.refresh()
	}
	return s.mu.Unlock
}

// Requests implements [api.Service].
func (s *Local) Requests(_ context.Context, q api.RequestsQuery) (*api.RequestList, error) {
	first := 0
	if q.Page != "" {
		n, err := strconv.Atoi(q.Page)
		if err != nil || n < 0 {
			return nil, &api.InvalidArgument{Argument: "page", Value: q.Page, Problem: "give the next_page of the list before, as it was"}
		}
		first = n
	}
	if err := checkLabels(q); err != nil {
		return nil, err
	}
	key, err := query.Key(q.Sort)
	if err != nil {
		return nil, &api.InvalidArgument{Argument: "sort", Value: q.Sort, Problem: err.Error()}
	}
	defer s.lock()()
	limit := 0
	if q.Limit > 0 {
		limit = first + q.Limit
	}
	chosen, err := s.l.Select(selector(q, q.Sort, limit))
	if err != nil {
		return nil, err
	}
	out := &api.RequestList{Matched: chosen.Matched, Statement: chosen.Statement, ClientOnly: len(s.l.ClientOnly())}
	for _, a := range chosen.Accounts[min(first, len(chosen.Accounts)):] {
		row := requestRow(a)
		if key != nil {
			row.Sorted = key(a)
		}
		out.Requests = append(out.Requests, row)
	}
	if n := len(chosen.Accounts); n < chosen.Matched {
		out.Next = strconv.Itoa(n)
	}
	return out, nil
}

// selector is a question as package query understands it.
func selector(q api.RequestsQuery, by string, limit int) query.Selector {
	return query.Selector{By: by, At: q.At, Over: q.Over, From: q.From, To: q.To, Class: q.Class, Tenant: q.Tenant, Route: q.Route, Limit: limit}
}

// checkLabels refuses what no label begins with. A class may be a name as well.
func checkLabels(q api.RequestsQuery) error {
	for _, l := range []struct{ argument, digits string }{{"tenant", q.Tenant}, {"route", q.Route}} {
		if l.digits == "" {
			continue
		}
		if err := ledger.CheckLabelDigits(l.digits); err != nil {
			return &api.InvalidArgument{Argument: l.argument, Value: l.digits, Problem: err.Error()}
		}
	}
	return nil
}

func requestRow(a *account.Account) api.RequestRow {
	r := a.Request
	row := api.RequestRow{Name: r.Name(), IDs: r.IDs(), Class: r.Class, Labels: r.Labels, Received: a.From, State: a.State, Status: r.Status, End: r.End,
		E2E: a.E2E(), TTFT: a.TTFT, TPOT: a.TPOT, Sequences: len(r.Sequences), Output: a.Output}
	for _, q := range r.Sequences {
		row.Prompt = max(row.Prompt, q.Prompt)
		row.Preemptions += len(q.Preemptions)
	}
	if a.Tail != nil {
		row.Reason = a.Tail.Reason
	}
	for _, l := range a.Lines {
		if l.Share > row.Share {
			row.Largest, row.Share = l.Part, l.Share
		}
	}
	return row
}

// Explain implements [api.Service].
func (s *Local) Explain(_ context.Context, q api.ExplainQuery) (*diagnose.Explanation, error) {
	defer s.lock()()
	if q.ID != "" {
		r, err := s.l.Find(q.ID)
		if err != nil {
			return nil, err
		}
		return diagnose.Explain(s.l, r), nil
	}
	if err := checkLabels(q.RequestsQuery); err != nil {
		return nil, err
	}
	chosen, err := s.l.Select(selector(q.RequestsQuery, cmp.Or(q.Sort, "e2e"), 1))
	if err != nil {
		return nil, &api.InvalidArgument{Argument: "slowest", Value: q.Sort, Problem: err.Error()}
	}
	if len(chosen.Accounts) == 0 {
		return nil, &query.NotFound{ID: "(the selector)", Count: len(s.l.Book.Requests)}
	}
	return diagnose.Explain(s.l, chosen.Accounts[0].Request), nil
}

func (s *Local) engine(prefix string) (*ledger.Engine, error) { return FindEngine(s.l.Book, prefix) }

// FindEngine finds an engine of a book by a prefix of its id or of its incarnation; "" means the only one.
func FindEngine(b *ledger.Book, prefix string) (*ledger.Engine, error) {
	var found []*ledger.Engine
	var ids []string
	for _, e := range b.Engines {
		ids = append(ids, e.ID.String())
		if strings.HasPrefix(e.ID.String(), prefix) || strings.HasPrefix(e.ID.Incarnation, prefix) {
			found = append(found, e)
		}
	}
	switch {
	case len(ids) == 0:
		return nil, &api.InvalidArgument{Argument: "engine", Value: prefix, Problem: "no scheduler was recorded in what was read"}
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return nil, &api.InvalidArgument{Argument: "engine", Value: prefix, Problem: "no such engine; there are " + strings.Join(ids, ", ")}
	}
	return nil, &api.InvalidArgument{Argument: "engine", Value: prefix, Problem: "name one of several with --engine: " + strings.Join(ids, ", ")}
}

// Iterations implements [api.Service].
func (s *Local) Iterations(_ context.Context, q api.IterationsQuery) (*api.IterationList, error) {
	defer s.lock()()
	var r *ledger.Request
	var e *ledger.Engine
	var err error
	if q.Request != "" {
		if r, err = s.l.Find(q.Request); err != nil {
			return nil, err
		}
		e = query.EngineOf(r)
		if e == nil {
			return nil, &api.InvalidArgument{Argument: "request", Value: q.Request, Problem: "no engine took it up"}
		}
	} else if e, err = s.engine(q.Engine); err != nil {
		return nil, err
	}
	m := s.l.Model(e)
	out := &api.IterationList{Engine: e.ID.String(), Model: modelRow(m)}
	from, to := max(q.From, e.First), e.Last()
	if q.To != 0 {
		to = min(to, q.To)
	}
	for n := from; n <= to; n++ {
		of := ""
		if r != nil {
			if of = s.did(r, n); of == "" {
				continue
			}
		}
		out.Matched++
		if q.Limit > 0 && len(out.Iterations) == q.Limit {
			out.Next = cmp.Or(out.Next, n)
			continue
		}
		row := iterationRow(e, m, e.Row(n))
		row.Of = of
		out.Iterations = append(out.Iterations, row)
	}
	return out, nil
}

// did says what the sequences of r did in iteration n, "" if they were not there.
func (s *Local) did(r *ledger.Request, n uint64) string {
	var words []string
	add := func(w string) {
		if !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	for _, q := range r.Sequences {
		for i := range q.Stints {
			if st := &q.Stints[i]; st.First <= n && n <= st.Last {
				if t := st.TokensIn(n); st.Phase == ledger.Decode && t == 1 {
					add("decode")
				} else {
					add(fmt.Sprintf("%s %d tokens", st.Phase, t))
				}
			}
		}
		for _, k := range q.Skips {
			if k.First <= n && n <= k.Last {
				word := "waited: " + k.Reason.String()
				if k.Away {
					word = "preempted: " + k.Reason.String()
				}
				if k.Head != nil && k.Head.Request != r {
					word += " (" + k.Head.Request.Name() + ")"
				}
				add(word)
			}
		}
	}
	return strings.Join(words, ", ")
}

func modelRow(m *account.Model) *diagnose.Model {
	if m == nil {
		return nil
	}
	return &diagnose.Model{Iterations: m.Rows, HeldOut: m.Held, Median: m.All.Median, P90: m.All.P90}
}

func iterationRow(e *ledger.Engine, m *account.Model, it *ledger.Iteration) api.IterationRow {
	row := api.IterationRow{Number: it.Number, Alias: it.Alias, Decided: it.Decided, Tokens: it.Tokens, Members: it.Members, Running: it.Running,
		Waiting: it.Waiting, Free: it.FreeBlocks, Emitted: it.Emitted, Discarded: it.Discarded, Stop: it.Stop, Need: it.Need, Complete: it.Complete(), InFlight: it.End == 0}
	if it.Head != nil {
		row.Head = it.Head.Request.Name()
	}
	for _, v := range evictions(e, it.Number) {
		row.Evicted += v.Blocks
	}
	if it.End == 0 {
		return row
	}
	w := account.WorkOf(e, it)
	row.Gap, row.Duration = it.Start-e.TileStart(it.Number), it.Duration()
	row.Prefill = uint32(w[ledger.WorkPrefillTokens])
	if m != nil && it.Complete() {
		row.Expected = int64(m.Predict(w))
	}
	return row
}

// evictions are those that were told at iteration n.
func evictions(e *ledger.Engine, n uint64) []ledger.Eviction {
	first, _ := slices.BinarySearchFunc(e.Evictions, n, func(v ledger.Eviction, n uint64) int { return cmp.Compare(v.Iteration, n) })
	last := first
	for last < len(e.Evictions) && e.Evictions[last].Iteration == n {
		last++
	}
	return e.Evictions[first:last]
}

// Iteration implements [api.Service].
func (s *Local) Iteration(_ context.Context, q api.IterationQuery) (*api.IterationDetail, error) {
	defer s.lock()()
	e, err := s.engine(q.Engine)
	if err != nil {
		return nil, err
	}
	it := e.Row(q.Number)
	if it == nil {
		return nil, &api.InvalidArgument{Argument: "iteration", Value: fmt.Sprint(q.Number), Problem: fmt.Sprintf("the engine's recorded iterations are %d to %d", e.First, e.Last())}
	}
	m := s.l.Model(e)
	d := &api.IterationDetail{Engine: e.ID.String(), Row: iterationRow(e, m, it), Statement: diagnose.DescribeIteration(s.l, e, it)}
	for _, k := range account.Members(e, m, it.Number) {
		d.Members = append(d.Members, api.MemberRow{Request: k.Seq.Request.Name(), Sequence: k.Seq.ID, Phase: k.Phase, Tokens: k.Tokens, Drafts: k.Drafts, Rejected: k.Rejected, Before: k.Before,
			Joined: k.Joined, Share: int64(k.Share), Marginal: int64(k.Marginal), Special: special(k.Seq)})
	}
	o := account.Inspect(e, m, it)
	d.New = newRows(o.New)
	seen := map[*ledger.Request]bool{}
	for _, w := range o.Waiters { // the longest wait of each request comes first
		if !seen[w.Seq.Request] {
			d.Waiters = append(d.Waiters, api.WaiterRow{Request: w.Seq.Request.Name(), NS: w.NS, Where: w.Where})
		}
		seen[w.Seq.Request] = true
	}
	for _, odd := range s.l.Odd(e) {
		d.Odd = d.Odd || odd.Iteration == it
	}
	for _, p := range e.Preemptions {
		if p.Iteration == it.Number {
			row := api.PreemptRow{Victim: p.Victim.Request.Name(), Lost: p.Lost, Blocks: p.Blocks, Free: p.FreeBlocks}
			if p.Preemptor != nil {
				row.Preemptor = p.Preemptor.Request.Name()
			}
			d.Preemptions = append(d.Preemptions, row)
		}
	}
	for _, h := range e.Holdings {
		if h.Iteration == it.Number {
			for _, k := range h.Holders {
				d.Holders = append(d.Holders, api.HolderRow{Request: k.Seq.Request.Name(), Blocks: k.Blocks, Weight: k.Weight})
			}
		}
	}
	if x := it.Execution; x != nil {
		d.Execution = &api.ExecutionRow{Ranks: x.Ranks, Slowest: x.Slowest, Host: x.Host, Device: x.Device, Wait: x.Wait, Graph: x.Graph, Eager: x.Eager, Padded: x.Padded, Peak: x.Peak}
	}
	for _, v := range evictions(e, it.Number) {
		row := api.EvictionRow{Blocks: v.Blocks}
		if v.Seq != nil {
			row.LastUser = v.Seq.Request.Name()
		}
		d.Evictions = append(d.Evictions, row)
	}
	for _, g := range e.Gaps {
		if g.At >= it.Start && (it.End == 0 || g.At <= it.End) {
			d.Gaps = append(d.Gaps, g)
		}
	}
	return d, nil
}

func special(q *ledger.Sequence) []string {
	var out []string
	if q.Logprobs >= 0 {
		out = append(out, "logprobs")
	}
	if q.PromptLogprobs >= 0 {
		out = append(out, "prompt_logprobs")
	}
	if q.N > 1 {
		out = append(out, fmt.Sprintf("1 of n=%d", q.N))
	}
	for _, f := range []struct {
		bit  ledger.Feature
		name string
	}{{ledger.FeaturePenalties, "penalties"}, {ledger.FeatureGrammar, "grammar"}, {ledger.FeatureAdapter, "adapter"}, {ledger.FeatureMultimodal, "multimodal"}} {
		if q.Features&f.bit != 0 {
			out = append(out, f.name)
		}
	}
	return out
}

func newRows(ns []account.New) []api.NewRow {
	var out []api.NewRow
	for _, n := range ns {
		row := api.NewRow{What: n.What, First: n.First}
		for _, q := range n.By {
			if name := q.Request.Name(); !slices.Contains(row.By, name) {
				row.By = append(row.By, name)
			}
		}
		out = append(out, row)
	}
	return out
}

// Odd implements [api.Service].
func (s *Local) Odd(context.Context) (*api.OddList, error) {
	defer s.lock()()
	out := &api.OddList{}
	for _, e := range s.l.Book.Engines {
		for _, o := range s.l.Odd(e) {
			row := api.OddRow{Engine: e.ID.String(), Number: o.Iteration.Number, Decided: o.Iteration.Decided, Duration: o.Iteration.Duration(),
				Expected: int64(o.Expected), Members: o.Iteration.Members, New: newRows(o.New)}
			seen := map[*ledger.Request]bool{}
			for _, w := range o.Waiters {
				seen[w.Seq.Request] = true
			}
			row.Waited = len(seen)
			out.Odd = append(out.Odd, row)
		}
	}
	slices.SortStableFunc(out.Odd, func(a, b api.OddRow) int { return cmp.Compare(b.Duration-b.Expected, a.Duration-a.Expected) })
	return out, nil
}

// Overview implements [api.Service].
func (s *Local) Overview(context.Context) (*api.Overview, error) {
	defer s.lock()()
	b := s.l.Book
	o := &api.Overview{To: b.Newest, Requests: len(b.Requests), Sources: b.Sources, Gaps: b.AllGaps(), Notices: b.Notices}
	for _, r := range b.Requests {
		if t := s.l.Account(r).From; t != 0 && (o.From == 0 || t < o.From) {
			o.From = t
		}
	}
	for _, e := range b.Engines {
		o.Engines = append(o.Engines, api.EngineRow{ID: e.ID.String(), Engine: e.Name + " " + e.Version, Producer: e.Producer, Iterations: len(e.Iterations),
			Sequences: len(e.Sequences), Preemptions: len(e.Preemptions), Settings: e.Settings, Sees: e.Capabilities, Model: modelRow(s.l.Model(e))})
	}
	return o, nil
}

// Engines implements [api.Service]: as of the newest time of the book.
func (s *Local) Engines(context.Context) (*api.EngineList, error) {
	defer s.lock()()
	out := &api.EngineList{Now: s.l.Book.Now}
	for _, e := range s.l.Book.Engines {
		out.Engines = append(out.Engines, engineState(e, s.l.Book.Now))
	}
	return out, nil
}

// Changes implements [api.Service].
func (s *Local) Changes(_ context.Context, q api.ChangesQuery) (*api.ChangeList, error) {
	all := s.incarnations()
	defer s.lock()()
	return chosen(changesOf(all, s.l.Book.Beats), recordedKinds, q), nil
}

// Watch implements [api.Service]: a book does not grow.
func (s *Local) Watch(context.Context, string) (<-chan api.Event, error) {
	return nil, &api.Unsupported{What: "a recording has no live events", Remedy: "ask a server that follows engines ('whylate serve')"}
}
