package embedded

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// content is all rows of one period, in the order in which they are written.
type content struct {
	engines     []store.EngineRow
	iterations  []store.IterationRow
	sequences   []store.SequenceRow
	stints      []store.StintRow
	skips       []store.SkipRow
	preemptions []store.PreemptionRow
	holdings    []store.HoldingRow
	executions  []store.ExecutionRow
	evictions   []store.EvictionRow
	requests    []store.RequestRow
	clients     []store.ClientRow
	calls       []store.CallRow
	callParts   []store.CallPartRow
	callSpans   []store.CallSpanRow
	gaps        []store.GapRow
	ids         []store.IDRow
	filter      []byte

	starts  [][]int32 // of a merge: by part and old row, the new row of a sequence
	pending []place   // of a merge: sequences that are referred to before they are numbered
}

// before is what earlier periods of the same engine have to say about a new one.
type before struct {
	began  uint64 // first iteration ever sealed, 0 = none
	firsts map[string]uint64
}

// engineKey is the key of an engine in every table: nothing of its identity is left out.
func engineKey(id ledger.EngineID) string {
	if id == (ledger.EngineID{}) {
		return ""
	}
	return fmt.Sprintf("%s/%s/%d@%s", id.Deployment, id.Replica, id.Rank, id.Incarnation)
}

// contentOf makes the rows of a period.
func contentOf(p *store.Period, b before) (*content, error) {
	c := &content{}
	w := &rower{c: c, p: p, e: p.Engine, row: map[*ledger.Sequence]int32{}, request: map[*ledger.Request]int32{}}
	if w.e != nil {
		w.key = engineKey(w.e.ID)
	}
	if err := w.engine(b); err != nil {
		return nil, err
	}
	w.order()
	if err := w.iterations(); err != nil {
		return nil, err
	}
	for _, q := range w.sequences {
		w.sequence(q)
	}
	w.events()
	for _, r := range w.requests {
		w.requestRow(r)
	}
	calls := c.callRows(p.Calls, p.Batch)
	for _, g := range p.Gaps {
		c.gaps = append(c.gaps, store.GapRow{Engine: w.key, Producer: g.Producer, First: int64(g.From), Last: int64(g.To), Count: int64(g.Count), At: g.At, Why: g.Why, Remedy: g.Remedy})
	}
	slices.SortStableFunc(c.gaps, func(x, y store.GapRow) int { return cmp.Compare(x.At, y.At) })
	c.index(append(w.requests, calls...))
	return c, nil
}

// rower turns a ledger into rows.
type rower struct {
	c         *content
	p         *store.Period
	e         *ledger.Engine // nil: none
	key       string
	sequences []*ledger.Sequence
	requests  []*ledger.Request
	row       map[*ledger.Sequence]int32
	request   map[*ledger.Request]int32
	runs      []uint32 // by iteration − First: number of the run of iterations with the same stop and head
}

func (w *rower) engine(b before) error {
	if w.e == nil {
		return nil
	}
	e := w.e
	settings, err := json.Marshal(e.Settings)
	if err != nil {
		return err
	}
	capabilities, err := json.Marshal(e.Capabilities)
	if err != nil {
		return err
	}
	r := store.EngineRow{Engine: w.key, Deployment: e.ID.Deployment, Replica: e.ID.Replica, Rank: int32(e.ID.Rank), Incarnation: e.ID.Incarnation,
		Name: e.Name, Version: e.Version, Producer: e.Producer, Depth: int32(e.Depth), Settings: string(settings), Capabilities: string(capabilities),
		ClockDomain: e.Clock.Domain, ClockOffset: e.Clock.Offset, ClockError: e.Clock.Uncertainty, First: int64(w.p.First), Last: int64(w.p.Last), Began: int64(b.began)}
	if b.began == 0 {
		r.Began = int64(cmp.Or(w.p.First, e.First))
	}
	if w.p.First != 0 {
		r.PreviousEnd = e.TileStart(w.p.First)
	}
	if w.p.Model != nil {
		m, err := json.Marshal(w.p.Model)
		if err != nil {
			return err
		}
		r.Model = string(m)
	}
	firsts := account.Firsts(e)
	for what, n := range b.firsts {
		if old, ok := firsts[what]; !ok || n < old {
			firsts[what] = n
		}
	}
	text, err := json.Marshal(firsts)
	if err != nil {
		return err
	}
	r.Firsts = string(text)
	w.c.engines = append(w.c.engines, r)
	return nil
}

// order decides which sequences are in the period and numbers sequences and requests.
func (w *rower) order() {
	w.requests = slices.Clone(w.p.Requests)
	slices.SortStableFunc(w.requests, func(x, y *ledger.Request) int { return cmp.Compare(x.FirstSeen(), y.FirstSeen()) })
	in := map[*ledger.Sequence]bool{}
	add := func(q *ledger.Sequence) {
		if q != nil && !in[q] {
			in[q] = true
			w.sequences = append(w.sequences, q)
		}
	}
	for i, r := range w.requests {
		w.request[r] = int32(i)
		for _, q := range r.Sequences {
			add(q)
		}
	}
	if w.e != nil {
		for _, q := range w.e.Sequences {
			if f, l := store.Span(q); f != 0 && w.p.First != 0 && f <= w.p.Last && l >= w.p.First {
				add(q)
			}
		}
		for n := w.p.First; n != 0 && n <= w.p.Last; n++ {
			add(w.e.Row(n).Head)
		}
		for _, p := range w.e.Preemptions {
			if w.inside(p.Iteration) {
				add(p.Victim)
				add(p.Preemptor)
			}
		}
		for i := range w.e.Holdings {
			if h := &w.e.Holdings[i]; w.inside(h.Iteration) {
				add(h.Head)
				for _, k := range h.Holders {
					add(k.Seq)
				}
			}
		}
		for i := range w.e.Evictions {
			if v := &w.e.Evictions[i]; w.inside(v.Iteration) {
				add(v.Seq)
			}
		}
		for _, r := range w.requests { // heads of lines that lie before the period, of requests that began there
			for _, q := range r.Sequences {
				for i := range q.Skips {
					add(q.Skips[i].Head)
				}
			}
		}
	}
	from := func(q *ledger.Sequence) uint64 {
		f, _ := store.Span(q)
		if f == 0 {
			f = w.p.First
		}
		return f
	}
	slices.SortStableFunc(w.sequences, func(x, y *ledger.Sequence) int {
		return cmp.Or(cmp.Compare(from(x), from(y)), cmp.Compare(x.Queued, y.Queued))
	})
	for i, q := range w.sequences {
		w.row[q] = int32(i)
	}
}

func (w *rower) inside(n uint64) bool { return w.p.First != 0 && n >= w.p.First && n <= w.p.Last }

// owned reports whether a sequence's request is sealed here.
func (w *rower) owned(q *ledger.Sequence) bool {
	_, ok := w.request[q.Request]
	return ok
}

// ref is the row of a sequence, −1 for none.
func (w *rower) ref(q *ledger.Sequence) int32 {
	if q == nil {
		return -1
	}
	if i, ok := w.row[q]; ok {
		return i
	}
	return -1
}

// iterations makes the rows of the period. Running sums become what each tile added to them.
func (w *rower) iterations() error {
	if w.p.First == 0 {
		return nil
	}
	end := w.e.TileStart(w.p.First)
	var run uint32
	var last *ledger.Iteration
	for n := w.p.First; n <= w.p.Last; n++ {
		it := w.e.Row(n)
		if last != nil && (last.Stop != it.Stop || last.Head != it.Head || last.Known&ledger.KnownDecision != it.Known&ledger.KnownDecision) {
			run++
		}
		w.runs = append(w.runs, run)
		last = it
		d := w.e.Between(n, n)
		tile := it.End - end
		r := store.IterationRow{Engine: w.key, Iteration: int64(n), Alias: int64(it.Alias), End: it.End, Gap: it.Start - end, Known: int32(it.Known),
			Tokens: int32(it.Tokens), Members: int32(it.Members), Running: int32(it.Running), Waiting: int32(it.Waiting), FreeBlocks: int32(it.FreeBlocks),
			Emitted: int32(it.Emitted), Discarded: int32(it.Discarded), Stop: int32(it.Stop), Head: w.ref(it.Head), Need: int32(it.Need),
			Idle: d.Gap - (it.Start - end), Unknown: d.Unknown}
		if it.Decided != 0 {
			r.DecidedEarly = it.Start - it.Decided
			r.Schedule = it.Launched - it.Decided
		}
		if it.Completed != 0 {
			r.Output = it.End - it.Completed
		}
		if d.Gap+d.Busy+d.Unknown != tile {
			return &store.Error{Err: store.ErrInvalid, What: "seal", Where: fmt.Sprintf("%s iteration %d", w.key, n),
				Value: fmt.Sprintf("its tile is %d ns and its sums grew by %d", tile, d.Gap+d.Busy+d.Unknown), Remedy: "this is a defect of the assembler: report it"}
		}
		if d.Work != (ledger.Work{}) {
			r.Worked = int32(d.Work[ledger.WorkIterations])
			prefill := int64(d.Work[ledger.WorkPrefillTokens])
			r.DecodeSeqs = int64(d.Work[ledger.WorkDecodeSeqs])
			r.MoreDecode = int64(it.Tokens) - prefill - r.DecodeSeqs
			r.MorePrefill = int64(math.Round(2*d.Work[ledger.WorkPrefillContext])) - prefill*prefill
			r.DecodeContext = int64(d.Work[ledger.WorkDecodeContext])
			r.LogprobRows = int64(d.Work[ledger.WorkLogprobRows])
			r.PromptLogprobs = int64(d.Work[ledger.WorkPromptLogprobs])
			r.PenaltyRows = int64(d.Work[ledger.WorkPenaltyRows])
			r.GrammarRows = int64(d.Work[ledger.WorkGrammarRows])
		}
		if x := it.Execution; x != nil {
			w.c.executions = append(w.c.executions, store.ExecutionRow{Engine: w.key, Iteration: int64(n), Ranks: int32(x.Ranks), Slowest: int32(x.Slowest), Host: x.Host,
				Device: x.Device, Wait: x.Wait, Peak: int64(x.Peak), Padded: int32(x.Padded), Graph: int32(x.Graph), Eager: x.Eager})
		}
		w.c.iterations = append(w.c.iterations, r)
		end = it.End
	}
	return nil
}

// sequence makes the rows of one sequence, its stints and its skips. Of a guest there are those that touch the period, and they end
// with it.
func (w *rower) sequence(q *ledger.Sequence) {
	owned := w.owned(q)
	begin, limit := uint64(0), uint64(math.MaxUint64)
	if !owned {
		begin, limit = w.p.First, w.p.Last
	}
	c := w.c
	first, last := store.Span(q)
	r := store.SequenceRow{Engine: w.key, Guest: !owned, Request: -1, ID: q.ID, External: q.External, Parent: q.Parent, Index: int32(q.Index), N: int32(q.N),
		Prompt: int32(q.Prompt), Max: int32(q.Max), Output: int32(q.Output), Cached: int32(q.Cached), Hashes: int32(q.Hashes), Logprobs: int32(q.Logprobs),
		PromptLogprobs: int32(q.PromptLogprobs), Priority: q.Priority, Features: int32(q.Features), Queued: q.Queued, Submitted: q.Submitted, Arrived: q.Arrived,
		FirstToken: q.FirstToken, LastToken: q.LastToken, Finished: q.Finished, Answered: q.Answered, Delivered: q.Delivered, Reason: int32(q.Reason),
		StopString: q.StopString, Join: int64(q.Join), Leave: int64(min(q.Leave, limit)), FirstEmit: int64(q.FirstEmit), LastEmit: int64(q.LastEmit),
		FirstUncertain: q.FirstUncertain, From: int64(first), To: int64(min(last, limit)), StintRow: int32(len(c.stints)), SkipRow: int32(len(c.skips))}
	if owned {
		r.Request = w.request[q.Request]
		if id := q.Request.RequestID; usable(id) && !strings.Contains(q.ID+q.External+q.Parent, placeholder) {
			r.Templates = true
			r.ID, r.External, r.Parent = template(q.ID, id), template(q.External, id), template(q.Parent, id)
		}
	} else {
		r.RequestName = q.Request.Name()
		if r.RequestName == "unknown" {
			r.RequestName = ""
		}
	}
	row := w.row[q]
	for i := range q.Stints {
		s := &q.Stints[i]
		if s.Last < begin {
			continue
		}
		if s.First > limit {
			break
		}
		t := store.StintRow{Engine: w.key, Sequence: row, Phase: int32(s.Phase), First: int64(s.First), Before: int32(s.Before), Final: s.Final && s.Last <= limit}
		t.Iterations = int32(min(s.Last, limit) - s.First + 1)
		t.Tokens, t.Drafts, t.Rejected = listed(s.Tokens, t.Iterations), listed(s.Drafts, t.Iterations), listed(s.Rejected, t.Iterations)
		c.stints = append(c.stints, t)
	}
	c.omitUsual(&r, row)
	r.Stints = int32(len(c.stints)) - r.StintRow
	w.skips(q, row, begin, limit)
	r.Skips = int32(len(c.skips)) - r.SkipRow
	c.sequences = append(c.sequences, r)
}

// listed is a list with an entry for each iteration, as far as it is to go.
func listed[N uint16 | uint32](list []N, most int32) []int32 {
	var out []int32
	for _, n := range list[:min(len(list), int(most))] {
		out = append(out, int32(n))
	}
	return out
}

// events makes the rows of preemptions, holdings and evictions.
func (w *rower) events() {
	if w.e == nil {
		return
	}
	for _, p := range w.e.Preemptions {
		if w.inside(p.Iteration) {
			w.c.preemptions = append(w.c.preemptions, store.PreemptionRow{Engine: w.key, Iteration: int64(p.Iteration), At: p.At, Victim: w.ref(p.Victim), Preemptor: w.ref(p.Preemptor),
				Lost: int32(p.Lost), Output: int32(p.Output), FreeBlocks: int32(p.FreeBlocks), Blocks: int32(p.Blocks), Reset: p.Reset})
		}
	}
	for i := range w.e.Holdings {
		h := &w.e.Holdings[i]
		if !w.inside(h.Iteration) {
			continue
		}
		r := store.HoldingRow{Engine: w.key, Iteration: int64(h.Iteration), Head: w.ref(h.Head), Need: int32(h.Need), Free: int32(h.Free), Holder: -1}
		for _, k := range h.Holders {
			r.Holder, r.Blocks, r.Weight = w.ref(k.Seq), int32(k.Blocks), k.Weight
			w.c.holdings = append(w.c.holdings, r)
		}
		if len(h.Holders) == 0 {
			w.c.holdings = append(w.c.holdings, r)
		}
	}
	for _, v := range w.e.Evictions {
		if w.inside(v.Iteration) {
			w.c.evictions = append(w.c.evictions, store.EvictionRow{Engine: w.key, Iteration: int64(v.Iteration), At: v.At, LastUser: w.ref(v.Seq), Blocks: int32(v.Blocks)})
		}
	}
}

// requestRow makes the row of one request with the sums of its account, and its clients' rows.
func (w *rower) requestRow(r *ledger.Request) {
	a := account.Of(r, w.p.Model, r.FirstSeen()) // it is over: what now is does not matter, but for one that no server saw
	row := store.RequestRow{Engine: w.key, From: a.From, E2E: a.E2E(), TTFT: a.TTFT, TTFTEnds: a.TTFTEnd, TPOT: a.TPOT, State: string(a.State),
		Output: int32(a.Output), TailOutput: int32(a.TailOutput), RequestID: r.RequestID, ResponseID: r.ResponseID, TraceID: r.TraceID, TraceParent: r.TraceParent,
		Path: r.Path, Class: r.Class, Received: r.Received, FirstByte: r.FirstByte, LastByte: r.LastByte, Disconnect: r.Disconnect, Status: int32(r.Status),
		End: int32(r.End), Chunks: int32(r.Chunks), Bytes: int64(r.Bytes), SendWait: r.SendWait, ClockDomain: r.FrontClock.Domain, ClockOffset: r.FrontClock.Offset,
		ClockError: r.FrontClock.Uncertainty, ClientRow: int32(len(w.c.clients)), Clients: int32(len(r.Clients)),
		Tenant: r.Labels.Tenant.String(), ClassLabel: r.Labels.Class.String(), Route: r.Labels.Route.String()}
	for i, p := range store.PartColumns(&row) {
		l := a.Line(account.Parts[i])
		*p = l.NS
		if l.Seen {
			row.Seen |= 1 << i
		}
	}
	if usable(r.RequestID) && !strings.Contains(r.ResponseID, placeholder) && !strings.Contains(r.TraceParent, placeholder) {
		row.Templates = true
		row.ResponseID = template(r.ResponseID, r.RequestID)
		if usable(r.TraceID) {
			row.TraceParent = template(r.TraceParent, r.TraceID)
		}
	}
	if r.Received == 0 && len(r.Sequences) == 0 { // its client's record is all there is: there is no account
		row.From, row.E2E, row.Seen, row.State = r.FirstSeen(), 0, 0, stateUnseen
	}
	if a.Tail != nil {
		row.Reason = int32(a.Tail.Reason)
	}
	for _, q := range r.Sequences {
		if int32(q.Prompt) >= row.Prompt {
			row.Prompt, row.Cached = int32(q.Prompt), int32(q.Cached)
		}
		row.Preemptions += int32(len(q.Preemptions))
		if q.Join != 0 {
			if row.Join == 0 || int64(q.Join) < row.Join {
				row.Join = int64(q.Join)
			}
			row.Leave = max(row.Leave, int64(q.Leave))
		}
		row.SequenceRows = append(row.SequenceRows, w.row[q])
	}
	if w.e != nil {
		first, last := store.Matters(w.e, r)
		row.First, row.Last = int64(first), int64(last)
	}
	for _, k := range r.Clients {
		c := store.ClientRow{Request: int32(len(w.c.requests)), Attempt: int32(k.Attempt), Planned: k.Planned, Sent: k.Sent, First: k.First, Ended: k.Ended, Status: int32(k.Status),
			Outcome: int32(k.Outcome), Prompt: int32(k.Prompt), Output: int32(k.Output), Error: k.Error, ClockDomain: k.Clock.Domain, ClockOffset: k.Clock.Offset, ClockError: k.Clock.Uncertainty}
		for _, g := range k.Gaps {
			c.Gaps = append(c.Gaps, int32(min(g, math.MaxInt32)))
		}
		w.c.clients = append(w.c.clients, c)
	}
	w.c.requests = append(w.c.requests, row)
}

// stateUnseen is the state of a request that no server saw; lists of accounts leave it out.
const stateUnseen = "not seen by a server"

// placeholder stands for an id that another column of the same request has in full: engines make theirs out of the client's.
const placeholder = "{}"

// usable reports whether an id is worth a template, and safe for one.
func usable(id string) bool { return len(id) >= 4 && !strings.Contains(id, placeholder) }

func template(s, id string) string { return strings.Replace(s, id, placeholder, 1) }

func untemplate(s, id string) string { return strings.Replace(s, placeholder, id, 1) }
