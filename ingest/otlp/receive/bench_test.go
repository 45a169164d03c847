package receive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	theirreceiver "go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/whylate/whylate/adapter/genai"
)

// calls is a request of n calls as a gateway and vLLM show them, with the attributes that vLLM 0.32 really has.
func calls(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("vllm.tracing.otel")
	for i := range n {
		for side := range 2 {
			s := ss.Spans().AppendEmpty()
			s.SetTraceID(pcommon.TraceID{1, byte(i >> 16), byte(i >> 8), byte(i)})
			s.SetSpanID(pcommon.SpanID{byte(side + 1), byte(i >> 8), byte(i)})
			s.SetName([]string{"chat tiny", "llm_request"}[side])
			s.SetKind([]ptrace.SpanKind{ptrace.SpanKindClient, ptrace.SpanKindServer}[side])
			s.SetStartTimestamp(pcommon.Timestamp(start + i*1e6))
			s.SetEndTimestamp(pcommon.Timestamp(now + i*1e6))
			a := s.Attributes()
			if side == 0 {
				a.PutStr("gen_ai.operation.name", "chat")
				a.PutStr("gen_ai.request.model", "tiny")
				a.PutStr("server.address", "vllm.serving.svc")
				continue
			}
			s.SetParentSpanID(pcommon.SpanID{1, byte(i >> 8), byte(i)})
			for _, k := range []string{"time_to_first_token", "e2e", "time_in_queue", "time_in_model_prefill", "time_in_model_decode", "time_in_model_inference"} {
				a.PutDouble("gen_ai.latency."+k, 0.421)
			}
			a.PutInt("gen_ai.usage.prompt_tokens", int64(100+i%900))
			a.PutInt("gen_ai.usage.completion_tokens", 41)
			a.PutStr("gen_ai.request.id", "chatcmpl-0123456789abcdef")
			a.PutDouble("gen_ai.request.top_p", 1)
			a.PutInt("gen_ai.request.max_tokens", 512)
			a.PutDouble("gen_ai.request.temperature", 0.7)
		}
	}
	return td
}

// processor is the time that the process has had a processor: what one core would take, whoever else uses the machine.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// collector starts the OpenTelemetry Collector's own receiver with a consumer that counts.
func collector(b *testing.B, spans *atomic.Int64) (grpcAt, httpAt string) {
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	grpcAt, httpAt = free(), free()
	f := otlpreceiver.NewFactory()
	c := f.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{"grpc": map[string]any{"endpoint": grpcAt}, "http": map[string]any{"endpoint": httpAt}}}).Unmarshal(c); err != nil {
		b.Fatal(err)
	}
	next, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error { spans.Add(int64(td.SpanCount())); return nil })
	if err != nil {
		b.Fatal(err)
	}
	r, err := f.CreateTraces(b.Context(), theirreceiver.Settings{ID: component.NewID(f.Type()), TelemetrySettings: component.TelemetrySettings{Logger: zap.NewNop(), TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(), Resource: pcommon.NewResource()}}, c, next)
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Start(b.Context(), nobody{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Shutdown(context.Background()) })
	return grpcAt, httpAt
}

type nobody struct{}

func (nobody) GetExtensions() map[component.ID]component.Component { return nil }

// Spans a second on one core from the wire to the sink, the sender's part in the same process included: ours (decoded to spans without content,
// and also mapped to calls), and the Collector's own receiver (decoded).
func BenchmarkReceivers(b *testing.B) {
	const n = 1500
	proto, js := traceBodies(b, calls(n))
	var spans atomic.Int64
	ours := func(mapped bool) (grpcAt, httpAt string) {
		r := New(Sinks{Spans: func(_ context.Context, list []genai.Span) error {
			spans.Add(int64(len(list)))
			if mapped {
				if v := genai.Calls(list); len(v.Calls) != n {
					return fmt.Errorf("%d calls", len(v.Calls))
				}
			}
			return nil
		}}, Settings{})
		web := httptest.NewServer(r.Handler(nil))
		b.Cleanup(web.Close)
		return serving(b, r, nil), web.Listener.Addr().String()
	}
	for _, who := range []struct {
		name  string
		start func() (string, string)
	}{{"ours", func() (string, string) { return ours(false) }}, {"ours-mapped", func() (string, string) { return ours(true) }}, {"collector", func() (string, string) { return collector(b, &spans) }}} {
		grpcAt, httpAt := who.start()
		conn := dial(b, grpcAt)
		for _, how := range []struct {
			name string
			send func() error
		}{
			{"grpc-protobuf", func() error { _, err := call(b, conn, proto); return err }},
			{"http-protobuf", func() error { return posted(httpAt, protobufType, proto) }},
			{"http-json", func() error { return posted(httpAt, jsonType, js) }},
		} {
			b.Run(who.name+"/"+how.name, func(b *testing.B) {
				b.ReportAllocs()
				before, began := spans.Load(), processor(b)
				for b.Loop() {
					if err := how.send(); err != nil {
						b.Fatal(err)
					}
				}
				if got := spans.Load() - before; got != int64(2*n*b.N) {
					b.Fatalf("%d spans of %d", got, 2*n*b.N)
				}
				b.ReportMetric(float64(2*n*b.N)/(processor(b)-began).Seconds(), "spans/core-s")
			})
		}
	}
}

func posted(at, kind string, body []byte) error {
	r, err := http.Post("http://"+at+"/v1/traces", kind, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %w", r.Status, err)
	}
	return nil
}
