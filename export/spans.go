package export

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// Options say what may leave.
type Options struct {
	IDs     bool   // the ids of requests, and sentences that name other requests
	Version string // of whylate, told as the scope's
}

// Trace is the spans of one request, all of one engine; the request's own is the first.
type Trace struct {
	Engine ledger.EngineID // zero: no engine took it up
	build  string          // version of the engine
	scope  string          // version of whylate
	Spans  []*tracepb.Span
}

// builder makes the tree of one request.
type builder struct {
	x       *diagnose.Explanation
	a       *account.Account
	r       *ledger.Request
	e       *ledger.Engine // nil: no engine took it up
	o       Options
	lineage lineage
	t       *Trace
	root    *tracepb.Span
	parts   []*tracepb.Span // one for each bound of the account
}

// Spans makes the spans of a request that is over. Those of its parts touch and cover the request's own from its start to its end. It fails
// for a request that has not ended, and for one of which no server saw anything.
func Spans(x *diagnose.Explanation, o Options) (*Trace, error) {
	a := x.Account
	switch {
	case a == nil || a.Request == nil:
		return nil, fmt.Errorf("request %s: an answer of another process does not hold its sequences; export it where its records are", x.Request.Name)
	case a.State != account.Finished:
		return nil, fmt.Errorf("request %s has not ended (%s): it can be exported when it has", x.Request.Name, a.State)
	case a.From == 0:
		return nil, fmt.Errorf("request %s was seen by its client only: there is no account of it to export", x.Request.Name)
	}
	b := &builder{x: x, a: a, r: a.Request, e: query.EngineOf(a.Request), o: o, lineage: lineageOf(a.Request), t: &Trace{scope: o.Version}}
	if b.e != nil {
		b.t.Engine, b.t.build = b.e.ID, b.e.Version
	}
	b.request()
	for i, bound := range a.Bounds {
		b.part(i, bound)
	}
	b.moments()
	if len(b.r.Sequences) == 1 {
		b.life(b.r.Sequences[0], b.parts)
		return b.t, nil
	}
	for _, q := range b.r.Sequences {
		b.sequence(q)
	}
	return b.t, nil
}

// add makes a span below a parent; nil is the request's own, which hangs below whatever the request came with.
func (b *builder) add(parent *tracepb.Span, key, name string, kind tracepb.Span_SpanKind, from, to int64) *tracepb.Span {
	s := &tracepb.Span{TraceId: b.lineage.trace, SpanId: b.lineage.span(key), ParentSpanId: b.lineage.parent, Name: name, Kind: kind,
		StartTimeUnixNano: uint64(from), EndTimeUnixNano: uint64(max(to, from)), Flags: flagSampled}
	if b.lineage.random {
		s.Flags |= flagRandom
	}
	if parent != nil {
		s.ParentSpanId = parent.SpanId
	}
	b.t.Spans = append(b.t.Spans, s)
	return s
}

// request makes the span of the request itself.
func (b *builder) request() {
	var at attributes
	op, model := b.operation(), b.model()
	at.text(semconv.GenAIOperationNameKey, op)
	if b.e != nil {
		at.text(semconv.GenAIProviderNameKey, b.e.Name)
		at.text(semconv.ServerAddressKey, identifier(b.e.ID.Replica))
		at.text(semconv.GenAIResponseModelKey, model)
		if b.adapted() { // its name is the adapter's, which is not recorded
			model = ""
		}
		at.text(semconv.GenAIRequestModelKey, model)
	}
	b.identify(&at)
	b.usage(&at)
	b.outcome(&at)
	b.latencies(&at)
	b.account(&at)
	b.root = b.add(nil, "request", strings.TrimSpace(op+" "+model), tracepb.Span_SPAN_KIND_SERVER, b.a.From, b.a.To)
	b.root.Attributes = at
	if kind := errorType(b.r); kind != "" {
		b.root.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: kind}
	}
}

// operation is what was asked for, by the path, else by the form of the engine's id.
func (b *builder) operation() string {
	route := b.r.Path
	external := ""
	if len(b.r.Sequences) > 0 {
		external = b.r.Sequences[0].External
	}
	switch {
	case strings.Contains(route, "/chat/completions"), strings.Contains(route, "/v1/messages"), strings.Contains(route, "/v1/responses"), route == "" && strings.HasPrefix(external, "chatcmpl-"):
		return "chat"
	case strings.Contains(route, "/embeddings"):
		return "embeddings"
	}
	return "text_completion"
}

// model is the model that the engine serves, "" where it does not say.
func (b *builder) model() string {
	if b.e == nil {
		return ""
	}
	name := b.e.Model()
	if strings.HasPrefix(name, "/") { // where it lies on the engine's host is nobody's business
		name = path.Base(name)
	}
	return identifier(name)
}

func (b *builder) adapted() bool {
	return slices.ContainsFunc(b.r.Sequences, func(q *ledger.Sequence) bool { return q.Features&ledger.FeatureAdapter != 0 })
}

// identifier is a name that may leave: one that does not look like a person's, a secret or a sentence.
func identifier(s string) string {
	if genai.Identifier(s) {
		return s
	}
	return ""
}

func (b *builder) identify(at *attributes) {
	if b.e != nil {
		at.text("whylate.engine", b.e.ID.String())
	}
	for _, l := range []struct {
		key   attribute.Key
		label ledger.Label
	}{{"whylate.tenant", b.r.Labels.Tenant}, {"whylate.class", b.r.Labels.Class}, {"whylate.route", b.r.Labels.Route}} {
		at.text(l.key, l.label.String())
	}
	if b.o.IDs {
		at.text(requestID, identifier(b.x.Request.Name))
		at.text(semconv.GenAIResponseIDKey, identifier(b.responseID()))
	}
}

// responseID is the id in the response's body, or the id that the engine's front end made of the request's, which is the same for vLLM.
func (b *builder) responseID() string {
	if b.r.ResponseID != "" || len(b.r.Sequences) == 0 {
		return b.r.ResponseID
	}
	if id := b.r.Sequences[0].External; strings.HasPrefix(id, "chatcmpl-") {
		return id
	}
	return ""
}

func (b *builder) usage(at *attributes) {
	q := b.x.Request
	if len(b.r.Sequences) == 0 {
		return
	}
	at.number(semconv.GenAIUsageInputTokensKey, int64(q.Prompt))
	at.number(semconv.GenAIUsageOutputTokensKey, int64(b.a.Output))
	at.some(semconv.GenAIUsageCacheReadInputTokensKey, int64(q.Cached))
	at.some(semconv.GenAIRequestMaxTokensKey, int64(b.r.Sequences[0].Max))
	if n := len(b.r.Sequences); n > 1 {
		at.number(semconv.GenAIRequestChoiceCountKey, int64(n))
	}
	if b.r.Chunks > 1 {
		at.flag(semconv.GenAIRequestStreamKey, true)
	}
	var reasons []string
	for _, s := range b.r.Sequences {
		if s.Reason != ledger.FinishUnknown {
			reasons = append(reasons, s.Reason.String())
		}
	}
	at.texts(semconv.GenAIResponseFinishReasonsKey, reasons)
	at.some("whylate.preemptions", int64(q.Preemptions))
	if s := q.Speculation; s != nil {
		at.number("whylate.speculation.drafted_tokens", int64(s.Drafted))
		at.number("whylate.speculation.accepted_tokens", int64(s.Accepted))
	}
}

func (b *builder) outcome(at *attributes) {
	at.some(semconv.HTTPResponseStatusCodeKey, int64(b.r.Status))
	if b.r.Path != "" {
		at.text(semconv.HTTPRouteKey, genai.Label(b.r.Path))
	}
	at.text(semconv.ErrorTypeKey, errorType(b.r))
	if b.r.End != ledger.EndUnknown {
		at.text("whylate.end", b.r.End.String())
	}
}

// errorType is what failed, "" where nothing did. A client that hung up did as it wanted.
func errorType(r *ledger.Request) string {
	reason := func(f ledger.FinishReason) bool {
		return slices.ContainsFunc(r.Sequences, func(q *ledger.Sequence) bool { return q.Reason == f })
	}
	switch {
	case r.Status >= http.StatusBadRequest:
		return strconv.Itoa(r.Status)
	case reason(ledger.FinishError):
		return "engine_error"
	case reason(ledger.FinishLost):
		return "lost"
	case r.End == ledger.EndError:
		return "application_error"
	}
	return ""
}

// width is how long a part lasted, with what is missing in it; known is false where the account has no such stretch.
func (b *builder) width(p account.Part) (ns int64, known bool) {
	for _, s := range b.a.Bounds {
		if s.Part == p {
			ns, known = ns+s.To-s.From, true
		}
	}
	return ns, known || b.a.Line(p).Seen
}

// latencies are the moments of the account as engines tell them.
func (b *builder) latencies(at *attributes) {
	at.seconds(latencyE2E, b.a.E2E())
	for _, l := range []struct {
		key  attribute.Key
		part account.Part
	}{{latencyQueue, account.Queue}, {latencyPrefill, account.Prefill}, {latencyDecode, account.Decode}} {
		if ns, known := b.width(l.part); known {
			at.seconds(l.key, ns)
		}
	}
	if t := b.firstToken(); t != 0 {
		at.seconds(latencyFirstToken, t-b.a.From)
	}
	if b.r.FirstByte != 0 && b.r.Received != 0 {
		at.seconds("whylate.time_to_first_byte", b.r.FirstByte-b.r.Received)
	}
}

// firstToken is when the request's first token was emitted, 0 if none was.
func (b *builder) firstToken() int64 {
	if b.a.Lead == nil || b.a.Lead.FirstToken == 0 {
		return 0
	}
	return min(max(b.a.Lead.FirstToken, b.a.From), b.a.To)
}

// account tells the parts, what the answer rests on, and what was found.
func (b *builder) account(at *attributes) {
	for _, l := range b.a.Lines {
		if l.Seen || l.NS != 0 {
			at.millis(attribute.Key("whylate."+string(l.Part)+"_ms"), l.NS)
		}
	}
	if b.a.TTFT != 0 {
		at.millis("whylate.ttft_ms", b.a.TTFT)
	}
	if b.a.TPOT != 0 {
		at.millis("whylate.tpot_ms", b.a.TPOT)
	}
	at.text("whylate.level", b.x.Basis.Level)
	at.float("whylate.coverage", b.x.Basis.Coverage)
	if u := b.x.Basis.Uncertainty; u != 0 {
		at.millis("whylate.clock_uncertainty_ms", u)
	}
	if c := b.x.Client; c != nil {
		at.millis("whylate.client.e2e_ms", c.E2E)
		at.millis("whylate.client.outside_ms", c.Outside)
		at.text("whylate.client.outcome", c.Outcome.String())
		if c.Attempts > 1 {
			at.number("whylate.client.attempts", int64(c.Attempts))
		}
	}
	if len(b.x.Findings) > 0 {
		f := &b.x.Findings[0]
		at.text("whylate.finding.kind", f.ID)
		at.text("whylate.finding.part", string(f.Part))
		at.millis("whylate.finding.ms", f.NS)
		at.text("whylate.finding", b.sentence(f))
	}
}

// sentence is the first sentence of a finding, "" where it may name what must not leave.
func (b *builder) sentence(f *diagnose.Finding) string {
	if !b.o.IDs {
		return ""
	}
	for _, k := range f.Culprits {
		if k.Kind == "request" && identifier(k.ID) == "" {
			return ""
		}
	}
	first, _, more := strings.Cut(f.Text, ". ")
	if more {
		first += "."
	}
	return first
}

// part makes the span of one stretch of the account.
func (b *builder) part(i int, s account.Bound) {
	var at attributes
	line := b.a.Line(s.Part)
	at.text("whylate.part", string(s.Part))
	if s.Missing != 0 {
		at.millis("whylate.unexplained_ms", s.Missing)
	}
	for _, sp := range line.Splits {
		at.millis(attribute.Key("whylate.split."+slug(sp.Name)+"_ms"), sp.NS)
	}
	if slices.ContainsFunc(line.Splits, func(sp account.Split) bool { return sp.Modelled }) {
		at.flag("whylate.modelled", true)
	}
	span := b.add(b.root, fmt.Sprintf("part %d %s", i, s.Part), spanName(s.Part), tracepb.Span_SPAN_KIND_INTERNAL, s.From, s.To)
	span.Attributes = at
	b.parts = append(b.parts, span)
}

// slug is a split's name as a key: letters, digits and underlines.
func slug(name string) string {
	name = strings.ReplaceAll(name, "'", "")
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return strings.Join(words, "_")
}

// sequence makes the span of one of several sequences: beside the parts, which are the request's.
func (b *builder) sequence(q *ledger.Sequence) {
	from := cmp.Or(q.Submitted, q.Arrived, q.Queued, b.a.From)
	to := cmp.Or(q.Finished, q.LastToken, b.a.To)
	s := b.add(b.root, "sequence "+q.ID, "whylate.sequence", tracepb.Span_SPAN_KIND_INTERNAL, from, to)
	var at attributes
	at.number("whylate.sequence.index", int64(q.Index))
	at.number("whylate.sequence.output_tokens", int64(q.Output))
	if q.Reason != ledger.FinishUnknown {
		at.text("whylate.sequence.finish_reason", q.Reason.String())
	}
	s.Attributes = at
	b.life(q, []*tracepb.Span{s})
}

// resource is who answered: the engine.
func (t *Trace) resource() *resourcepb.Resource {
	var at attributes
	id := t.Engine
	at.text(semconv.ServiceNameKey, cmp.Or(identifier(id.Deployment), identifier(id.Replica), "whylate"))
	if id.Replica != "" {
		at.text(semconv.ServiceInstanceIDKey, identifier(fmt.Sprintf("%s/%d", id.Replica, id.Rank)))
	}
	at.text(semconv.ServiceVersionKey, identifier(t.build))
	at.text("whylate.engine.incarnation", identifier(id.Incarnation))
	return &resourcepb.Resource{Attributes: at}
}

// Batch puts traces together as OTLP sends them: those of one engine share a resource.
func Batch(traces []*Trace) []*tracepb.ResourceSpans {
	type sender struct {
		engine       ledger.EngineID
		build, scope string
	}
	found := map[sender]*tracepb.ScopeSpans{}
	var out []*tracepb.ResourceSpans
	for _, t := range traces {
		key := sender{t.Engine, t.build, t.scope}
		ss := found[key]
		if ss == nil {
			ss = &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: "github.com/whylate/whylate/export", Version: t.scope}, SchemaUrl: SchemaURL}
			found[key] = ss
			out = append(out, &tracepb.ResourceSpans{Resource: t.resource(), ScopeSpans: []*tracepb.ScopeSpans{ss}, SchemaUrl: SchemaURL})
		}
		ss.Spans = append(ss.Spans, t.Spans...)
	}
	return out
}
