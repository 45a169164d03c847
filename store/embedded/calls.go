package embedded

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// callTables are what calls are kept in. Periods without calls do not have them.
var callTables = []string{"calls", "call_parts", "call_spans"}

// callRows makes the rows of calls, and returns the requests that they are found by.
func (c *content) callRows(calls []store.Call, batch uint64) (found []*ledger.Request) {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b store.Call) int { return cmp.Compare(a.Start, b.Start) })
	parts, spans := 0, 0
	for _, k := range calls {
		parts, spans = parts+len(k.Lines), spans+len(k.Layers)
	}
	c.requests, c.calls, found = slices.Grow(c.requests, len(calls)), make([]store.CallRow, 0, len(calls)), make([]*ledger.Request, 0, len(calls))
	c.callParts, c.callSpans = make([]store.CallPartRow, 0, parts), make([]store.CallSpanRow, 0, spans)
	for _, k := range calls {
		r := store.CallRow{Request: int32(len(c.requests)), Batch: int64(batch), Standing: int32(k.As), PartRow: int32(len(c.callParts)), SpanRow: int32(len(c.callSpans))}
		describeCall(&r, k.Call)
		for _, l := range k.Lines {
			c.callParts = append(c.callParts, store.CallPartRow{Call: int32(len(c.calls)), Part: string(l.Part), Name: l.Name, NS: l.NS, Standing: string(l.Standing)})
		}
		for i := range k.Layers {
			c.callSpans = append(c.callSpans, spanRow(int32(len(c.calls)), &k.Layers[i]))
		}
		r.Parts, r.Spans = int32(len(k.Lines)), int32(len(k.Layers))
		c.calls = append(c.calls, r)
		row := store.RowOfCall(k)
		c.requests = append(c.requests, row)
		found = append(found, requestOf(&row, nil))
	}
	return found
}

// describeCall fills in what is said of a call as a whole.
func describeCall(r *store.CallRow, c *genai.Call) {
	r.Producer, r.Version = producerOf(c)
	for _, s := range c.Shapes {
		r.Shapes = append(r.Shapes, string(s))
	}
	r.Operation, r.Provider, r.Requested, r.Served = c.Operation, c.Provider, c.Requested, c.Served
	r.Outcome, r.Why, r.Finish = string(c.Outcome), c.Why, c.Finish
	r.Input, r.InputFrom, r.InputViews = known(c.Input.N, c.Input.Known), c.Input.Why, int32(c.Input.Views)
	r.Output, r.OutputFrom = known(c.Output.N, c.Output.Known), c.Output.Why
	r.Cached, r.CachedFrom = known(c.Cached.N, c.Cached.Known), c.Cached.Why
	r.Reasoning = known(c.Reasoning.N, c.Reasoning.Known)
	r.Sequences, r.Legs, r.Attempts = int32(c.Sequences), int32(c.Legs), int32(c.Attempts)
	if !c.E2E.Known {
		r.E2EWhy = cmp.Or(c.E2E.Why, "unknown")
	}
	r.Whose = int32(slices.IndexFunc(c.Layers, func(l genai.Layer) bool { return l.Span == c.Whose }))
	r.Client, r.ClientWhy = known(c.Client.NS, c.Client.Known), c.Client.Why
	r.Server = known(c.Server.NS, c.Server.Known)
	for _, f := range c.First {
		r.FirstNS, r.FirstFrom, r.FirstTo = append(r.FirstNS, f.NS), append(r.FirstFrom, f.From), append(r.FirstTo, f.To)
		r.FirstBy, r.FirstHow = append(r.FirstBy, f.Sayers()), append(r.FirstHow, string(f.Standing))
	}
	r.Network, r.SendLow = -1, -1
	if n := c.Network; n != nil {
		r.Network = n.NS
		if n.Bounded {
			r.SendLow, r.SendHigh = n.SendLow, n.SendHigh
			r.ClockOuter, r.ClockInner = n.Shift.Outer.String(), n.Shift.Inner.String()
			r.ClockLow, r.ClockHigh, r.ClockPairs = n.Shift.Low, n.Shift.High, int32(n.Shift.Pairs)
		}
	}
	if c.MissingParent != (genai.SpanID{}) {
		r.Missing = c.MissingParent.String()
	}
	r.Open, r.Chunks, r.Retracted = int32(c.Open), int32(c.Chunks), int32(c.Retracted)
	r.Gap, r.GapWhy = c.Gap.NS, c.Gap.Why
	if n := c.Content; n.Attributes > 0 {
		r.Contents, r.Content, r.Cut, r.Oversized = int32(n.Attributes), n.Bytes, int32(n.Truncated), int32(n.Oversized)
		if n.Roles != (genai.Roles{}) {
			r.Roles = []int32{int32(n.Roles.System), int32(n.Roles.User), int32(n.Roles.Assistant), int32(n.Roles.Tool), int32(n.Roles.Other)}
		}
	}
	r.Notes, r.MoreNotes = c.Notes, int32(c.MoreNotes)
}

// known is a number, or −1 for an unknown one.
func known(n int64, is bool) int64 {
	if !is {
		return -1
	}
	return n
}

// producerOf is who made the innermost span.
func producerOf(c *genai.Call) (name, version string) {
	if len(c.Layers) == 0 {
		return "", ""
	}
	s := c.Layers[len(c.Layers)-1].Span
	return cmp.Or(s.Scope.Name, s.Resource.Service), s.Scope.Version
}

// Marks of a layer, by bit.
const (
	markInferred = 1 << iota
	markLeftOpen
	markAtFirst
	markLeftBefore
)

func spanRow(call int32, l *genai.Layer) store.CallSpanRow {
	s := l.Span
	code, _ := s.Number(genai.HTTPStatus)
	r := store.CallSpanRow{Call: call, ID: int64(binary.BigEndian.Uint64(s.ID[:])), Name: s.Name, Kind: int32(s.Kind), Status: int32(s.Status), HTTP: int32(code),
		Service: s.Resource.Service, Host: s.Resource.Host, Pod: s.Resource.Pod, Scope: s.Scope.Name, Version: s.Scope.Version,
		Start: s.Start, Duration: s.End - s.Start, Shift: l.Shift, Half: l.Half}
	if s.Open() {
		r.Duration = -1
	}
	for _, m := range []struct {
		is  bool
		bit int32
	}{{l.Inferred, markInferred}, {l.LeftOpen, markLeftOpen}, {l.AtFirst, markAtFirst}, {l.LeftBefore, markLeftBefore}} {
		if m.is {
			r.Marks |= m.bit
		}
	}
	return r
}

// callOf makes a call of its rows. Without its spans it has no layers.
func callOf(q *store.RequestRow, r *store.CallRow, parts []store.CallPartRow, spans []store.CallSpanRow) *genai.Call {
	c := &genai.Call{RequestID: q.RequestID, ResponseID: q.ResponseID, Operation: r.Operation, Provider: r.Provider, Requested: r.Requested, Served: r.Served,
		Outcome: genai.Outcome(r.Outcome), Why: r.Why, Finish: r.Finish, Sequences: int(r.Sequences), Legs: int(r.Legs), Attempts: int(r.Attempts), Start: q.From,
		Input: tokensOf(r.Input, r.InputFrom), Output: tokensOf(r.Output, r.OutputFrom), Cached: tokensOf(r.Cached, r.CachedFrom), Reasoning: tokensOf(r.Reasoning, ""),
		E2E: genai.Duration{NS: q.E2E, Known: r.E2EWhy == "", Why: r.E2EWhy}, Client: durationOf(r.Client, r.ClientWhy), Server: durationOf(r.Server, ""),
		Open: int(r.Open), Chunks: int(r.Chunks), Retracted: int(r.Retracted), Gap: genai.Gap{NS: r.Gap, Why: r.GapWhy}, Notes: r.Notes, MoreNotes: int(r.MoreNotes)}
	_, _ = hex.Decode(c.Trace[:], []byte(q.TraceID))
	_, _ = hex.Decode(c.MissingParent[:], []byte(r.Missing))
	c.Input.Views = int(r.InputViews)
	c.Threshold = q.SampledAt()
	for _, s := range r.Shapes {
		c.Shapes = append(c.Shapes, genai.Shape(s))
	}
	for i, ns := range r.FirstNS {
		if i < len(r.FirstFrom) && i < len(r.FirstTo) && i < len(r.FirstBy) && i < len(r.FirstHow) {
			c.First = append(c.First, genai.First{NS: ns, From: r.FirstFrom[i], To: r.FirstTo[i], Said: r.FirstBy[i], Standing: genai.Standing(r.FirstHow[i])})
		}
	}
	if r.Network >= 0 {
		c.Network = &genai.Network{NS: r.Network}
		if r.SendLow >= 0 {
			outer, inner := genai.ClockNamed(r.ClockOuter), genai.ClockNamed(r.ClockInner)
			*c.Network = genai.Network{NS: r.Network, Bounded: true, SendLow: r.SendLow, SendHigh: r.SendHigh, BackLow: r.Network - r.SendHigh, BackHigh: r.Network - r.SendLow,
				Shift: genai.Shift{Outer: outer, Inner: inner, Low: r.ClockLow, High: r.ClockHigh, Pairs: int(r.ClockPairs)}}
		}
	}
	c.Content = genai.Content{Attributes: int(r.Contents), Bytes: r.Content, Truncated: int(r.Cut), Oversized: int(r.Oversized)}
	if n := r.Roles; len(n) == 5 {
		c.Content.Roles = genai.Roles{System: int(n[0]), User: int(n[1]), Assistant: int(n[2]), Tool: int(n[3]), Other: int(n[4])}
	}
	for _, p := range parts {
		c.Lines = append(c.Lines, genai.Line{Part: account.Part(p.Part), Name: p.Name, NS: p.NS, Standing: genai.Standing(p.Standing)})
	}
	for i := range spans {
		c.Layers = append(c.Layers, layerOf(&spans[i], c.Trace))
	}
	if w := int(r.Whose); w >= 0 && w < len(c.Layers) {
		c.Whose = c.Layers[w].Span
	}
	return c
}

func tokensOf(n int64, why string) genai.Tokens {
	if n < 0 {
		return genai.Tokens{Why: why}
	}
	return genai.Tokens{N: n, Known: true, Why: why}
}

func durationOf(ns int64, why string) genai.Duration {
	if ns < 0 {
		return genai.Duration{Why: why}
	}
	return genai.Duration{NS: ns, Known: true}
}

func layerOf(r *store.CallSpanRow, trace genai.TraceID) genai.Layer {
	s := &genai.Span{Trace: trace, Name: r.Name, Kind: genai.Kind(r.Kind), Status: genai.Status(r.Status), Start: r.Start, End: r.Start + r.Duration,
		Resource: &genai.Resource{Service: r.Service, Host: r.Host, Pod: r.Pod}, Scope: &genai.Scope{Name: r.Scope, Version: r.Version}}
	binary.BigEndian.PutUint64(s.ID[:], uint64(r.ID))
	if r.HTTP != 0 {
		_ = s.SetInt(genai.Named("http.response.status_code"), int64(r.HTTP))
	}
	return genai.Layer{Span: s, Shift: r.Shift, Half: r.Half, Inferred: r.Marks&markInferred != 0, LeftOpen: r.Marks&markLeftOpen != 0,
		AtFirst: r.Marks&markAtFirst != 0, LeftBefore: r.Marks&markLeftBefore != 0}
}

// callsOf reads the calls that a request of the period is told by. Where their spans were let go they come without layers.
func (p *period) callsOf(row int64) (out []*genai.Call, err error) {
	if p.m.lacks("calls") {
		return nil, nil
	}
	withSpans := !slices.Contains(p.m.Dropped, "call_spans")
	need := []string{"requests", "calls", "call_parts"}
	if withSpans {
		need = append(need, "call_spans")
	}
	err = p.use(need, func(t map[string]*table) error {
		q, err := readRows[store.RequestRow](t["requests"], row, 1)
		if err != nil || len(q) == 0 {
			return err
		}
		request := plain(q[0])
		spans, err := t["calls"].pagesWhere("request_row", func(least, most int64) bool { return least <= row && row <= most })
		if err != nil {
			return err
		}
		for _, s := range spans {
			of, err := t["calls"].readColumn("request_row", s)
			if err != nil {
				return err
			}
			for i, k := range of {
				if k != row {
					continue
				}
				c, err := readCall(t, s.from+int64(i), &request)
				if err != nil {
					return err
				}
				out = append(out, c)
			}
		}
		return nil
	})
	return out, err
}

func readCall(t map[string]*table, at int64, request *store.RequestRow) (*genai.Call, error) {
	rows, err := readRows[store.CallRow](t["calls"], at, 1)
	if err != nil || len(rows) == 0 {
		return nil, cmp.Or(err, errors.New("calls: a row is missing"))
	}
	r := &rows[0]
	parts, err := readRows[store.CallPartRow](t["call_parts"], int64(r.PartRow), int64(r.Parts))
	if err != nil {
		return nil, err
	}
	spans, err := readRows[store.CallSpanRow](t["call_spans"], int64(r.SpanRow), int64(r.Spans))
	if err != nil {
		return nil, err
	}
	return callOf(request, r, parts, spans), nil
}

// appendCalls adds another part's calls to a merge; requests is how many rows of requests lie before that part's.
func (c *content) appendCalls(part *content, requests int32) {
	calls, parts, spans := int32(len(c.calls)), int32(len(c.callParts)), int32(len(c.callSpans))
	for _, r := range part.calls {
		r.Request += requests
		r.PartRow += parts
		r.SpanRow += spans
		c.calls = append(c.calls, r)
	}
	for _, r := range part.callParts {
		r.Call += calls
		c.callParts = append(c.callParts, r)
	}
	for _, r := range part.callSpans {
		r.Call += calls
		c.callSpans = append(c.callSpans, r)
	}
}

// SealedTraces implements [store.Sealed].
func (s *Store) SealedTraces(ctx context.Context, after uint64, each func(trace string, through uint64) error) error {
	for {
		err := s.sealedTraces(ctx, after, each)
		if !errors.Is(err, errGone) {
			return err
		}
	}
}

func (s *Store) sealedTraces(ctx context.Context, after uint64, each func(trace string, through uint64) error) error {
	ps, err := s.all("list traces")
	if err != nil {
		return err
	}
	type traceOf struct {
		Trace string `parquet:"trace_id,delta"`
	}
	type batchOf struct {
		Request int32 `parquet:"request_row,delta"`
		Batch   int64 `parquet:"span_batch,delta"`
	}
	for _, p := range ps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.m.Batch <= after {
			continue
		}
		err := p.use([]string{"requests", "calls"}, func(t map[string]*table) error {
			traces, err := readRows[traceOf](t["requests"], 0, t["requests"].file.NumRows())
			if err != nil {
				return err
			}
			calls, err := readRows[batchOf](t["calls"], 0, t["calls"].file.NumRows())
			if err != nil {
				return err
			}
			for _, c := range calls {
				if int(c.Request) >= len(traces) {
					return errors.New("calls: a request_row beyond the requests")
				}
				if err := each(traces[c.Request].Trace, uint64(c.Batch)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, store.ErrCorrupt) { // what is damaged is named, and told again by the log
			return err
		}
	}
	return nil
}
