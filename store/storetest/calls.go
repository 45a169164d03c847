package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// Spans are those of n model calls from number first on, three each, as a gateway, a web server and an engine on another host show them, that
// host's clock half a second behind. Some calls were aborted, some are sampled, some lack a view or an end.
func Spans(first, n int) []genai.Span {
	edge, gpu := &genai.Resource{Service: "gateway", Host: "edge-1"}, &genai.Resource{Service: "vllm", Host: "gpu-1", Pod: "vllm-0"}
	var out []genai.Span
	add := func(k int, id, parent byte, name string, kind genai.Kind, r *genai.Resource, from, to int64, attributes map[string]string) {
		s := genai.Span{ID: genai.SpanID{id, 7}, Name: name, Kind: kind, Resource: r, Scope: &genai.Scope{Name: "made." + r.Service, Version: "1.2"},
			Start: 1_800_000_000_000_000_000 + int64(k)*1e7 + from, End: 1_800_000_000_000_000_000 + int64(k)*1e7 + to}
		binary.BigEndian.PutUint64(s.Trace[:], uint64(k+1)*0x9e3779b97f4a7c15)
		binary.BigEndian.PutUint64(s.Trace[8:], uint64(k+1))
		if parent > 0 {
			s.Parent = genai.SpanID{parent, 7}
		}
		if k%3 == 0 {
			s.Threshold = genai.Threshold{T: 1 << 55, Known: true}
		}
		for key, value := range attributes {
			if err := s.SetText(genai.Named(key), value); err != nil {
				panic(fmt.Sprint(key, err)) // made here
			}
		}
		slices.SortFunc(s.Attrs, func(a, b genai.Attr) int { return strings.Compare(a.Name.Key, b.Name.Key) })
		out = append(out, s)
	}
	const ms, behind = int64(time.Millisecond), -500 * int64(time.Millisecond)
	for k := first; k < first+n; k++ {
		took := int64(300+k%700) * ms
		end := took
		if k%11 == 7 {
			end = -1e18 // never ended
		}
		if k%13 != 5 { // else the client's span never came
			add(k, 1, 0, "chat tiny", genai.Client, edge, 0, end, map[string]string{"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny",
				"gen_ai.provider.name": "vllm", "gen_ai.usage.input_tokens": fmt.Sprint(100 + k%900), "gen_ai.usage.output_tokens": "41", "gen_ai.response.id": fmt.Sprintf("resp-%d", k)})
			if k%5 == 0 {
				out[len(out)-1].Content = &genai.Content{Attributes: 2, Bytes: int64(1000 + k), Roles: genai.Roles{System: 1, User: 2}}
			}
		}
		add(k, 2, 1, "POST /v1/chat/completions", genai.Server, gpu, 5*ms+behind, took-5*ms+behind, map[string]string{"http.request.method": "POST", "http.response.status_code": "200"})
		reason := "stop"
		if k%7 == 6 {
			reason = "abort"
		}
		add(k, 3, 2, "llm_request", genai.Server, gpu, 9*ms+behind, took-9*ms+behind, map[string]string{"gen_ai.request.id": fmt.Sprintf("chatcmpl-req-%d", k),
			"gen_ai.latency.time_to_first_token": "0.120", "gen_ai.latency.e2e": fmt.Sprintf("%.3f", float64(took-18*ms)/1e9), "gen_ai.latency.time_in_queue": "0.012",
			"gen_ai.latency.time_in_model_prefill": "0.090", "gen_ai.latency.time_in_model_decode": fmt.Sprintf("%.3f", float64(took-150*ms)/1e9),
			"gen_ai.usage.prompt_tokens": fmt.Sprint(100 + k%900), "gen_ai.usage.completion_tokens": "41", "gen_ai.response.finish_reasons": reason})
	}
	return out
}

// callPeriod is a period of the calls of spans, all of them own.
func callPeriod(spans []genai.Span, batch uint64) *store.Period {
	p := &store.Period{Batch: batch}
	for _, c := range genai.Calls(spans).Calls {
		p.Calls = append(p.Calls, store.Call{Call: c})
	}
	return p
}

// SealCalls seals the calls of spans.
func SealCalls(t testing.TB, s store.Store, spans []genai.Span, batch uint64) {
	t.Helper()
	if _, err := s.Seal(ctx, callPeriod(spans, batch)); err != nil {
		t.Fatal(err)
	}
}

func callText(t testing.TB, c *genai.Call) string {
	t.Helper()
	var b strings.Builder
	if err := c.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Told is what is kept of each call that has an id: its text.
func Told(t testing.TB, s store.Store, id string) (texts []string) {
	t.Helper()
	refs, err := s.Find(ctx, id, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		got, err := s.Load(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Calls {
			texts = append(texts, callText(t, c))
		}
	}
	return texts
}

// spanCalls: what spans told is sealed, found by any id and told again in the same words, merged or not.
func spanCalls(t *testing.T, open Open) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must(t, open, dir)
	const n = 120
	var calls []store.Call
	for batch := range 3 {
		p := callPeriod(Spans(batch*n/3, n/3), uint64(batch+1)*10)
		p.Calls[1].As, p.Calls[2].As = store.View, store.Amendment
		calls = append(calls, p.Calls...)
		info, err := s.Seal(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Rows["calls"] != n/3 || info.Requests != n/3 || info.Rows["call_parts"] < n || info.Rows["call_spans"] < 2*n/3 {
			t.Errorf("sealed: %+v", info)
		}
	}
	SealAll(t, s, Random(t, 3, 60), 60) // among other periods
	check := func(s store.Store) {
		t.Helper()
		for _, c := range calls {
			ids := []string{c.Trace.String(), c.RequestID}
			if c.ResponseID != "" {
				ids = append(ids, c.ResponseID)
			}
			for _, id := range ids {
				if diff := cmp.Diff([]string{callText(t, c.Call)}, Told(t, s, id)); diff != "" {
					t.Fatalf("%s, -mapped +kept:\n%s", id, diff)
				}
			}
		}
		page, err := s.List(ctx, store.Filter{Engine: &ledger.EngineID{}, Limit: 10 * n})
		if err != nil || len(page.Rows) != n-6 { // without the views and amendments
			t.Fatalf("%d calls listed, %v", len(page.Rows), err)
		}
		for _, r := range page.Rows {
			k := slices.IndexFunc(calls, func(c store.Call) bool { return c.Trace.String() == r.Row.TraceID })
			if k < 0 || r.Row.Level != 1 || r.Ref.Level != 1 {
				t.Fatalf("%+v", r)
			}
			q := &r.Row
			sum := q.Gateway + q.Frontend + q.Inbox + q.Queue + q.Prefill + q.Decode + q.Transfer + q.Stream + q.Unexplained
			if c := calls[k]; q.From != c.Start || c.E2E.Known && (q.E2E != c.E2E.NS || sum != q.E2E) || c.Output.Known && int64(q.Output) != c.Output.N {
				t.Fatalf("%s: row %+v", callText(t, c.Call), q)
			}
		}
		for after, want := range map[uint64]int{0: n, 10: 2 * n / 3, 30: 0} {
			got := map[string]uint64{}
			if err := s.SealedTraces(ctx, after, func(trace string, through uint64) error {
				if through > after {
					got[trace] = through
				}
				return nil
			}); err != nil || len(got) != want {
				t.Errorf("after batch %d: %d traces, want %d; %v", after, len(got), want, err)
			}
		}
	}
	check(s)
	if less, err := s.Compact(ctx, 10_000, 2); err != nil || less != 2 {
		t.Errorf("%d periods less, %v", less, err)
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = must(t, open, dir)
	check(s)
	ps, err := s.Verify(ctx)
	if err != nil || len(ps) != 2 {
		t.Errorf("%d periods, %v", len(ps), err)
	}
	if _, err := s.Retain(ctx, store.Policy{Detail: time.Hour}, time.Unix(0, ps[0].To).Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		got := Told(t, s, c.Trace.String())
		if len(got) != 1 || !strings.Contains(got[0], "decode") || strings.Contains(got[0], "corrected by") {
			t.Fatalf("without its spans: %q", got)
		}
	}
	e := Random(t, 1, 10).Engines[0]
	if _, err := s.Seal(ctx, &store.Period{Engine: e, Calls: calls[:1]}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("calls of an engine: %v", err)
	}
}

// spanLog: the log of spans is a log like the other one, and neither knows of the other.
func spanLog(t *testing.T, open Open) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must(t, open, dir)
	if _, err := s.Spans().Append(ctx, []store.Record{Notice("spans", 1), Notice("spans", 2)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, []store.Record{Notice("a", 1)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = must(t, open, dir)
	c := &collector{}
	if _, err := s.Spans().Replay(ctx, store.Position{}, c); err != nil || !slices.Equal(c.got, []string{"spans 1", "spans 2"}) {
		t.Errorf("replayed %q, %v", c.got, err)
	}
	if lines, _ := Replayed(t, s, store.Position{}); !slices.Equal(lines, []string{"a 1"}) {
		t.Errorf("the other log: %q", lines)
	}
	if n := s.Spans().Kept(Notice("spans", 1).Source); n != 2 {
		t.Errorf("kept %d", n)
	}
}
