package server

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store/storetest"
)

// An evaluation is kept once, also across a crash, and stands beside the request that it judges: by response id, by span, and likely by trace.
func TestEvaluationsAreJoined(t *testing.T) {
	ctx, now := context.Background(), time.Unix(1_800_000_000, 0)
	spans := storetest.Spans(0, 3)
	trace := map[string]genai.TraceID{}
	var inner genai.SpanID // of the second call
	for _, s := range spans {
		if id := s.Text(genai.ResponseID); id != "" {
			trace[id] = s.Trace
		}
	}
	for _, s := range spans {
		if s.Trace == trace["resp-1"] {
			inner = s.ID
		}
	}
	judge := &otlp.Origin{Resource: &genai.Resource{Service: "judge"}}
	eval := func(name string, score float64, label, response string, trace genai.TraceID, span genai.SpanID) otlp.LogRecord {
		return otlp.LogRecord{Origin: judge, Time: now.UnixNano(), Trace: trace, Span: span, Evaluation: otlp.Evaluation{Name: name, Score: score, Label: label, Response: response}}
	}
	records := []otlp.LogRecord{
		eval("relevance", 0.25, "fail", "resp-0", genai.TraceID{}, genai.SpanID{}),
		eval("relevance", 0.25, "fail", "resp-0", genai.TraceID{}, genai.SpanID{}), // twice in one request
		eval("toxicity", math.NaN(), "none", "", trace["resp-1"], inner),
		eval("tone", 3, "", "", trace["resp-2"], genai.SpanID{9}),
		eval("nobody", 1, "", "", genai.TraceID{}, genai.SpanID{}), // of no answer
	}
	disk := vfs.NewMemory()
	open := func() (*running, *Judged) {
		j, err := OpenJudged(disk, "/data")
		if err != nil {
			t.Fatal(err)
		}
		return startWith(t, disk, Settings{Now: func() time.Time { return now }, Judged: j}), j
	}
	s, j := open()
	if err := s.AcceptSpans(ctx, spans); err != nil {
		t.Fatal(err)
	}
	names := func(want string) {
		t.Helper()
		fresh, err := s.AcceptEvaluations(ctx, records)
		var got []string
		for _, r := range fresh {
			got = append(got, r.Evaluation.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("new are %q, %v", got, err)
		}
	}
	names("relevance toxicity tone nobody")
	names("nobody")
	check := func() {
		t.Helper()
		for id, want := range map[string]string{
			"resp-0": "relevance 0.25 (fail): judged by judge, 2027-01-15 08:00:00 UTC, by its response id", "resp-1": "toxicity none: judged by judge, 2027-01-15 08:00:00 UTC, by its span",
			"resp-2": "tone 3: judged by judge, 2027-01-15 08:00:00 UTC, likely: by its trace alone, which may have other calls",
		} {
			x, err := s.Explain(ctx, api.ExplainQuery{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			if len(x.Evaluations) != 1 || x.Evaluations[0].String() != want {
				t.Errorf("%s: %+v: %s", id, x.Evaluations, x.Evaluations[0].String())
			}
		}
	}
	check()
	s.stop()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	disk = disk.Crash(rand.New(rand.NewPCG(1, 2)))
	s, j = open()
	names("nobody")
	check()
	s.stop()
	j.Close()
}

// A journal keeps the newest, and its file does not grow without end.
func TestJournalIsBounded(t *testing.T) {
	disk := vfs.NewMemory()
	open := func() *journal[api.Change] {
		j, err := openJournal(disk, "/data", "x.jsonl", 3, func(c *api.Change) string { return c.ID })
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := open()
	for _, id := range strings.Fields("a b c d e f g a") {
		if _, err := j.tell(api.Change{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(j *journal[api.Change]) (s string) {
		for _, c := range j.all() {
			s += c.ID
		}
		return s
	}
	if got := ids(j); got != "defga" {
		t.Error(got)
	}
	if b, err := vfs.ReadFile(disk, "/data/x.jsonl"); err != nil || strings.Count(string(b), "\n") != 5 {
		t.Errorf("%s, %v", b, err)
	}
	j.close()
	if got := ids(open()); got != "fga" {
		t.Error(got)
	}
}
