package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/store/embedded"
)

// callsPerExport and spansPerExport are what one export has.
const (
	callsPerExport = 300
	spansPerExport = 3 * callsPerExport
)

// traceMark begins every trace id of an export that is made; the four bytes behind it are the export's number.
var traceMark = []byte{0xc0, 0xff, 0xee, 0x5a}

// export is a request of calls as a gateway, a web server and vLLM 0.32 show them: three spans each, with the attributes that they really have.
func exportOf() ptraceotlp.ExportRequest {
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
	for k := range int64(callsPerExport) {
		var trace pcommon.TraceID
		copy(trace[:], traceMark)
		binary.BigEndian.PutUint64(trace[8:], uint64(k+1)*0x9e3779b97f4a7c15)
		start := 1_800_000_000_000_000_000 + k*1_234_567
		took := 1_400_000_000 + k*7_654_321
		add := func(to ptrace.SpanSlice, id, parent byte, name string, kind ptrace.SpanKind, from, until int64) pcommon.Map {
			s := to.AppendEmpty()
			s.SetTraceID(trace)
			s.SetSpanID(pcommon.SpanID{id, byte(k), byte(k >> 8), 3, 4, 5, 6, 7})
			if parent > 0 {
				s.SetParentSpanID(pcommon.SpanID{parent, byte(k), byte(k >> 8), 3, 4, 5, 6, 7})
			}
			s.SetName(name)
			s.SetKind(kind)
			s.SetStartTimestamp(pcommon.Timestamp(from))
			s.SetEndTimestamp(pcommon.Timestamp(until))
			return s.Attributes()
		}
		a := add(gateway, 1, 0, "chat tiny", ptrace.SpanKindClient, start, start+took)
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.request.model", "tiny")
		a.PutStr("gen_ai.provider.name", "vllm")
		a.PutStr("server.address", "vllm.serving.svc")
		a.PutInt("gen_ai.usage.input_tokens", 100+k%900)
		a.PutInt("gen_ai.usage.output_tokens", 41)
		a = add(web, 2, 1, "POST /v1/chat/completions", ptrace.SpanKindServer, start+4_000_000, start+took-4_000_000)
		a.PutStr("http.method", "POST")
		a.PutStr("http.scheme", "http")
		a.PutStr("http.target", "/v1/chat/completions")
		a.PutInt("http.status_code", 200)
		a.PutStr("net.peer.ip", "192.0.2.10")
		a = add(engine, 3, 1, "llm_request", ptrace.SpanKindServer, start+9_500_000, start+took-19_000_000)
		a.PutDouble("gen_ai.latency.time_to_first_token", 0.421+float64(k)/1e5)
		a.PutDouble("gen_ai.latency.e2e", float64(took-28_500_000)/1e9)
		a.PutDouble("gen_ai.latency.time_in_queue", 0.012+float64(k)/1e6)
		a.PutInt("gen_ai.usage.prompt_tokens", 100+k%900)
		a.PutInt("gen_ai.usage.completion_tokens", 41)
		a.PutDouble("gen_ai.latency.time_in_model_prefill", 0.371)
		a.PutDouble("gen_ai.latency.time_in_model_decode", float64(took)/1e9-0.5)
		a.PutDouble("gen_ai.latency.time_in_model_inference", float64(took)/1e9-0.1)
		a.PutStr("gen_ai.request.id", "chatcmpl-0123456789abcdef"+strconv.FormatInt(k, 16))
		a.PutDouble("gen_ai.request.top_p", 1)
		a.PutInt("gen_ai.request.max_tokens", 512)
		a.PutDouble("gen_ai.request.temperature", 0.7)
		a.PutInt("gen_ai.request.n", 1)
	}
	return ptraceotlp.NewExportRequestFromTraces(traces)
}

// numbered is a copy of an export with another number in its trace ids, which mark begins, in an encoding of bytes.
func numbered(body, mark []byte, number []byte) []byte {
	out := bytes.Clone(body)
	for at := 0; ; {
		i := bytes.Index(out[at:], mark)
		if i < 0 {
			return out
		}
		copy(out[at+i+len(mark):], number)
		at += i + len(mark)
	}
}

// vary makes the calls of an export unlike those of another: ids, times and lengths.
func vary(spans []genai.Span, n uint64) {
	rng := rand.New(rand.NewPCG(n, 1))
	at, longer := make([]int64, callsPerExport), make([]int64, callsPerExport)
	trace := make([]uint64, callsPerExport)
	for k := range callsPerExport {
		at[k], longer[k], trace[k] = rng.Int64N(1e9)+int64(n)*1e9, rng.Int64N(20e9), rng.Uint64()
	}
	for i := range spans {
		s, k := &spans[i], i%callsPerExport
		binary.BigEndian.PutUint64(s.Trace[8:], trace[k])
		s.Start += at[k]
		s.End += at[k] + longer[k]
		for j := range s.Attrs {
			switch a := &s.Attrs[j]; a.Name.Key {
			case "gen_ai.latency.e2e", "gen_ai.latency.time_in_model_decode":
				a.Number += longer[k]
			case "gen_ai.latency.time_to_first_token", "gen_ai.latency.time_in_model_prefill":
				a.Number += int64(trace[k] % 3e8)
			case "gen_ai.request.id":
				a.Text = fmt.Sprintf("chatcmpl-%016x", trace[k]*0x9e3779b97f4a7c15)
			}
		}
	}
}

// processor is the time that the process has had a processor: what one core would take, whoever else uses the machine.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func number(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)*0x9e3779b1) }

// spanBench is a server on a real disk that seals as it does in earnest.
func spanBench(b *testing.B, set Settings) (s *Server, finish func() (calls, bytes int64)) {
	st, err := embedded.Open(b.TempDir(), embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var ahead atomic.Int64
	set.Log, set.Now = slog.New(slog.DiscardHandler), func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	set.FullEvery = 100 * time.Millisecond
	s = New(st, set)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for !s.ready.Load() {
		runtime.Gosched()
	}
	return s, func() (calls, bytes int64) {
		ahead.Store(int64(time.Hour))
		for s.spans.traces.size() > 0 {
			s.sealSpans(ctx)
		}
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		periods, err := st.Verify(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range periods {
			if p.Damaged != "" {
				b.Fatal(p.Damaged)
			}
			calls += p.Rows["calls"]
			bytes += p.Size()
		}
		if f := s.faults.list(); len(f) > 0 {
			b.Fatal(f)
		}
		st.Close()
		return calls, bytes
	}
}

// Spans a second from OTLP in protobuf, decoded, acknowledged, mapped and sealed; every call is counted in the sealed tables.
func BenchmarkSpansStored(b *testing.B) {
	body, err := exportOf().MarshalProto()
	if err != nil {
		b.Fatal(err)
	}
	const exports, senders = 500, 4
	for range b.N {
		s, finish := spanBench(b, Settings{HotSpans: 100_000})
		var next, turned atomic.Int64
		began, cpu := time.Now(), processor(b)
		var wg sync.WaitGroup
		for range senders {
			wg.Go(func() {
				var d otlp.Decoder
				for n := next.Add(1); n <= exports; n = next.Add(1) {
					out, err := d.Decode(numbered(body, traceMark, number(int(n))), otlp.Protobuf, false)
					if err != nil || len(out.Spans) != spansPerExport {
						b.Error(len(out.Spans), err)
						return
					}
					vary(out.Spans, uint64(n))
					for {
						err := s.AcceptSpans(context.Background(), out.Spans)
						if err == nil {
							break
						}
						if !errors.Is(err, stream.ErrOverloaded) {
							b.Error(err)
							return
						}
						turned.Add(1)
						time.Sleep(20 * time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		accepted := time.Since(began)
		calls, size := finish()
		took := time.Since(began)
		b.ReportMetric(float64(exports*spansPerExport)/took.Seconds(), "spans/s")
		b.ReportMetric(float64(exports*spansPerExport)/(processor(b)-cpu).Seconds(), "spans/core-s")
		b.ReportMetric(float64(exports*spansPerExport)/accepted.Seconds(), "accepted-spans/s")
		b.ReportMetric(float64(exports*callsPerExport-calls), "lost-calls")
		b.ReportMetric(float64(size)/float64(calls), "B/call")
		b.ReportMetric(float64(turned.Load()), "turned-away")
	}
}

// copies is a file of exports in JSON, a line each, that is made while it is read.
type copies struct {
	line, mark []byte
	left       int64 // bytes
	n          int
	rest       []byte
	read       int64
	at         func(int64)
}

func (c *copies) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.left <= 0 {
			return 0, io.EOF
		}
		c.n++
		c.rest = append(numbered(c.line, c.mark, []byte(hex.EncodeToString(number(c.n)))), '\n')
		c.left -= int64(len(c.rest))
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	c.read += int64(n)
	c.at(c.read)
	return n, nil
}

// resident is the process's memory in MB.
func resident(b *testing.B) float64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(raw))[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * float64(os.Getpagesize()) / 1e6
}

// A gigabyte of OTLP JSON lines is imported: how much memory at most in its first quarter, and in all of it.
func BenchmarkImportTraces(b *testing.B) {
	line, err := exportOf().MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	const total = 1 << 30
	for range b.N {
		s, finish := spanBench(b, Settings{HotSpans: 100_000})
		var quarter, most float64
		last := int64(0)
		c := &copies{line: line, mark: []byte(hex.EncodeToString(traceMark)), left: total, at: func(read int64) {
			if read-last < 4<<20 {
				return
			}
			last = read
			most = max(most, resident(b))
			if read <= total/4 {
				quarter = most
			}
		}}
		began := time.Now()
		r, err := s.Import(context.Background(), api.ImportQuery{Name: "bench"}, c)
		if err != nil {
			b.Fatal(err)
		}
		calls, _ := finish()
		b.ReportMetric(float64(r.Spans)/time.Since(began).Seconds(), "spans/s")
		b.ReportMetric(float64(int64(c.n)*callsPerExport-calls), "lost-calls")
		b.ReportMetric(quarter, "first-quarter-MB")
		b.ReportMetric(most, "MB")
		b.ReportMetric(most/quarter, "growth")
	}
}
