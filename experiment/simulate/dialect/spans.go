package dialect

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/whylate/whylate/wire"
)

// exporter makes the spans of one process and gives them away as export requests, as an SDK's batch processor does: when there are enough,
// and when time has passed.
type exporter struct {
	put      func(export []byte)
	resource resource
	scope    scope
	spans    []*span
	since    int64 // Unix ns, of the first span that waits
}

const (
	mostSpans   = 512
	exportAfter = 5 * time.Second
)

func newExporter(service, name string, about [][2]string, put func([]byte)) *exporter {
	x := &exporter{put: put, scope: scope{name}}
	x.resource.Attributes.str("service.name", service)
	for _, r := range about {
		x.resource.Attributes.str(r[0], r[1])
	}
	return x
}

// span begins a span that is exported when it is full.
func (x *exporter) span(at int64) *span {
	x.tick(at)
	if len(x.spans) == 0 {
		x.since = at
	}
	s := &span{}
	x.spans = append(x.spans, s)
	return s
}

// tick exports what waits, if it is time.
func (x *exporter) tick(at int64) {
	if n := len(x.spans); n >= mostSpans || n > 0 && at-x.since >= int64(exportAfter) {
		x.flush()
	}
}

// flush exports what waits.
func (x *exporter) flush() {
	if len(x.spans) == 0 {
		return
	}
	e := export{[]resourceSpans{{x.resource, []scopeSpans{{x.scope, x.spans}}}}}
	x.put(e.line())
	clear(x.spans)
	x.spans = x.spans[:0]
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
	s.TraceID = trace.or(q.id)
	s.Parent = parent
	s.SpanID = spanOf("llm_request " + q.engine.hello.Engine.Incarnation + " " + q.id)
	s.Name = "llm_request"
	s.Kind = kindServer
	s.Start = unixNano(q.arrival * 1e9)
	s.End = unixNano(at)
	a := &s.Attributes
	a.double("gen_ai.latency.time_to_first_token", q.firstReceipt-q.arrival)
	a.double("gen_ai.latency.e2e", q.receipt-q.arrival)
	a.double("gen_ai.latency.time_in_queue", q.scheduled-q.queued)
	a.number("gen_ai.usage.prompt_tokens", int64(q.prompt))
	a.number("gen_ai.usage.completion_tokens", int64(q.output))
	a.double("gen_ai.latency.time_in_model_prefill", q.firstAt-q.scheduled)
	a.double("gen_ai.latency.time_in_model_decode", q.lastAt-q.firstAt)
	a.double("gen_ai.latency.time_in_model_inference", q.lastAt-q.scheduled)
	a.str("gen_ai.request.id", q.external)
	if q.most > 0 {
		a.number("gen_ai.request.max_tokens", int64(q.most))
	}
	a.number("gen_ai.request.n", 1) // of each child, too
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
	s.TraceID = trace.or(m.RequestID)
	if own == (spanID{}) {
		own = spanOf(fmt.Sprintf("client %s %d", m.RequestID, m.Attempt))
	}
	s.SpanID = own
	s.Name = strings.TrimSpace("text_completion " + c.model())
	s.Kind = kindClient
	s.Start = unixNano(m.Time + offset)
	s.End = unixNano(m.End + offset)
	a := &s.Attributes
	a.str("gen_ai.operation.name", "text_completion")
	a.str("gen_ai.provider.name", "vllm")
	a.str("gen_ai.request.model", c.model())
	a.flag("gen_ai.request.stream", true)
	if m.ResponseID != "" {
		a.str("gen_ai.response.id", m.ResponseID)
	}
	a.number("gen_ai.usage.input_tokens", int64(m.Prompt))
	a.number("gen_ai.usage.output_tokens", int64(m.Output))
	if m.First > 0 {
		a.double("gen_ai.response.time_to_first_chunk", float64(m.First-m.Time)/1e9)
	}
	if m.Status > 0 {
		a.number("http.response.status_code", int64(m.Status))
	}
	if m.Attempt > 1 {
		a.number("http.request.resend_count", int64(m.Attempt)-1)
	}
	if failed := failure[m.Outcome]; failed != "" {
		a.str("error.type", failed)
		s.Status.Code = statusError
	}
}

// failure is the type of error of an outcome.
var failure = map[wire.Outcome]string{wire.OutcomeHTTPError: "http_error", wire.OutcomeConnectionError: "connection_error", wire.OutcomeCancelled: "cancelled", wire.OutcomeTimeout: "timeout"}

// or is the id, or where it is zero one that belongs to a name.
func (t traceID) or(name string) traceID {
	if t != (traceID{}) {
		return t
	}
	sum := sha256.Sum256([]byte("trace " + name))
	return traceID(sum[:16])
}

// spanOf is an id that belongs to a name: the same run has the same ids.
func spanOf(name string) (id spanID) {
	sum := sha256.Sum256([]byte("span " + name))
	binary.BigEndian.PutUint64(id[:], binary.BigEndian.Uint64(sum[:])|1)
	return id
}

// parents are the ids of a request's traceparent: 00-<32 hex digits>-<16 hex digits>-<2>.
func parents(x *exchange) (t traceID, p spanID) {
	if x == nil {
		return
	}
	fields := strings.Split(x.traceparent, "-")
	if len(fields) != 4 || len(fields[1]) != 32 || len(fields[2]) != 16 {
		return
	}
	_, err := hex.Decode(t[:], []byte(fields[1]))
	if _, also := hex.Decode(p[:], []byte(fields[2])); err != nil || also != nil {
		return traceID{}, spanID{}
	}
	return t, p
}
