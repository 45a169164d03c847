package otlp

import (
	"encoding/binary"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/whylate/whylate/adapter/genai"
)

// fleet is a request of n calls as a gateway, a web server and vLLM 0.32 show them: three spans each, with the attributes that they really have.
func fleet(n int, seed uint64) ptraceotlp.ExportRequest {
	traces := ptrace.NewTraces()
	spans := func(service, host, scope string) ptrace.SpanSlice {
		rs := traces.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", service)
		rs.Resource().Attributes().PutStr("host.name", host)
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().SetName(scope)
		return ss.Spans()
	}
	gateway, web, engine := spans("gateway", "edge-1", "gateway"), spans("vllm", "gpu-1", "opentelemetry.instrumentation.fastapi"), spans("vllm", "gpu-1", "vllm.tracing.otel")
	add := func(to ptrace.SpanSlice, trace uint64, id, parent byte, name string, kind ptrace.SpanKind, from, until int64) pcommon.Map {
		s := to.AppendEmpty()
		var t pcommon.TraceID
		binary.BigEndian.PutUint64(t[:], trace*0x9e3779b97f4a7c15)
		binary.BigEndian.PutUint64(t[8:], trace)
		s.SetTraceID(t)
		s.SetSpanID(pcommon.SpanID{id, 1, 2, 3, 4, 5, 6, 7})
		if parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{parent, 1, 2, 3, 4, 5, 6, 7})
		}
		s.SetName(name)
		s.SetKind(kind)
		s.SetStartTimestamp(pcommon.Timestamp(from))
		s.SetEndTimestamp(pcommon.Timestamp(until))
		return s.Attributes()
	}
	for i := range n {
		k := seed + uint64(i)
		start := 1_772_700_000_000_000_000 + int64(k)*1_000_000
		a := add(gateway, k, 1, 0, "chat tiny", ptrace.SpanKindClient, start, start+2_400_000_000)
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.request.model", "tiny")
		a.PutStr("gen_ai.provider.name", "vllm")
		a.PutStr("server.address", "vllm.serving.svc")
		a.PutInt("gen_ai.usage.input_tokens", int64(100+k%900))
		a.PutInt("gen_ai.usage.output_tokens", 41)
		a = add(web, k, 2, 1, "POST /v1/chat/completions", ptrace.SpanKindServer, start+4_000_000, start+2_396_000_000)
		a.PutStr("http.method", "POST")
		a.PutStr("http.scheme", "http")
		a.PutStr("http.target", "/v1/chat/completions")
		a.PutInt("http.status_code", 200)
		a.PutStr("net.peer.ip", "192.0.2.10")
		a = add(engine, k, 3, 1, "llm_request", ptrace.SpanKindServer, start+9_500_000, start+2_381_000_000)
		a.PutDouble("gen_ai.latency.time_to_first_token", 0.421)
		a.PutDouble("gen_ai.latency.e2e", 2.3715)
		a.PutDouble("gen_ai.latency.time_in_queue", 0.012)
		a.PutInt("gen_ai.usage.prompt_tokens", int64(100+k%900))
		a.PutInt("gen_ai.usage.completion_tokens", 41)
		a.PutDouble("gen_ai.latency.time_in_model_prefill", 0.371)
		a.PutDouble("gen_ai.latency.time_in_model_decode", 1.94)
		a.PutDouble("gen_ai.latency.time_in_model_inference", 2.311)
		a.PutStr("gen_ai.request.id", "chatcmpl-0123456789abcdef")
		a.PutDouble("gen_ai.request.top_p", 1)
		a.PutInt("gen_ai.request.max_tokens", 512)
		a.PutDouble("gen_ai.request.temperature", 0.7)
		a.PutInt("gen_ai.request.n", 1)
	}
	return ptraceotlp.NewExportRequestFromTraces(traces)
}

// processor is the time that the process has had a processor: what one core would take, whoever else uses the machine.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Spans a second on one core, decoded and mapped to calls (DESIGN §13).
func BenchmarkDecodeAndMap(b *testing.B) {
	const calls = 3000
	request := fleet(calls, 1)
	proto, err := request.MarshalProto()
	if err != nil {
		b.Fatal(err)
	}
	text, err := request.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		body []byte
		e    Encoding
	}{{"protobuf", proto, Protobuf}, {"json", text, JSON}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			var d Decoder
			began := processor(b)
			for b.Loop() {
				out, err := d.Decode(c.body, c.e, false)
				if err != nil {
					b.Fatal(err)
				}
				if v := genai.Calls(out.Spans); len(v.Calls) != calls || v.Counts.UsableClient != calls {
					b.Fatal(v.Counts)
				}
			}
			b.ReportMetric(float64(3*calls*b.N)/(processor(b)-began).Seconds(), "spans/core-s")
		})
		b.Run(c.name+"-decode", func(b *testing.B) {
			b.ReportAllocs()
			var d Decoder
			began := processor(b)
			for b.Loop() {
				if _, err := d.Decode(c.body, c.e, false); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(3*calls*b.N)/(processor(b)-began).Seconds(), "spans/core-s")
		})
	}
}
