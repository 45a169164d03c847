package objective_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/objective"
)

func request(ttft, tpot, e2e time.Duration, change func(*account.Account)) *account.Account {
	a := &account.Account{Request: &ledger.Request{Status: 200, End: ledger.EndComplete}, To: int64(e2e), TTFT: int64(ttft), TPOT: int64(tpot), Output: 10, TailOutput: 10,
		Lines: []account.Line{{Part: account.Queue, NS: int64(ttft)}, {Part: account.Decode, NS: int64(e2e - ttft)}}}
	if change != nil {
		change(a)
	}
	return a
}

var promised = objective.Objectives{TTFT: 730 * time.Millisecond, TPOT: 50 * time.Millisecond, E2E: 10 * time.Second}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		a      *account.Account
		want   objective.Verdict
		missed []string
	}{
		"exactly within":           {request(730*time.Millisecond, 50*time.Millisecond, 10*time.Second, nil), objective.Good, nil},
		"a late first token":       {request(731*time.Millisecond, 20*time.Millisecond, time.Second, nil), objective.Late, []string{"ttft"}},
		"late in two ways":         {request(time.Second, 51*time.Millisecond, 2*time.Second, nil), objective.Late, []string{"ttft", "tpot"}},
		"its client left":          {request(time.Hour, 0, time.Hour, func(a *account.Account) { a.Request.End = ledger.EndDisconnect }), objective.Left, nil},
		"it was refused":           {request(0, 0, time.Millisecond, func(a *account.Account) { a.Request.Status = 429 }), objective.Failed, nil},
		"200 and not a token":      {request(0, 0, time.Second, func(a *account.Account) { a.Output = 0 }), objective.Failed, nil},
		"one token has no tpot":    {request(time.Millisecond, 0, time.Second, func(a *account.Account) { a.Output = 1 }), objective.Good, nil},
		"an error after the first": {request(time.Millisecond, time.Millisecond, time.Second, func(a *account.Account) { a.Request.End = ledger.EndError }), objective.Failed, nil},
	} {
		if v, missed := promised.Judge(c.a); v != c.want || !slices.Equal(missed, c.missed) {
			t.Errorf("%s: %s %v, want %s %v", name, v, missed, c.want, c.missed)
		}
	}
	if v, _ := (objective.Objectives{}).Judge(request(time.Hour, time.Hour, time.Hour, nil)); v != objective.Good {
		t.Errorf("nothing was promised, and it is %s", v)
	}
}

func gather(t *testing.T, m *objective.Meter) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	m.Register(r)
	fs, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range fs {
		byName[f.GetName()] = f
	}
	return byName
}

// The share of requests within an objective is a count, because the objective is the bound of a bucket.
func TestObjectivesAreBoundsOfBuckets(t *testing.T) {
	m := objective.NewMeter(promised)
	within := 0
	for i := range 1000 {
		ttft := time.Duration(i+1) * time.Millisecond
		if ttft <= promised.TTFT {
			within++
		}
		m.Count("prod", 5000, request(ttft, 20*time.Millisecond, 2*time.Second, nil))
	}
	h := gather(t, m)["whylate_request_ttft_seconds"].GetMetric()[0]
	if got := h.GetLabel()[1].GetValue(); got != "to 16k" {
		t.Errorf("a prompt of 5,000 tokens is %q", got)
	}
	for _, b := range h.GetHistogram().GetBucket() {
		if b.GetUpperBound() == promised.TTFT.Seconds() {
			if b.GetCumulativeCount() != uint64(within) {
				t.Errorf("%d are within, want %d", b.GetCumulativeCount(), within)
			}
			return
		}
	}
	t.Error("no bucket ends at the objective")
}

// Deployments are bounded, and every request has exactly one verdict.
func TestCountsAreBounded(t *testing.T) {
	m := objective.NewMeter(promised)
	for i := range 1000 {
		m.Count(fmt.Sprint("d", i), 1, request(time.Millisecond, time.Millisecond, time.Second, nil))
	}
	m.Count("", 1, request(time.Millisecond, time.Millisecond, time.Second, nil))
	fs := gather(t, m)
	judged := 0.0
	for _, c := range fs["whylate_requests_judged_total"].GetMetric() {
		judged += c.GetCounter().GetValue()
	}
	if n := len(fs["whylate_requests_judged_total"].GetMetric()); n != 4*202 || judged != 1001 {
		t.Errorf("%d series of %v requests", n, judged)
	}
	if n := len(fs["whylate_request_part_seconds_total"].GetMetric()); n != 2*202 {
		t.Errorf("%d series of two parts", n)
	}
}
