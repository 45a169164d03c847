package cli

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	rpcstatus "google.golang.org/grpc/status"
)

// firstTokens is a request with a histogram of GenAI's conventions.
func firstTokens(model string) pmetricotlp.ExportRequest {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "vllm")
	rm.Resource().Attributes().PutStr("service.instance.id", "vllm-0")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("gen_ai.server.time_to_first_token")
	m.SetUnit("s")
	h := m.SetEmptyHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := h.DataPoints().AppendEmpty()
	p.Attributes().PutStr("gen_ai.request.model", model)
	p.Attributes().PutStr("user.id", "kim.example@example.com")
	p.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
	p.ExplicitBounds().FromRaw([]float64{0.1, 1})
	p.BucketCounts().FromRaw([]uint64{1, 2, 3})
	p.SetCount(6)
	p.SetSum(9)
	return pmetricotlp.NewExportRequestFromMetrics(md)
}

// freeAddress is one that nobody listens on at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// What comes by gRPC, by the main address and by the address for OTLP alone can be asked for in PromQL; who has no right to send may not.
func TestServeOTLP(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("viewer viewer-token-0123456789\noperator operator-token-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	grpcAt, httpAt := freeAddress(t), freeAddress(t)
	s := startServe(t, dir, "WHYLATE_TOKENS_FILE="+tokens, "WHYLATE_OTLP_GRPC="+grpcAt, "WHYLATE_OTLP_HTTP="+httpAt)
	conn, err := grpc.NewClient(grpcAt, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for token, want := range map[string]codes.Code{"viewer-token-0123456789": codes.Unauthenticated, "": codes.Unauthenticated, "operator-token-0123456789": codes.OK} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		if _, err := pmetricotlp.NewGRPCClient(conn).Export(ctx, firstTokens("by-grpc"), grpc.WaitForReady(true)); rpcstatus.Code(err) != want {
			t.Errorf("token %q: %v", token, err)
		}
	}
	post := func(at, path, token, model string) int {
		b, err := firstTokens(model).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		q, _ := http.NewRequest(http.MethodPost, "http://"+at+path, bytes.NewReader(b))
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Authorization", "Bearer "+token)
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		io.Copy(io.Discard, r.Body)
		return r.StatusCode
	}
	for at, refused := range map[string]int{s.address: http.StatusForbidden, httpAt: http.StatusUnauthorized} {
		if got := post(at, "/v1/metrics", "viewer-token-0123456789", "x"); got != refused {
			t.Errorf("a viewer's token at %s: %d, want %d", at, got, refused)
		}
		if got := post(at, "/v1/metrics", "operator-token-0123456789", "by-"+map[bool]string{true: "main", false: "http"}[at == s.address]); got != http.StatusOK {
			t.Errorf("at %s: %d", at, got)
		}
	}
	for _, by := range []string{"grpc", "main", "http"} {
		code, body := s.promql(t, `gen_ai_server_time_to_first_token_seconds_bucket{le="1",gen_ai_request_model="by-`+by+`"}`, "viewer-token-0123456789")
		if code != http.StatusOK || !strings.Contains(body, `"job":"vllm"`) || !strings.Contains(body, `"3"`) || strings.Contains(body, "kim") {
			t.Errorf("by %s: %d %s", by, code, body)
		}
	}
	q, _ := http.NewRequest(http.MethodGet, "http://"+s.address+"/metrics", nil)
	q.Header.Set("Authorization", "Bearer viewer-token-0123456789")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, _ := io.ReadAll(r.Body)
	for _, want := range []string{`whylate_otlp_accepted_total{signal="metrics",transport="http"} 2`, `whylate_otlp_accepted_total{signal="metrics",transport="grpc"} 1`,
		`whylate_otlp_refused_requests_total{cause="token",signal="metrics",transport="grpc"} 2`, `whylate_otlp_dropped_attributes_total{class="personal"} 3`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}
