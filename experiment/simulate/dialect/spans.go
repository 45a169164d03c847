package dialect

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/whylate/whylate/wire"
)

// exporter makes the spans of one process and gives them away as export requests, as an SDK's batch processor does: when there are enough,
// and when time has passed.
type exporter struct {
	put    func(export []byte)
	traces ptrace.Traces
	spans  ptrace.SpanSlice
	since  int64 // Unix ns, of the first span that waits
}

const (
	mostSpans   = 512
	exportAfter = 5 * time.Second
)

func newExporter(service, scope string, resource [][2]string, put func([]byte)) *exporter {
	x := &exporter{put: put, traces: ptrace.NewTraces()}
	rs := x.traces.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", service)
	for _, r := range resource {
		rs.Resource().Attributes().PutStr(r[0], r[1])
	}
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(scope)
	x.spans = ss.Spans()
	return x
}

// span begins a span that is exported when it is full.
func (x *exporter) span(at int64) ptrace.Span {
	x.tick(at)
	if x.spans.Len() == 0 {
		x.since = at
	}
	return x.spans.AppendEmpty()
}

// tick exports what waits, if it is time.
func (x *exporter) tick(at int64) {
	if n := x.spans.Len(); n >= mostSpans || n > 0 && at-x.since >= int64(exportAfter) {
		x.flush()
	}
}

// flush exports what waits.
func (x *exporter) flush() {
	if x.spans.Len() == 0 {
		return
	}
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(x.traces)
	if err != nil { // of a tree that was built here
		panic(err)
	}
	x.put(append(text, '\n'))
	x.spans.RemoveIf(func(ptrace.Span) bool { return true })
}

// requests are the spans llm_request of a front end: one for each sequence whose final output has passed, made at its end.
type requests struct{ *exporter }

func newRequests(h *wire.Hello, put func([]byte)) *requests {
	return &requests{newExporter("vllm", "vllm.tracing.otel", [][2]string{
		{"telemetry.sdk.language", "python"}, {"telemetry.sdk.name", "opentelemetry"}, {"service.instance.id", h.Engine.Incarnation},
		{"vllm.instrumenting_module_name", "vllm.llm_engine"}, {"vllm.process_id", fmt.Sprint(h.PID)},
	}, put)}
}

func (r *requests) iterated(*engine, int64, *iteration) {}
func (r *requests) output(*engine, int64, *output)      {}
func (r *requests) state(_ *engine, at int64, _ *state) { r.tick(at) }

// ended makes the span of a sequence. What the sampling parameters were is not on the wire, but for the longest answer.
func (r *requests) ended(q *sequence, at int64) {
	s := r.span(at)
	trace, parent := parents(q.exchange)
	s.SetTraceID(trace.or(q.id))
	s.SetParentSpanID(parent)
	s.SetSpanID(spanID("llm_request " + q.engine.hello.Engine.Incarnation + " " + q.id))
	s.SetName("llm_request")
	s.SetKind(ptrace.SpanKindServer)
	s.SetStartTimestamp(pcommon.Timestamp(q.arrival * 1e9))
	s.SetEndTimestamp(pcommon.Timestamp(at))
	a := s.Attributes()
	a.PutDouble("gen_ai.latency.time_to_first_token", q.firstReceipt-q.arrival)
	a.PutDouble("gen_ai.latency.e2e", q.receipt-q.arrival)
	a.PutDouble("gen_ai.latency.time_in_queue", q.scheduled-q.queued)
	a.PutInt("gen_ai.usage.prompt_tokens", int64(q.prompt))
	a.PutInt("gen_ai.usage.completion_tokens", int64(q.output))
	a.PutDouble("gen_ai.latency.time_in_model_prefill", q.firstAt-q.scheduled)
	a.PutDouble("gen_ai.latency.time_in_model_decode", q.lastAt-q.firstAt)
	a.PutDouble("gen_ai.latency.time_in_model_inference", q.lastAt-q.scheduled)
	a.PutStr("gen_ai.request.id", q.external)
	if q.most > 0 {
		a.PutInt("gen_ai.request.max_tokens", int64(q.most))
	}
	a.PutInt("gen_ai.request.n", 1) // of each child, too
}

// calls are the spans of a client or a gateway: one for each of its requests.
type calls struct {
	*exporter
	model func() string
}

func newCalls(h *wire.Hello, model func() string, put func([]byte)) *calls {
	return &calls{newExporter(h.Role, "whylate.simulate", [][2]string{{"service.instance.id", fmt.Sprintf("%s-%d", h.Host, h.PID)}, {"host.name", h.Host}}, put), model}
}

// seen makes the span of a request: the parent of the engine's, if it was sent with a traceparent.
func (c *calls) seen(at int64, offset int64, m *wire.Client) {
	s := c.span(at)
	traceparent := exchange{traceparent: m.Traceparent}
	trace, own := parents(&traceparent)
	s.SetTraceID(trace.or(m.RequestID))
	if own.IsEmpty() {
		own = spanID(fmt.Sprintf("client %s %d", m.RequestID, m.Attempt))
	}
	s.SetSpanID(own)
	s.SetName(strings.TrimSpace("text_completion " + c.model()))
	s.SetKind(ptrace.SpanKindClient)
	s.SetStartTimestamp(pcommon.Timestamp(m.Time + offset))
	s.SetEndTimestamp(pcommon.Timestamp(m.End + offset))
	a := s.Attributes()
	a.PutStr("gen_ai.operation.name", "text_completion")
	a.PutStr("gen_ai.provider.name", "vllm")
	a.PutStr("gen_ai.request.model", c.model())
	a.PutBool("gen_ai.request.stream", true)
	if m.ResponseID != "" {
		a.PutStr("gen_ai.response.id", m.ResponseID)
	}
	a.PutInt("gen_ai.usage.input_tokens", int64(m.Prompt))
	a.PutInt("gen_ai.usage.output_tokens", int64(m.Output))
	if m.First > 0 {
		a.PutDouble("gen_ai.response.time_to_first_chunk", float64(m.First-m.Time)/1e9)
	}
	if m.Status > 0 {
		a.PutInt("http.response.status_code", int64(m.Status))
	}
	if m.Attempt > 1 {
		a.PutInt("http.request.resend_count", int64(m.Attempt)-1)
	}
	if failed := failure[m.Outcome]; failed != "" {
		a.PutStr("error.type", failed)
		s.Status().SetCode(ptrace.StatusCodeError)
	}
}

// failure is the type of error of an outcome.
var failure = map[wire.Outcome]string{wire.OutcomeHTTPError: "http_error", wire.OutcomeConnectionError: "connection_error", wire.OutcomeCancelled: "cancelled", wire.OutcomeTimeout: "timeout"}

// traceID is one of a traceparent, zero where there is none.
type traceID pcommon.TraceID

// or is the id, or where it is zero one that belongs to a name.
func (t traceID) or(name string) pcommon.TraceID {
	if id := pcommon.TraceID(t); !id.IsEmpty() {
		return id
	}
	sum := sha256.Sum256([]byte("trace " + name))
	return pcommon.TraceID(sum[:16])
}

// spanID is one that belongs to a name: the same run has the same ids.
func spanID(name string) (id pcommon.SpanID) {
	sum := sha256.Sum256([]byte("span " + name))
	binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(sum[:])|1)
	return id
}

// parents are the ids of a request's traceparent: 00-<32 hex digits>-<16 hex digits>-<2>.
func parents(x *exchange) (trace traceID, parent pcommon.SpanID) {
	if x == nil {
		return
	}
	fields := strings.Split(x.traceparent, "-")
	if len(fields) != 4 || len(fields[1]) != 32 || len(fields[2]) != 16 {
		return
	}
	var t traceID
	var p pcommon.SpanID
	if _, err := hex.Decode(t[:], []byte(fields[1])); err != nil {
		return
	}
	if _, err := hex.Decode(p[:], []byte(fields[2])); err != nil {
		return
	}
	return t, p
}
