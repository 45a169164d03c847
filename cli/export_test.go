package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/ingest/otlp"
)

// A file holds the requests of any source, and is read back as as many calls.
func TestExportToAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.jsonl")
	status, out, errOut := run(t, "export", "otlp", "--last", "24h", "--from", "demo", "--to", file)
	if status != ExitOK || !strings.HasPrefix(out, "232 requests, ") {
		t.Fatalf("%d %s %s", status, out, errOut)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var spans []genai.Span
	d := &otlp.Decoder{}
	if _, err := d.File(bytes.NewReader(b), func(s []genai.Span) { spans = append(spans, s...) }); err != nil {
		t.Fatal(err)
	}
	if n := len(genai.Calls(spans).Calls); n != 232 {
		t.Errorf("%d calls", n)
	}
	again := filepath.Join(t.TempDir(), "again.jsonl")
	run(t, "export", "otlp", "--last", "24h", "--from", "demo", "--to", again)
	if c, err := os.ReadFile(again); err != nil || !bytes.Equal(b, c) {
		t.Errorf("exported again it differs: %v", err)
	}
}

func TestExportSaysWhatToDo(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there.jsonl")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{ExitUsage, "Give an id, or --last", []string{"--to", "x.jsonl"}},
		{ExitUsage, "Give an id, or --last", []string{"fan-0", "--last", "1m", "--to", "x.jsonl"}},
		{ExitUsage, "Give --to", []string{"fan-0"}},
		{ExitUsage, "--to \"localhost:4317\"", []string{"fan-0", "--to", "localhost:4317"}},
		{ExitFailed, "it exists", []string{"fan-0", "--to", there}},
		{ExitNotFound, "no-such", []string{"no-such", "--to", filepath.Join(t.TempDir(), "x.jsonl")}},
		{ExitFailed, "check --to", []string{"fan-0", "--to", "http://127.0.0.1:1", "--timeout", "1s"}},
		{ExitUsage, "no-such-file", []string{"fan-0", "--to", "http://127.0.0.1:1", "--headers-file", "no-such-file"}},
	} {
		status, _, errOut := run(t, append([]string{"export", "otlp", "--from", "demo"}, c.args...)...)
		if status != c.status || !strings.Contains(errOut, c.says) {
			t.Errorf("%v: %d %s; want %d and %q", c.args, status, errOut, c.status, c.says)
		}
	}
}

// A server sends what ends, each request once, also across a restart; and gives the same spans to whoever asks.
func TestServeExports(t *testing.T) {
	var requests atomic.Int64
	names := make(chan string, 100_000)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		var q coltracepb.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(b, &q) != nil {
			w.WriteHeader(400)
			return
		}
		for _, rs := range q.ResourceSpans {
			for _, s := range rs.ScopeSpans[0].Spans {
				if s.Kind == 2 {
					requests.Add(1)
					names <- string(s.SpanId)
				}
			}
		}
	}))
	defer receiver.Close()
	dir := t.TempDir()
	// The demo is of the past: the place is before it, as if an earlier run had kept it.
	if err := os.WriteFile(filepath.Join(dir, "export.json"), []byte(`{"through_unix_ns":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	set := []string{"WHYLATE_EXPORT_ENDPOINT=" + receiver.URL, "WHYLATE_EXPORT_SAMPLE_ONE_IN=1", "WHYLATE_EXPORT_SPANS_PER_SECOND=0", "WHYLATE_EXPORT_COMPRESSION=none"}
	s := startServe(t, dir, set...)
	c := s.client(t, "http", client.Options{})
	if _, err := c.Import(t.Context(), api.ImportQuery{Name: "demo"}, bytes.NewReader(demoCapture)); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return requests.Load() >= 232 })
	asked, err := c.Spans(t.Context(), api.SpansQuery{ID: "fan-0", IDs: true})
	if err != nil {
		t.Fatal(err)
	}
	var q coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(asked.OTLP, &q); err != nil {
		t.Fatal(err)
	}
	root := q.ResourceSpans[0].ScopeSpans[0].Spans[0].SpanId
	until(t, func() bool { // what was sent is counted once the receiver has answered
		metrics, err := http.Get("http://" + s.address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer metrics.Body.Close()
		b, _ := io.ReadAll(metrics.Body)
		return bytes.Contains(b, []byte("whylate_export_sent_requests_total 232"))
	})
	s.stop()
	close(names)
	seen := map[string]int{}
	for n := range names {
		seen[n]++
	}
	if len(seen) != 232 || requests.Load() != 232 || seen[string(root)] != 1 {
		t.Errorf("%d requests, %d different ones; the one asked for came %d times", requests.Load(), len(seen), seen[string(root)])
	}
	if place, err := os.ReadFile(filepath.Join(dir, "export.json")); err != nil || len(place) < len(`{"through_unix_ns":1795978968073369152}`) {
		t.Errorf("the place is %s, %v", place, err)
	}
	names = make(chan string, 1000)
	s = startServe(t, dir, set...)
	c = s.client(t, "http", client.Options{})
	if list, err := c.Requests(t.Context(), api.RequestsQuery{}); err != nil || list.Matched < 232 {
		t.Fatalf("%v %v", list, err)
	}
	s.stop()
	if requests.Load() != 232 {
		t.Errorf("after a restart %d were sent again", requests.Load()-232)
	}
}
