package genai

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// role is what a span is for the account of a model call.
type role uint8

const (
	other     role = iota
	container      // agent, workflow, tool: holds calls, is none; its token counts are sums
	view           // a model call as a client, a gateway or a library saw it
	engine         // the same call as the engine saw it
	web            // HTTP without a word about models
	chunk          // one 'http send' or 'http receive' of a web framework: one a streamed chunk, no stage
	thread         // SGLang: holds the slices of one process
	slice          // SGLang: a stage, in one process
)

const (
	tokenFields   = 1<<InputTokens | 1<<OutputTokens | 1<<TotalTokens | 1<<CacheRead | 1<<CacheWrite | 1<<ReasoningTokens
	engineFields  = 1<<QueueTime | 1<<PrefillTime | 1<<DecodeTime | 1<<InferenceTime | 1<<E2E
	modelFields   = tokenFields | 1<<RequestModel | 1<<ResponseModel | 1<<FirstToken | 1<<FirstChunk | 1<<FinishReason | 1<<ResponseID | 1<<MaxTokens
	webFields     = 1<<HTTPMethod | 1<<HTTPStatus
	threadFields  = 1 << ThreadLabel
	sglangRequest = "sglang::request"
)

// trace is the spans of one trace, without duplicates, in the order of their ids.
type trace struct {
	spans   []*Span
	parent  []int32 // index, -1 where there is none here
	missing []bool  // a parent is named and not here
	used    []bool  // some call has it
	role    []role
	byStart []int32
	below   []int32 // children, those of one parent together, in order of start
	from    []int32 // where in below the children of a span begin; one more than spans
}

// kids are the children of a span, in order of start.
func (t *trace) kids(i int32) []int32 { return t.below[t.from[i]:t.from[i+1]] }

// forest has room for all traces of a view: an allocation of each kind for all of them together.
type forest struct {
	numbers []int32
	flags   []bool
	roles   []role
	state   []uint8 // of cut, for one trace at a time
}

func newForest(spans, traces, longest int) *forest {
	return &forest{make([]int32, 4*spans+traces), make([]bool, 2*spans), make([]role, spans), make([]uint8, longest)}
}

func part[T any](from *[]T, n int) []T {
	p := (*from)[:n:n]
	*from = (*from)[n:]
	return p
}

// group sorts spans into traces. The result does not depend on the order in which the spans came, nor on how often.
func group(spans []Span) (traces [][]*Span, duplicates int) {
	all := make([]*Span, len(spans))
	for i := range spans {
		all[i] = &spans[i]
	}
	slices.SortFunc(all, func(a, b *Span) int {
		if c := bytes.Compare(a.Trace[:], b.Trace[:]); c != 0 {
			return c
		}
		if c := bytes.Compare(a.ID[:], b.ID[:]); c != 0 {
			return c
		}
		return better(a, b)
	})
	kept := slices.CompactFunc(all, func(a, b *Span) bool { return a.ID == b.ID && a.Trace == b.Trace })
	duplicates = len(spans) - len(kept)
	for from := 0; from < len(kept); {
		to := from + 1
		for to < len(kept) && kept[to].Trace == kept[from].Trace {
			to++
		}
		traces = append(traces, kept[from:to])
		from = to
	}
	return traces, duplicates
}

// homeless is the request id of an engine span that came without its parent, "" of any other.
func (s *Span) homeless() string {
	if s.Parent != (SpanID{}) || s.Name != "llm_request" || s.Open() {
		return ""
	}
	return PlainID(s.Text(RequestID))
}

// Kin gives the ids by which a span may belong to a call of another trace: whoever has one that looks for a home is mapped together with
// all others that have it.
func (s *Span) Kin(each func(id string, looksForHome bool)) {
	if id := s.homeless(); id != "" {
		each(id, true)
		return
	}
	for _, f := range []Field{RequestID, ResponseID} {
		if id := PlainID(s.Text(f)); id != "" {
			each(id, false)
		}
	}
}

// adopt puts engine spans that came without their parent under the view that has the same request id, where one in another trace encloses them:
// vLLM loses the caller's context when it aborts. The spans given are not changed.
func adopt(spans []Span) []Span {
	homeless := map[string][]int{}
	for i := range spans {
		if id := spans[i].homeless(); id != "" {
			homeless[id] = append(homeless[id], i)
		}
	}
	if len(homeless) == 0 {
		return spans
	}
	homes := map[int]*Span{}
	for i := range spans {
		s := &spans[i]
		for _, f := range []Field{RequestID, ResponseID} {
			for _, h := range homeless[PlainID(s.Text(f))] {
				e := &spans[h]
				if s.Trace == e.Trace || s.Start > e.Start || s.Start <= 0 || s.Kind == Internal || s.Name == "llm_request" || !s.Open() && s.End < e.Start {
					continue
				}
				if was := homes[h]; was == nil || cmp.Or(bytes.Compare(s.Trace[:], was.Trace[:]), bytes.Compare(s.ID[:], was.ID[:])) < 0 {
					homes[h] = s
				}
			}
		}
	}
	if len(homes) == 0 {
		return spans
	}
	out := slices.Clone(spans)
	for h, s := range homes {
		out[h].came = out[h].Trace
		out[h].Trace, out[h].Parent, out[h].adopted = s.Trace, s.ID, true
	}
	return out
}

// better orders copies of one span: one that ended before an open one, a later end, more said; then anything that does not depend on arrival.
func better(a, b *Span) int {
	open := func(s *Span) int {
		if s.Open() {
			return 1
		}
		return 0
	}
	return cmp.Or(open(a)-open(b), cmp.Compare(b.End, a.End), len(b.Attrs)-len(a.Attrs), cmp.Compare(a.Start, b.Start), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Status, b.Status), cmp.Compare(a.Resource.Service, b.Resource.Service), slices.CompareFunc(a.Attrs, b.Attrs, func(x, y Attr) int {
			return cmp.Or(cmp.Compare(x.Name.Key, y.Name.Key), cmp.Compare(x.Number, y.Number), cmp.Compare(x.Text, y.Text))
		}))
}

func newTrace(spans []*Span, f *forest) *trace {
	n := len(spans)
	t := &trace{spans: spans, parent: part(&f.numbers, n), missing: part(&f.flags, n), used: part(&f.flags, n), role: part(&f.roles, n), byStart: part(&f.numbers, n),
		below: part(&f.numbers, n), from: part(&f.numbers, n+1)}
	for i, s := range spans {
		t.byStart[i] = int32(i)
		t.parent[i] = -1
		if s.Parent == (SpanID{}) {
			continue
		}
		k, ok := slices.BinarySearchFunc(spans, s.Parent, func(s *Span, id SpanID) int { return bytes.Compare(s.ID[:], id[:]) })
		if ok && k != i {
			t.parent[i] = int32(k)
		} else {
			t.missing[i] = true
		}
	}
	t.cut(f.state[:n])
	slices.SortFunc(t.byStart, func(a, b int32) int {
		return cmp.Or(cmp.Compare(spans[a].Start, spans[b].Start), cmp.Compare(spans[b].End, spans[a].End), cmp.Compare(a, b))
	})
	for _, p := range t.parent {
		if p >= 0 {
			t.from[p+1]++
		}
	}
	for i := range n {
		t.from[i+1] += t.from[i]
	}
	for _, i := range t.byStart {
		if p := t.parent[i]; p >= 0 {
			t.below[t.from[p]] = i
			t.from[p]++ // now where its next child goes, in the end where those of the next span begin
		}
	}
	copy(t.from[1:], t.from[:n])
	t.from[0] = 0
	for i := range spans {
		t.role[i] = roleOf(spans[i])
	}
	for i := range spans {
		if p := t.parent[i]; p >= 0 && t.role[p] == thread && t.role[i] != thread {
			t.role[i] = slice
		}
	}
	return t
}

// cut breaks cycles of parents: the member with the smallest id counts as one whose parent is missing.
func (t *trace) cut(state []uint8) {
	clear(state) // 0 not seen, 1 on the way, 2 leads to a root
	var way []int32
	for i := range t.spans {
		way = way[:0]
		k := int32(i)
		for k >= 0 && state[k] == 0 {
			state[k] = 1
			way = append(way, k)
			k = t.parent[k]
		}
		if k >= 0 && state[k] == 1 {
			least := slices.Min(way[slices.Index(way, k):])
			t.parent[least], t.missing[least] = -1, true
		}
		for _, w := range way {
			state[w] = 2
		}
	}
}

// down is every span after its parent.
func (t *trace) down() []int32 {
	order := make([]int32, 0, len(t.spans))
	for _, i := range t.byStart {
		if t.parent[i] < 0 {
			order = append(order, i)
		}
	}
	for k := 0; k < len(order); k++ {
		order = append(order, t.kids(order[k])...)
	}
	return order
}

// Engine reports whether an engine made the span, not somebody in front of it.
func (s *Span) Engine() bool { return roleOf(s) == engine }

func roleOf(s *Span) role {
	switch {
	case s.any(threadFields) || strings.Contains(s.Name, "(host:") && strings.Contains(s.Name, "| pid:"):
		return thread
	case s.Has(ASGIEvent) || strings.HasSuffix(s.Name, " http send") || strings.HasSuffix(s.Name, " http receive") || strings.HasSuffix(s.Name, " websocket send"):
		return chunk
	case s.Text(Module) == sglangRequest || sglangRoot(s):
		return engine
	}
	if holds(s) {
		return container
	}
	switch {
	case s.Name == "llm_request" || s.any(engineFields) && s.Kind != Client:
		return engine
	case s.any(modelFields) && !startUp(s) || inference(s.Text(Operation)) || modelType(s.Text(SpanType)):
		return view
	case s.any(webFields):
		return web
	}
	return other
}

func sglangRoot(s *Span) bool {
	return strings.HasPrefix(s.Scope.Name, "sglang") && (strings.HasPrefix(s.Name, " Req ") || strings.HasPrefix(s.Name, "Prefill Req ") || strings.HasPrefix(s.Name, "Decode Req "))
}

// startUp reports spans of an engine's own loading, which name a model and answer nobody.
func startUp(s *Span) bool {
	return s.Resource.Module != "" && s.Name != "llm_request" && !s.any(tokenFields)
}

func inference(op string) bool {
	switch op {
	case "chat", "text_completion", "generate_content", "completion", "completions", "responses", "messages", "embeddings", "fetch_response":
		return true
	}
	return strings.HasPrefix(op, "ai.") && strings.Contains(op, ".do")
}

func modelType(t string) bool {
	switch strings.ToUpper(t) {
	case "LLM", "EMBEDDING":
		return true
	}
	return false
}

// holds reports agents, workflows and tools.
func holds(s *Span) bool {
	switch strings.ToUpper(s.Text(SpanType)) {
	case "AGENT", "CHAIN", "TOOL", "WORKFLOW", "TASK", "RETRIEVER", "RERANKER", "GUARDRAIL", "EVALUATOR":
		return true
	}
	op := s.Text(Operation)
	switch op {
	case "invoke_agent", "create_agent", "invoke_workflow", "execute_tool", "plan", "handle_conversation_turn", "retrieval":
		return true
	}
	return strings.Contains(op, "memory")
}
