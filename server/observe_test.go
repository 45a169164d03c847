package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/web"
	"github.com/whylate/whylate/wire"
)

// observed is a server that has series of its own, at the end of a scenario.
type observed struct {
	*running
	db  *metrics.DB
	now *atomic.Int64 // Unix ns
}

func observe(t *testing.T, after time.Duration, set Settings) *observed {
	t.Helper()
	now := &atomic.Int64{}
	now.Store(scenario.Epoch + int64(after))
	clock := func() time.Time { return time.Unix(0, now.Load()) }
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	set.Now, set.HotPeriod, set.Series = clock, time.Hour, func() *metrics.DB { return db }
	s := &observed{startWith(t, vfs.NewMemory(), set), db, now}
	t.Cleanup(func() {
		s.stop()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// put writes samples of a series, one at each offset from the beginning.
func (s *observed) put(t *testing.T, way string, value float64, at []time.Duration, ls ...string) {
	t.Helper()
	app := s.db.Appendable(way).AppenderV2(t.Context())
	for _, d := range at {
		if _, err := app.Append(0, labels.FromStrings(ls...), 0, time.Unix(0, scenario.Epoch).Add(d).UnixMilli(), value, nil, nil, storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// engine sends what a probe tells of an engine: ten iterations of 20 s with one request running.
func (s *observed) engine(t *testing.T, replica, incarnation, host string) {
	t.Helper()
	run, err := scenario.Parse("engine vllm depth=1 max_num_seqs=2\n0ms  queue a prompt=4\n1..5ms iter a:4\n6ms  x10 20000ms iter a running=1 end=a:length")
	if err != nil {
		t.Fatal(err)
	}
	h := &run.Engine.Hello
	h.Engine.Deployment, h.Engine.Replica, h.Engine.Incarnation, h.Boot, h.Host, h.PID = "chat", replica, incarnation, incarnation, host, 77
	h.Settings["model"] = "/models/llama"
	frames, err := split(bytes.Join(run.Engine.Frames, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AcceptBatches(t.Context(), []stream.Batch{{Source: wire.Source{Name: incarnation, Hello: run.Engine.HelloJSON()}, Frames: frames}}); err != nil {
		t.Fatal(err)
	}
	if err := s.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var quarters = []time.Duration{20 * time.Second, 35 * time.Second, 50 * time.Second, 65 * time.Second, 80 * time.Second, 95 * time.Second, 110 * time.Second}

func ids(facts []look.Fact) (out []string) {
	for _, f := range facts {
		out = append(out, f.ID)
	}
	return out
}

// An engine of the ledger and a target are one by their host. What they say differently is told; so is by which way series came, and the answer
// over HTTP is the same.
func TestObserved(t *testing.T) {
	s := observe(t, 2*time.Minute, Settings{Host: "server-1", Promises: []look.Promise{{Setting: "objectives.ttft", Signal: "gen_ai.server.time_to_first_token", Within: 300 * time.Millisecond}},
		Targets: func() *api.TargetList {
			return &api.TargetList{Targets: []api.Target{{Job: "vllm", URL: "http://10.0.0.3:8000/metrics", Labels: map[string]string{"instance": "10.0.0.3:8000", "job": "vllm"}}}}
		}})
	s.engine(t, "0", "5f0c1a2b3c4d", "gpu-7.example.com")
	who := []string{"instance", "10.0.0.3:8000", "job", "vllm", "node", "gpu-7", "engine", "0", "model_name", "llama"}
	series := func(way string, value float64, name string, more ...string) {
		s.put(t, way, value, quarters, slices.Concat([]string{"__name__", name}, who, more)...)
	}
	series("scrape", 9, "vllm:num_requests_running")
	series("remote write", 1, "vllm:num_requests_waiting")
	for le, n := range map[string]float64{"0.25": 1, "0.5": 2, "+Inf": 2} {
		series("scrape", n, "vllm:time_to_first_token_seconds_bucket", "le", le)
	}
	series("scrape", 3, "app_cache_hits")
	series("scrape", 1, "vllm:build_info", "version", "0.31.0")
	series("scrape", 1, "app_requests_total", "request_id", "\x1b[2J 3f1c9b0e-77aa-4f5e-9d5e-2c1f7a1b9e10")

	list, err := s.Signals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if k := slices.IndexFunc(list.Arrives, func(a look.Arrival) bool { return a.Signal == "request.running" }); k < 0 || list.Arrives[k].Every != 15e9 ||
		!slices.Equal(list.Arrives[k].Came, []string{"remote write", "scrape"}) || list.Arrives[k].Newest != scenario.Epoch+110e9 || list.Arrives[k].Native != "vllm:num_requests_running" {
		t.Errorf("%+v", list.Arrives)
	}
	if k := slices.IndexFunc(list.Unused, func(u look.Unused) bool { return u.Family == "app_cache_hits" }); k < 0 || list.Unused[k].Series != 1 || list.Unused[k].PerSecond != 1./15 || list.Unused[k].BytesPerDay != 2*24*3600/15 {
		t.Errorf("%+v", list.Unused)
	}
	if !slices.ContainsFunc(list.Missing, func(m look.Missing) bool {
		return m.Signal == "preemptions" && m.Producer == "vllm" && m.Question != ""
	}) {
		t.Errorf("%+v", list.Missing)
	}
	if len(list.Refused) == 0 || !slices.ContainsFunc(list.Refused, func(r api.RefusedSeries) bool { return r.Label == "request_id" && r.Count == 7 }) || strings.Contains(fmt.Sprint(list.Refused), "\x1b") {
		t.Errorf("%+v", list.Refused)
	}
	if len(list.Records) != 1 || list.Records[0].Came != "probe" || list.Records[0].Name != "chat/0/0@5f0c1a2b" || list.Records[0].Count != 11 || list.Records[0].Newest == 0 {
		t.Errorf("%+v", list.Records)
	}
	facts := list.Facts
	if got := ids(facts); !slices.Contains(got, "objective-unseen") || !slices.Contains(got, "contradiction") {
		t.Errorf("%q", got)
	}
	for _, want := range []string{"objectives.ttft 300ms cannot be seen in vllm:time_to_first_token_seconds of 10.0.0.3:8000: it lies between two of its buckets, 250 ms and 500 ms",
		"chat/0: its scheduler has 1 requests running, its gauge vllm:num_requests_running at 10.0.0.3:8000 says 9, and so it was 7 times in 1m30s.",
		"chat/0 told the version 0.32.0 at its start, and vllm:build_info at 10.0.0.3:8000 says 0.31.0."} {
		if !slices.ContainsFunc(facts, func(f look.Fact) bool { return strings.Contains(f.Text, want) }) {
			t.Errorf("no %q in %+v", want, facts)
		}
	}
	if slices.ContainsFunc(facts, func(f look.Fact) bool { return strings.Contains(f.Text, "the model") }) { // /models/llama is served as llama
		t.Errorf("%+v", facts)
	}

	engines, err := s.Engines(t.Context())
	if err != nil || len(engines.Engines) != 1 || !slices.Equal(engines.Engines[0].Targets, []string{"10.0.0.3:8000"}) {
		t.Errorf("%+v %v", engines, err)
	}
	targets, err := s.Targets(t.Context())
	if err != nil || !slices.Equal(targets.Targets[0].Engines, []string{"chat/0/0@5f0c1a2b"}) {
		t.Errorf("%+v %v", targets, err)
	}

	srv := httptest.NewServer(web.New(s, web.Options{Log: slog.New(slog.DiscardHandler)}))
	defer srv.Close()
	c, err := client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	over, err := c.Signals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, over); diff != "" {
		t.Error(diff)
	}
	own, _ := s.Identities(t.Context())
	others, err := c.Identities(t.Context())
	if diff := cmp.Diff(own, others); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// What the gauge says is a contradiction only if it says so for long.
func TestGaugesThatAgree(t *testing.T) {
	for value, at := range map[float64][]time.Duration{2: quarters, 9: quarters[:3]} {
		s := observe(t, 2*time.Minute, Settings{})
		s.engine(t, "0", "5f0c1a2b3c4d", "gpu-7")
		s.put(t, "scrape", value, at, "__name__", "vllm:num_requests_running", "instance", "10.0.0.3:8000", "node", "gpu-7", "engine", "0", "model_name", "llama")
		list, err := s.Signals(t.Context())
		if err != nil || len(list.Facts) != 0 || len(list.Arrives) != 1 {
			t.Errorf("%g: %+v %v", value, list, err)
		}
	}
}

// Engines that nobody gave names stay apart; one that was restarted is one; an alias joins what nothing else does; a loopback is the server's own
// only where the server scraped it.
func TestIdentities(t *testing.T) {
	alias, err := identity.ParseAlias("chat/0 = vLLM at 10.9.9.9:8000")
	if err != nil {
		t.Fatal(err)
	}
	s := observe(t, 5*time.Minute, Settings{Host: "gpu-8", Aliases: []identity.Alias{alias}})
	s.engine(t, "0", "11110000", "gpu-7")
	s.engine(t, "1", "22220000", "gpu-8")
	s.engine(t, "twin", "33330000", "gpu-9")
	s.engine(t, "twin", "44440000", "gpu-9")
	for way, instance := range map[string]string{"otlp": "10.9.9.9:8000", "scrape": "127.0.0.1:8000", "remote write": "localhost:9000"} {
		s.put(t, way, 1, []time.Duration{4 * time.Minute}, "__name__", "vllm:num_requests_running", "instance", instance, "job", way, "model_name", "m")
	}
	engines, err := s.Engines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, e := range engines.Engines {
		got[e.ID] = e.Targets
	}
	want := map[string][]string{"chat/0/0@11110000": {"10.9.9.9:8000"}, "chat/1/0@22220000": {"127.0.0.1:8000"}, "chat/twin/0@33330000": nil, "chat/twin/0@44440000": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	j, err := s.Identities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range j.Things {
		names = append(names, x.Source+":"+x.Name)
	}
	if want := []string{"metrics:vLLM at 10.9.9.9:8000", "metrics:vLLM at 127.0.0.1:8000", "metrics:vLLM at localhost:9000", "probe:chat/0", "probe:chat/1", "probe:chat/twin@33330000", "probe:chat/twin@44440000"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

// The clock of a host that is off is told with its bound, from spans in memory and from sealed ones; so is who made them.
func TestClocksApart(t *testing.T) {
	s := observe(t, 2*time.Minute, Settings{})
	gateway, engine := &genai.Resource{Service: "gw", Host: "edge"}, &genai.Resource{Service: "vllm", Host: "gpu-7"}
	var spans []genai.Span
	for i := range 12 {
		at := scenario.Epoch + int64(i)*1e9
		trace := genai.TraceID{1, byte(i)}
		a := genai.Span{Trace: trace, ID: genai.SpanID{1}, Name: "chat", Kind: genai.Client, Resource: gateway, Scope: &genai.Scope{}, Start: at, End: at + 500e6}
		b := genai.Span{Trace: trace, ID: genai.SpanID{2}, Parent: genai.SpanID{1}, Name: "llm_request", Kind: genai.Server, Resource: engine, Scope: &genai.Scope{}, Start: at + 2e9 + 10e6, End: at + 2e9 + 490e6}
		if err := errors.Join(a.SetText(genai.Named("gen_ai.request.model"), "m"), b.SetFloat(genai.Named("gen_ai.latency.e2e"), 0.48)); err != nil {
			t.Fatal(err)
		}
		spans = append(spans, a, b)
	}
	if err := s.AcceptSpans(t.Context(), spans); err != nil {
		t.Fatal(err)
	}
	for _, sealed := range []bool{false, true} {
		if sealed {
			s.now.Add(int64(time.Hour - time.Second))
			s.sealSpans(t.Context())
			if n := s.spans.traces.size(); n != 0 {
				t.Fatalf("%d spans are not sealed", n)
			}
		}
		j, err := s.Identities(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(j.Clocks) != 1 || j.Clocks[0].Clock != "host gpu-7" || j.Clocks[0].From != "host edge" || j.Clocks[0].Low != -2010e6 || j.Clocks[0].High != -1990e6 {
			t.Errorf("sealed %v: %+v", sealed, j.Clocks)
		}
		if len(j.Things) != 2 {
			t.Errorf("sealed %v: %+v", sealed, j.Things)
		}
	}
}
