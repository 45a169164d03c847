package cli

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/native"
)

// Of the lines of an engine's console numbers become series and what happened changes, once; words of users become nothing.
func TestConsole(t *testing.T) {
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	told := map[string]ledger.Change{}
	c := &console{to: db.Appendable("logs"), log: slog.New(slog.DiscardHandler), seen: func(cs []ledger.Change) int {
		for _, c := range cs {
			told[c.ID] = c
		}
		return 0
	}}
	origin := &otlp.Origin{Resource: &genai.Resource{Service: "vllm", Instance: "vllm-0"}}
	at := time.Now().Truncate(time.Second).Add(-5 * time.Minute)
	lines := []string{
		"(APIServer pid=1) INFO 11-30 09:00:00 [api_server.py:1] vLLM API server version 0.9.1",
		"INFO 11-30 09:00:10 [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 20.0 tokens/s, Running: 3 reqs, Waiting: 7 reqs, GPU KV cache usage: 41.0%, Prefix cache hit rate: 0.0%",
		"INFO 11-30 09:00:20 [logger.py:1] Received request r-1: prompt: 'my secret is Running: 9 reqs'",
		"ERROR 11-30 09:00:30 [core.py:1] EngineCore encountered a fatal error.",
		"ERROR 11-30 09:00:31 [core.py:1] EngineCore encountered a fatal error.",
		"(APIServer pid=1) INFO 11-30 09:01:00 [api_server.py:1] vLLM API server version 0.32.0",
	}
	for range 2 { // a collector sends again what was not answered
		for i, line := range lines {
			if got, want := c.take(origin, at.Add(time.Duration(i)*time.Second).UnixNano(), []byte(line)), i != 2; got != want {
				t.Errorf("line %d understood: %t", i, got)
			}
		}
		if err := c.write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tracks, err := native.Matching(t.Context(), db.Detail(), at.Add(-time.Minute), at.Add(time.Minute), labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, tr := range tracks {
		if tr.Target != "vllm-0" || len(tr.Points) != 1 {
			t.Errorf("%+v", tr)
			continue
		}
		got[tr.Family] = tr.Points[0].Value
	}
	if len(got) != 3 || got["vllm:num_requests_running"] != 3 || got["vllm:num_requests_waiting"] != 7 || got["vllm:kv_cache_usage_perc"] != 0.41 {
		t.Error(got)
	}
	kinds := ""
	for _, ch := range told {
		kinds += string(ch.Kind) + " "
		if strings.Contains(ch.Text, "secret") || ch.Engine != "vllm-0" || ch.Source != "its log" {
			t.Errorf("%+v", ch)
		}
	}
	if strings.Count(kinds, "end") != 1 || strings.Count(kinds, "version") != 1 {
		t.Errorf("one death and one new version are told as %s", kinds)
	}
}
