package receive

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ingest/otlp"
)

// sink keeps what it is given.
type sink struct {
	mu    sync.Mutex
	spans []genai.Span
	logs  []otlp.LogRecord
	lines []string
	err   error
}

func (s *sink) keep(_ context.Context, spans []genai.Span) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.spans = append(s.spans, spans...)
	}
	return s.err
}

func (s *sink) sinks(b *book) Sinks {
	return Sinks{Spans: s.keep, Metrics: taken{b},
		Logs: func(_ context.Context, r []otlp.LogRecord) ([]otlp.LogRecord, error) {
			s.logs = append(s.logs, r...)
			return r, nil
		},
		Console: func(_ *otlp.Origin, _ int64, line []byte) bool {
			s.lines = append(s.lines, string(line))
			return strings.HasPrefix(string(line), "INFO")
		}}
}

func trace(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "vllm")
	ss := rs.ScopeSpans().AppendEmpty()
	for i := range n {
		s := ss.Spans().AppendEmpty()
		var id pcommon.TraceID
		binary.BigEndian.PutUint64(id[8:], uint64(i+1))
		s.SetTraceID(id)
		s.SetSpanID(pcommon.SpanID{1})
		s.SetName("llm_request")
		s.SetStartTimestamp(start)
		s.SetEndTimestamp(now)
		s.Attributes().PutInt("gen_ai.usage.input_tokens", 7)
	}
	return td
}

func traceBodies(t testing.TB, td ptrace.Traces) (proto, js []byte) {
	t.Helper()
	r := ptraceotlp.NewExportRequestFromTraces(td)
	proto, _ = r.MarshalProto()
	js, err := r.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return proto, js
}

func zipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

// post sends a request and gives the answer.
func post(t testing.TB, h http.Handler, path string, b []byte, headers ...string) *http.Response {
	t.Helper()
	q := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(b))
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w.Result()
}

const protobufType, jsonType = "application/x-protobuf", "application/json"

func text(t testing.TB, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHTTPTakes(t *testing.T) {
	proto, js := traceBodies(t, trace(5))
	for name, c := range map[string]struct {
		body    []byte
		headers []string
	}{
		"protobuf":      {proto, []string{"Content-Type", protobufType}},
		"protobuf gzip": {zipped(proto), []string{"Content-Type", protobufType, "Content-Encoding", "gzip"}},
		"json":          {js, []string{"Content-Type", jsonType + "; charset=utf-8"}},
		"json gzip":     {zipped(js), []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}},
		"identity":      {js, []string{"Content-Type", jsonType, "Content-Encoding", "identity"}},
		"empty":         {nil, []string{"Content-Type", protobufType}},
	} {
		var s sink
		r := New(s.sinks(&book{}), Settings{})
		a := post(t, r.Handler(nil), "/v1/traces", c.body, c.headers...)
		want := 5
		if name == "empty" {
			want = 0
		}
		if a.StatusCode != 200 || len(s.spans) != want || !strings.HasPrefix(c.headers[1], a.Header.Get("Content-Type")) || r.inFlight.Load() != 0 {
			t.Errorf("%s: %s, %d spans, %q, %d bytes in flight", name, a.Status, len(s.spans), text(t, a), r.inFlight.Load())
		}
	}
}

func TestHTTPPartialSuccess(t *testing.T) {
	td := trace(5)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(3).SetTraceID(pcommon.TraceID{})
	proto, js := traceBodies(t, td)
	var s sink
	h := New(s.sinks(&book{}), Settings{}).Handler(nil)
	p := ptraceotlp.NewExportResponse()
	if err := p.UnmarshalProto([]byte(text(t, post(t, h, "/v1/traces", proto, "Content-Type", protobufType)))); err != nil || p.PartialSuccess().RejectedSpans() != 1 || !strings.Contains(p.PartialSuccess().ErrorMessage(), "trace id") {
		t.Error(err, p.PartialSuccess().ErrorMessage())
	}
	p = ptraceotlp.NewExportResponse()
	if err := p.UnmarshalJSON([]byte(text(t, post(t, h, "/v1/traces", js, "Content-Type", jsonType)))); err != nil || p.PartialSuccess().RejectedSpans() != 1 {
		t.Error(err)
	}
	md := fleet(1)
	md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().AppendEmpty()
	_, js = bodies(t, md)
	m := pmetricotlp.NewExportResponse()
	if err := m.UnmarshalJSON([]byte(text(t, post(t, h, "/v1/metrics", js, "Content-Type", jsonType)))); err != nil || m.PartialSuccess().RejectedDataPoints() != 1 {
		t.Error(err)
	}
	if len(s.spans) != 8 {
		t.Error(len(s.spans))
	}
}

// statusOfBody reads an error's body, which is a google.rpc.Status in the request's encoding.
func statusOfBody(t *testing.T, r *http.Response) *rpcstatus.Status {
	t.Helper()
	s := &rpcstatus.Status{}
	b := []byte(text(t, r))
	err := proto.Unmarshal(b, s)
	if r.Header.Get("Content-Type") == jsonType {
		err = protojson.Unmarshal(b, s)
	}
	if err != nil || s.Message == "" {
		t.Errorf("%s: no status: %v %q", r.Status, err, b)
	}
	return s
}

func TestHTTPRefuses(t *testing.T) {
	proto, js := traceBodies(t, trace(5))
	bomb := zipped(bytes.Repeat([]byte(" "), 10<<20))
	big := make([]byte, 2<<20)
	for name, c := range map[string]struct {
		body    []byte
		headers []string
		status  int
		code    codes.Code
		cause   string
	}{
		"type":      {proto, []string{"Content-Type", "text/plain"}, 415, codes.InvalidArgument, causeType},
		"no type":   {proto, nil, 415, codes.InvalidArgument, causeType},
		"zstd":      {proto, []string{"Content-Type", protobufType, "Content-Encoding", "zstd"}, 415, codes.InvalidArgument, causeEncoding},
		"large":     {big, []string{"Content-Type", protobufType}, 413, codes.ResourceExhausted, string(otlp.TooLarge)},
		"bomb":      {bomb, []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}, 413, codes.ResourceExhausted, string(otlp.TooLarge)},
		"truncated": {zipped(js)[:40], []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}, 400, codes.InvalidArgument, string(otlp.Truncated)},
		"no gzip":   {js, []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}, 400, codes.InvalidArgument, string(otlp.Malformed)},
		"deep":      {[]byte(`{"a":` + strings.Repeat("[", 10000)), []string{"Content-Type", jsonType}, 400, codes.InvalidArgument, string(otlp.TooDeep)},
		"empty":     {nil, []string{"Content-Type", jsonType}, 400, codes.InvalidArgument, string(otlp.Truncated)},
		"other":     {js, []string{"Content-Type", protobufType}, 400, codes.InvalidArgument, string(otlp.Malformed)},
	} {
		for path, signal := range Paths {
			var s sink
			r := New(s.sinks(&book{}), Settings{Limits: otlp.Limits{Body: 1 << 20}})
			a := post(t, r.Handler(nil), path, c.body, c.headers...)
			if st := statusOfBody(t, a); a.StatusCode != c.status || codes.Code(st.Code) != c.code || a.Header.Get("Retry-After") != "" || strings.Contains(st.Message, "llm_request") {
				t.Errorf("%s %s: %s %v", name, path, a.Status, st)
			}
			if f := r.Refusals(); len(f) != 1 || f[0].Signal != signal.String() || f[0].Transport != "http" || f[0].Cause != c.cause || f[0].Count != 1 || f[0].Last == "" || r.inFlight.Load() != 0 {
				t.Errorf("%s %s: %v", name, path, f)
			}
		}
	}
	r := New(Sinks{}, Settings{})
	for path := range Paths {
		if a := post(t, r.Handler(nil), path, nil, "Content-Type", protobufType); a.StatusCode != 501 || !strings.Contains(statusOfBody(t, a).Message, "nowhere to keep") {
			t.Error(path, a.Status)
		}
	}
	q := httptest.NewRequest(http.MethodGet, "/v1/traces", nil)
	w := httptest.NewRecorder()
	if r.Handler(nil).ServeHTTP(w, q); w.Code != 405 {
		t.Error(w.Code)
	}
}

// Who comes while there is no room is told to come later, at once; so is who comes while the sink cannot keep anything.
func TestOverload(t *testing.T) {
	proto, _ := traceBodies(t, trace(5))
	entered, leave := make(chan struct{}), make(chan struct{})
	r := New(Sinks{Spans: func(context.Context, []genai.Span) error { entered <- struct{}{}; <-leave; return nil }}, Settings{Requests: 1})
	h := r.Handler(nil)
	var wait sync.WaitGroup
	wait.Go(func() {
		if a := post(t, h, "/v1/traces", proto, "Content-Type", protobufType); a.StatusCode != 200 {
			t.Error(a.Status)
		}
	})
	<-entered
	a := post(t, h, "/v1/traces", proto, "Content-Type", protobufType)
	if st := statusOfBody(t, a); a.StatusCode != 429 || a.Header.Get("Retry-After") != "1" || len(st.Details) != 1 {
		t.Error(a.Status, st)
	}
	close(leave)
	wait.Wait()

	r = New(Sinks{Spans: func(context.Context, []genai.Span) error { return nil }}, Settings{InFlight: 10})
	if f := r.reserve(8); f != nil {
		t.Fatal(f)
	}
	if a := post(t, r.Handler(nil), "/v1/traces", proto, "Content-Type", protobufType); a.StatusCode != 429 || r.inFlight.Load() != 8 {
		t.Error(a.Status, r.inFlight.Load())
	}
	r.release(8)
	if a := post(t, r.Handler(nil), "/v1/traces", proto[:0], "Content-Type", protobufType); a.StatusCode != 200 {
		t.Error(a.Status)
	}
	s := sink{err: &Retry{After: 1500 * time.Millisecond, Err: errors.New("the log is being repaired")}}
	a = post(t, New(s.sinks(&book{}), Settings{}).Handler(nil), "/v1/traces", proto, "Content-Type", protobufType)
	if a.StatusCode != 503 || a.Header.Get("Retry-After") != "2" {
		t.Error(a.Status)
	}
	s.err = errors.New("a span with kim.example@example.com")
	a = post(t, New(s.sinks(&book{}), Settings{}).Handler(nil), "/v1/traces", proto, "Content-Type", protobufType)
	if a.StatusCode != 500 || strings.Contains(statusOfBody(t, a).Message, "kim") {
		t.Error(a.Status)
	}
}

// stalled is a body that does not come until it is closed.
type stalled struct {
	asked, closed chan struct{}
	once          sync.Once
}

func (s *stalled) Read([]byte) (int, error) {
	s.once.Do(func() { close(s.asked) })
	<-s.closed
	return 0, io.ErrUnexpectedEOF
}

// Who announces a large body and does not send it takes no room from those who send.
func TestAnnouncedIsNotSent(t *testing.T) {
	proto, _ := traceBodies(t, trace(5))
	r := New(Sinks{Spans: func(context.Context, []genai.Span) error { return nil }}, Settings{InFlight: 32 << 20})
	h := r.Handler(nil)
	var wait sync.WaitGroup
	closed := make(chan struct{})
	for range 16 {
		body := &stalled{asked: make(chan struct{}), closed: closed}
		wait.Go(func() {
			q := httptest.NewRequest(http.MethodPost, "/v1/traces", body)
			q.ContentLength = 60 << 20
			q.Header.Set("Content-Type", protobufType)
			h.ServeHTTP(httptest.NewRecorder(), q)
		})
		<-body.asked
	}
	if a := post(t, h, "/v1/traces", proto, "Content-Type", protobufType); a.StatusCode != 200 {
		t.Error(a.Status)
	}
	close(closed)
	if wait.Wait(); r.inFlight.Load() != 0 {
		t.Error(r.inFlight.Load())
	}
	large, _ := traceBodies(t, trace(20_000)) // over what is believed
	if a := post(t, h, "/v1/traces", large, "Content-Type", protobufType); len(large) <= believed || a.StatusCode != 200 || text(t, a) != "" {
		t.Error(a.Status, len(large))
	}
}

// serving serves r over gRPC and gives its address.
func serving(t testing.TB, r *Receiver, allow Allow) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Serve(ctx, l, nil, allow) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func bearer(token string) Allow {
	return func(header string) error {
		if header != "Bearer "+token {
			return errors.New("send a token")
		}
		return nil
	}
}

// The exporters of the OpenTelemetry SDK for Go.
func TestGoExporters(t *testing.T) {
	for name, c := range map[string]func(grpcAt, httpAt string) (*otlptrace.Exporter, error){
		"grpc": func(at, _ string) (*otlptrace.Exporter, error) {
			return otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(at), otlptracegrpc.WithInsecure(), otlptracegrpc.WithHeaders(map[string]string{"authorization": "Bearer t"}))
		},
		"grpc gzip": func(at, _ string) (*otlptrace.Exporter, error) {
			return otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(at), otlptracegrpc.WithInsecure(), otlptracegrpc.WithCompressor("gzip"), otlptracegrpc.WithHeaders(map[string]string{"authorization": "Bearer t"}))
		},
		"http": func(_, at string) (*otlptrace.Exporter, error) {
			return otlptracehttp.New(t.Context(), otlptracehttp.WithEndpoint(at), otlptracehttp.WithInsecure(), otlptracehttp.WithHeaders(map[string]string{"authorization": "Bearer t"}))
		},
		"http gzip": func(_, at string) (*otlptrace.Exporter, error) {
			return otlptracehttp.New(t.Context(), otlptracehttp.WithEndpoint(at), otlptracehttp.WithInsecure(), otlptracehttp.WithCompression(otlptracehttp.GzipCompression), otlptracehttp.WithHeaders(map[string]string{"authorization": "Bearer t"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s sink
			r := New(s.sinks(&book{}), Settings{})
			web := httptest.NewServer(r.Handler(bearer("t")))
			defer web.Close()
			exporter, err := c(serving(t, r, bearer("t")), strings.TrimPrefix(web.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "gateway"))))
			_, span := p.Tracer("gateway").Start(t.Context(), "chat tiny")
			span.SetAttributes(attribute.String("gen_ai.request.model", "tiny"), attribute.String("gen_ai.input.messages", "the invoice of kim"))
			span.End()
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if len(s.spans) != 1 || s.spans[0].Name != "chat tiny" || s.spans[0].Resource.Service != "gateway" || s.spans[0].Content == nil {
				t.Errorf("%+v", s.spans)
			}
		})
	}
}

func dial(t testing.TB, at string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

const exportTraces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// call sends bytes as they are.
func call(t testing.TB, conn *grpc.ClientConn, b []byte, opts ...grpc.CallOption) ([]byte, error) {
	var out []byte
	err := conn.Invoke(t.Context(), exportTraces, &b, &out, append(opts, grpc.ForceCodecV2(raw{}))...)
	return out, err
}

func TestGRPCRefuses(t *testing.T) {
	proto, js := traceBodies(t, trace(5))
	var s sink
	r := New(s.sinks(&book{}), Settings{Limits: otlp.Limits{Body: 1 << 20}})
	conn := dial(t, serving(t, r, nil))
	noise := make([]byte, 2<<20)
	rand.Read(noise)
	for name, c := range map[string]struct {
		body []byte
		opts []grpc.CallOption
		code codes.Code
	}{
		"json":  {js, nil, codes.InvalidArgument},
		"cut":   {proto[:len(proto)-3], nil, codes.InvalidArgument},
		"large": {noise, nil, codes.ResourceExhausted},
		"bomb":  {make([]byte, 10<<20), []grpc.CallOption{grpc.UseCompressor(grpcgzip.Name)}, codes.ResourceExhausted},
	} {
		_, err := call(t, conn, c.body, c.opts...)
		if st := status.Convert(err); st.Code() != c.code || len(st.Details()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := call(t, conn, proto); err != nil || len(s.spans) != 5 {
		t.Error(err)
	}
	s.err = &Retry{Err: errors.New("full")}
	_, err := call(t, conn, proto)
	st := status.Convert(err)
	if st.Code() != codes.Unavailable || len(st.Details()) != 1 || st.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration() != time.Second {
		t.Error(err, st.Details())
	}
	r.requests = make(chan struct{}) // no place
	_, err = call(t, conn, proto)
	if st := status.Convert(err); st.Code() != codes.ResourceExhausted || len(st.Details()) != 1 {
		t.Error(err)
	}
	if f := r.Refusals(); len(f) != 4 {
		t.Error(f)
	}
	td := trace(2)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(1).SetSpanID(pcommon.SpanID{})
	proto, _ = traceBodies(t, td)
	s.err = nil
	out, err := call(t, dial(t, serving(t, New(s.sinks(&book{}), Settings{}), nil)), proto)
	p := ptraceotlp.NewExportResponse()
	if err != nil || p.UnmarshalProto(out) != nil || p.PartialSuccess().RejectedSpans() != 1 {
		t.Error(err)
	}
	if _, err = call(t, dial(t, serving(t, New(Sinks{}, Settings{}), nil)), proto); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	if _, err = call(t, dial(t, serving(t, New(s.sinks(&book{}), Settings{}), bearer("t"))), proto); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}

func TestGRPCTakesAllSignals(t *testing.T) {
	var s sink
	var b book
	conn := dial(t, serving(t, New(s.sinks(&b), Settings{}), nil))
	if _, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(trace(3)), grpc.UseCompressor(grpcgzip.Name)); err != nil || len(s.spans) != 3 {
		t.Error(err)
	}
	if _, err := pmetricotlp.NewGRPCClient(conn).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(fleet(1))); err != nil || len(b.lines) < 30 {
		t.Error(err)
	}
	if _, err := plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(logs())); err != nil || len(s.logs) != 2 {
		t.Error(err)
	}
}

// logs is a request with two evaluations, a console's lines, a message and a structured record.
func logs() plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("service.name", "judge")
	sl := rl.ScopeLogs().AppendEmpty()
	add := func(event string) plog.LogRecord {
		l := sl.LogRecords().AppendEmpty()
		l.SetTimestamp(now)
		l.SetEventName(event)
		return l
	}
	for i, score := range []float64{0.25, 0.5} {
		a := add("gen_ai.evaluation.result").Attributes()
		a.PutStr("gen_ai.evaluation.name", "relevance")
		a.PutDouble("gen_ai.evaluation.score.value", score)
		a.PutStr("gen_ai.evaluation.score.label", []string{"fail", "pass"}[i])
		a.PutStr("gen_ai.evaluation.explanation", "the invoice of kim is wrong")
		a.PutStr("gen_ai.response.id", "chatcmpl-1")
	}
	add("").Body().SetStr("INFO 11-30 engine ready\nhello invoice\n")
	add("gen_ai.user.message").Body().SetStr("the invoice of kim")
	add("").Body().SetEmptyMap().PutStr("content", "the invoice of kim")
	return ld
}

// Evaluations become records and time series; lines go to the console's reader; nothing else is kept.
func TestLogs(t *testing.T) {
	r := plogotlp.NewExportRequestFromLogs(logs())
	proto, _ := r.MarshalProto()
	js, _ := r.MarshalJSON()
	for typ, body := range map[string][]byte{protobufType: proto, jsonType: js} {
		var s sink
		var b book
		rec := New(s.sinks(&b), Settings{Now: func() time.Time { return time.Unix(0, now) }})
		for range 2 {
			if a := post(t, rec.Handler(nil), "/v1/logs", body, "Content-Type", typ); a.StatusCode != 200 {
				t.Fatal(a.Status, text(t, a))
			}
		}
		e := s.logs[1].Evaluation
		if len(s.logs) != 4 || e != (otlp.Evaluation{Name: "relevance", Score: 0.5, Label: "pass", Response: "chatcmpl-1"}) || s.logs[0].Origin.Resource.Service != "judge" || s.logs[0].Time != now {
			t.Errorf("%+v", s.logs)
		}
		if strings.Join(s.lines[:2], "|") != "INFO 11-30 engine ready|hello invoice" || rec.stats.understood.Load() != 2 || rec.stats.passed.Load() != 4 {
			t.Error(s.lines)
		}
		got := b.text()
		for _, want := range []string{
			`{__name__="gen_ai_evaluation_score_sum", gen_ai_evaluation_name="relevance", job="judge"} 1772700060000 0.75`,
			`{__name__="gen_ai_evaluation_score_count", gen_ai_evaluation_name="relevance", job="judge"} 1772700060000 2`,
			`{__name__="gen_ai_evaluation_score_sum", gen_ai_evaluation_name="relevance", job="judge"} 1772700060001 1.5`,
			`{__name__="gen_ai_evaluation_results_total", gen_ai_evaluation_name="relevance", gen_ai_evaluation_score_label="pass", job="judge"} 1772700059000 0`,
			`{__name__="gen_ai_evaluation_results_total", gen_ai_evaluation_name="relevance", gen_ai_evaluation_score_label="pass", job="judge"} 1772700060000 1`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
		if strings.Contains(got, "chatcmpl") || strings.Contains(got, "invoice") {
			t.Error(got)
		}
	}
}

// Hostile requests cost what their limits say, and nothing else is lost by them.
func TestMemoryIsBounded(t *testing.T) {
	var s sink
	r := New(s.sinks(&book{}), Settings{Limits: otlp.Limits{Body: 8 << 20}, Decoders: 1})
	h := r.Handler(nil)
	many, huge := fleet(1), trace(1)
	a := many.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0).Attributes()
	raw := make(map[string]any, 300_000)
	for i := range 300_000 {
		raw["l"+strconv.Itoa(i)] = 1
	}
	if err := a.FromRaw(raw); err != nil {
		t.Fatal(err)
	}
	huge.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().PutStr("gen_ai.input.messages", strings.Repeat("x", 7<<20))
	labels, _ := bodies(t, many)
	attribute, attributeJSON := traceBodies(t, huge)
	shells, _ := json.Marshal(map[string]any{"resourceMetrics": make([]struct{}, 2_000_000)})
	for name, c := range map[string]struct {
		path string
		body []byte
		kind string
		most uint64 // MiB allocated in all
	}{
		"labels": {"/v1/metrics", labels, protobufType, 24}, "attribute": {"/v1/traces", attribute, protobufType, 24}, "attribute in JSON": {"/v1/traces", attributeJSON, jsonType, 40},
		"shells": {"/v1/metrics", shells, jsonType, 64}, "bomb": {"/v1/logs", zipped(make([]byte, 200<<20)), protobufType, 64},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		headers := []string{"Content-Type", c.kind}
		if name == "bomb" {
			headers = append(headers, "Content-Encoding", "gzip")
		}
		post(t, h, c.path, c.body, headers...)
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > c.most {
			t.Errorf("%s: a request of %d KiB allocated %d MiB, more than %d", name, len(c.body)>>10, n, c.most)
		} else {
			t.Logf("%s: %d KiB, %d MiB", name, len(c.body)>>10, n)
		}
	}
	proto, _ := traceBodies(t, trace(5))
	if a := post(t, h, "/v1/traces", proto, "Content-Type", protobufType); a.StatusCode != 200 {
		t.Error(a.Status)
	}
}
