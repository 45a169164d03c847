package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/store/storetest"
)

// A call that spans alone tell of is a request of level L1: in lists and explained, the same while it is in memory, sealed and after a restart.
func TestCallsAreRequestsOfLevelOne(t *testing.T) {
	ctx := context.Background()
	spans := storetest.Spans(0, 30)
	now := time.Unix(0, spans[0].Start).Add(time.Minute)
	disk := vfs.NewMemory()
	s, stop := mustSpanServer(t, disk, &now, Settings{})
	if err := s.AcceptSpans(ctx, spans); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	weights := 0.0
	for _, c := range genai.Calls(spans).Calls {
		want[c.Trace.String()] = strings.TrimSpace(text(t, c))
		if c.Threshold.Known {
			weights += c.Threshold.Weight()
		}
	}
	check := func(when string) {
		t.Helper()
		list, err := s.Requests(ctx, api.RequestsQuery{Sort: "e2e"})
		if err != nil || len(list.Requests) != len(want) || list.Matched != len(want) {
			t.Fatalf("%s: %d of %d listed, %v", when, len(list.Requests), len(want), err)
		}
		if !slices.IsSortedFunc(list.Requests, func(a, b api.RequestRow) int { return int(b.E2E - a.E2E) }) {
			t.Errorf("%s: the list is not sorted", when)
		}
		sum := 0.0
		for _, r := range list.Requests {
			sum += r.Weight
			if r.Level != 1 {
				t.Errorf("%s: %+v", when, r)
			}
		}
		if sum != weights || list.Calls == nil || list.Calls.Calls != len(want) || list.Calls.Known || !strings.Contains(list.Calls.Denominator, "denominator unknown") {
			t.Errorf("%s: weights %v, want %v; %+v", when, sum, weights, list.Calls)
		}
		for trace, told := range want {
			for _, id := range []string{trace, trace[:12]} {
				x, err := s.Explain(ctx, api.ExplainQuery{ID: id})
				if err != nil {
					t.Fatalf("%s: %s: %v", when, id, err)
				}
				if x.Basis.Level != "L1" || len(x.Calls) != 1 || x.Calls[0].Text != told || x.Basis.Sharpen == "" || len(x.Calls[0].Missing) == 0 {
					t.Fatalf("%s: %+v\n%s\nwant\n%s", when, x, x.Calls[0].Text, told)
				}
				var sum int64
				for _, l := range x.Account.Lines {
					sum += l.NS
				}
				if e := x.Calls[0].E2E; e != nil && (sum != *e || x.Account.E2E() != *e) {
					t.Errorf("%s: parts sum to %d, E2E %d", when, sum, *e)
				}
			}
		}
		slow, err := s.Requests(ctx, api.RequestsQuery{Sort: "e2e", Over: 310 * time.Millisecond, Limit: 5})
		if err != nil || len(slow.Requests) != 5 || slow.Next == "" {
			t.Errorf("%s: a page of the slow: %+v, %v", when, slow, err)
		}
		var missing *query.NotFound
		if _, err := s.Explain(ctx, api.ExplainQuery{ID: "nobody"}); !errors.As(err, &missing) {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("in memory")
	now = now.Add(time.Minute)
	s.sealSpans(ctx)
	check("sealed")
	stop()
	s, stop = mustSpanServer(t, disk, &now, Settings{})
	defer stop()
	check("after a restart")
}

// All calls of a list say with what probability they were kept: their weights say how many there were.
func TestWeightsOfAList(t *testing.T) {
	ctx := context.Background()
	spans := storetest.Spans(0, 8)
	for i := range spans {
		spans[i].Threshold = genai.Threshold{T: 3 << 54, Known: true}
	}
	now := time.Unix(0, spans[0].Start).Add(time.Minute)
	s, stop := mustSpanServer(t, vfs.NewMemory(), &now, Settings{})
	defer stop()
	if err := s.AcceptSpans(ctx, spans); err != nil {
		t.Fatal(err)
	}
	list, err := s.Requests(ctx, api.RequestsQuery{})
	if err != nil || list.Calls == nil || !list.Calls.Known || list.Calls.Estimate != 32 || list.Calls.Calls != 8 || list.Calls.Error == 0 {
		t.Errorf("%+v, %v", list.Calls, err)
	}
}

// A call that shares an id with a request of the ledger is the same request: one row, and what spans tell stands beside the engine's records.
func TestCallsBesideTheLedger(t *testing.T) {
	ctx := context.Background()
	book, raw := demo(t)
	now := time.Unix(0, book.Now)
	for _, sealed := range []bool{false, true} {
		s := startWith(t, vfs.NewMemory(), Settings{Now: func() time.Time { return now }, HotPeriod: time.Second, SpanQuiet: time.Nanosecond})
		if _, err := s.Import(ctx, api.ImportQuery{Name: "demo"}, strings.NewReader(string(raw))); err != nil {
			t.Fatal(err)
		}
		before, err := s.Requests(ctx, api.RequestsQuery{Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		name := "fan-0"
		r := book.Requests[slices.IndexFunc(book.Requests, func(r *ledger.Request) bool { return r.Name() == name })]
		spans := storetest.Spans(0, 2)
		spans[2].Get(genai.RequestID).Text = "cmpl-" + name + "-0" // as vLLM makes it of the client's
		moved := r.Received - spans[0].Start
		for i := range spans {
			spans[i].Start += moved
			spans[i].End += moved
		}
		if err := s.AcceptSpans(ctx, spans); err != nil {
			t.Fatal(err)
		}
		if sealed {
			now = now.Add(time.Minute)
			s.sealSpans(ctx)
			if n := s.spans.traces.size(); n != 0 {
				t.Fatalf("%d spans are not sealed", n)
			}
		}
		after, err := s.Requests(ctx, api.RequestsQuery{Limit: 10_000})
		if err != nil || len(after.Requests) != len(before.Requests)+1 { // the other call is one by itself
			t.Errorf("sealed %v: %d rows, %d before, %v", sealed, len(after.Requests), len(before.Requests), err)
		}
		x, err := s.Explain(ctx, api.ExplainQuery{ID: name})
		if err != nil || x.Basis.Level == "L1" || len(x.Calls) != 1 || len(x.Account.Lines) == 0 {
			t.Fatalf("sealed %v: %+v, %v", sealed, x, err)
		}
		if !slices.ContainsFunc(x.Notes, func(n string) bool { return strings.HasPrefix(n, "In front of the engine, from spans (L1)") }) {
			t.Errorf("sealed %v: what lies in front of the engine is not told: %q\n%s", sealed, x.Notes, x.Calls[0].Text)
		}
		s.stop()
	}
}
