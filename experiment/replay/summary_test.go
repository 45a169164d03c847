package replay

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/experiment"
)

func TestQuantilesAreValues(t *testing.T) {
	f := func(n int, want Quantiles) {
		t.Helper()
		var values experiment.Values
		for i := n; i > 0; i-- {
			values.Add(int64(i))
		}
		if got := quantiles(&values); got != want {
			t.Errorf("1 to %d: %+v, want %+v", n, got, want)
		}
	}
	f(0, Quantiles{})
	f(1, Quantiles{1, 1, 1, 1, 1})
	f(2, Quantiles{2, 1, 2, 2, 2})
	f(10, Quantiles{10, 5, 9, 10, 10})
	f(100, Quantiles{100, 50, 90, 99, 100})
	f(1000, Quantiles{1000, 500, 900, 990, 1000})
}

// example is a tally of four requests, planned 100 ms apart.
func example() Summary {
	const ms = 1e6
	t := newTally()
	for _, r := range []Result{
		{Attempt: 1, Final: true, Planned: 1000 * ms, Sent: 1001 * ms, First: 1051 * ms, End: 1151 * ms, Status: 200, Sequences: 1, NewConnection: true,
			Chunks:       []Chunk{{At: 1051 * ms}, {At: 1071 * ms}, {At: 1151 * ms}},
			PromptTokens: 10, OutputTokens: 6, UsageReported: true},
		{Attempt: 1, Planned: 1100 * ms, Sent: 1100 * ms, End: 1102 * ms, Status: 503, Outcome: HTTPError, Sequences: 2, Error: "503 busy"},
		{Attempt: 2, Final: true, Planned: 1100 * ms, Sent: 1200 * ms, First: 1210 * ms, End: 1240 * ms, Status: 200, Sequences: 2,
			Chunks:       []Chunk{{At: 1210 * ms}, {At: 1211 * ms, Sequence: 1}, {At: 1220 * ms}, {At: 1231 * ms, Sequence: 1}},
			PromptTokens: 20, OutputTokens: 8},
		{Attempt: 1, Final: true, Planned: 1200 * ms, Sent: 1200 * ms, First: 1230 * ms, End: 1235 * ms, Status: 200, Outcome: Cancelled, Sequences: 1,
			Chunks: []Chunk{{At: 1230 * ms}}, PromptTokens: 30, OutputTokens: 1},
		{Attempt: 1, Final: true, Planned: 1300 * ms, Sent: 1304 * ms, End: 2000 * ms, Outcome: TimedOut, Sequences: 1, Error: "no whole answer"},
	} {
		t.add(&r)
	}
	s := t.summary(&Options{Run: "r1", Base: "http://e:8000", MaxInFlight: 64}, 1, 3)
	s.of(5)
	return s
}

func TestSummary(t *testing.T) {
	const ms = 1_000_000
	got := example()
	want := Summary{
		Run: "r1", Endpoint: "http://e:8000/v1/completions",
		Requests: 5, NotSent: 1, Attempts: 5, Outcomes: Outcomes{Complete: 2, Cancelled: 1, TimedOut: 1},
		MaxInFlight: 64, PeakInFlight: 3, Delayed: 1, Connections: 1, WithoutUsage: 1, Chunks: 8,
		PromptTokens: 60, OutputTokens: 15, SpanNs: 1000 * ms,
		OfferedRate: 10, SentRate: 3 / 0.303, CompletedRate: 2, OutputRate: 15, PromptRate: 60,
		Lateness:        Quantiles{4, 0, 4 * ms, 4 * ms, 4 * ms},
		TTFTFromPlanned: Quantiles{3, 51 * ms, 110 * ms, 110 * ms, 110 * ms},
		TTFTFromSent:    Quantiles{3, 30 * ms, 50 * ms, 50 * ms, 50 * ms},
		ITL:             Quantiles{4, 20 * ms, 80 * ms, 80 * ms, 80 * ms}, // 20 and 80; 10 and 20 of the two sequences
		TPOT:            Quantiles{2, 10 * ms, 20 * ms, 20 * ms, 20 * ms}, // 100 ms / 5; 30 ms / 3, of a sequence
		E2EFromPlanned:  Quantiles{2, 140 * ms, 151 * ms, 151 * ms, 151 * ms},
		E2EFromSent:     Quantiles{2, 40 * ms, 150 * ms, 150 * ms, 150 * ms},
		Errors:          []ErrorCount{{"503 busy", 1}, {"no whole answer", 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestSummaryAsJSON(t *testing.T) {
	full, err := json.Marshal(example())
	if err != nil {
		t.Fatal(err)
	}
	var again Summary
	if err := json.Unmarshal(full, &again); err != nil || !reflect.DeepEqual(again, example()) {
		t.Errorf("round trip: %v\n%+v", err, again)
	}
	if !strings.Contains(string(full), `"ttft_from_planned":{"count":3,"p50_ns":51000000,`) {
		t.Errorf("got %s", full)
	}
	nothing, err := json.Marshal(newTally().summary(&Options{}, 0, 0))
	if err != nil || regexp.MustCompile(`ttft|itl|tpot|e2e|lateness|p50`).Match(nothing) {
		t.Errorf("nothing measured, yet: %s, %v", nothing, err)
	}
}

func ExampleSummary_Write() {
	s := example()
	var out strings.Builder
	s.Write(&out)
	fmt.Print(out.String())
	// Output:
	// replay r1 to http://e:8000/v1/completions: 4 of 5 requests sent in 1.0 s, 5 attempts over 1 connections
	// ended      2 complete, 0 HTTP error, 0 connection error, 1 cancelled, 1 timed out
	// requests/s offered 10.00, sent 9.90, completed 2.00
	// tokens/s   prompt 60.0, output 15.0 in 8 chunks
	// in flight  at most 3; the limit of 64 delayed 1 requests
	//
	//                  ms  n      p50      p90      p99      max
	//           sent late  4    0.000    4.000    4.000    4.000
	//   TTFT from planned  3   51.000  110.000  110.000  110.000
	//      TTFT from sent  3   30.000   50.000   50.000   50.000
	//       ITL per chunk  4   20.000   80.000   80.000   80.000
	//                TPOT  2   10.000   20.000   20.000   20.000
	//    E2E from planned  2  140.000  151.000  151.000  151.000
	//       E2E from sent  2   40.000  150.000  150.000  150.000
	//
	// 1 complete answers came without usage: their output tokens are counted from chunks, which may hold several
	//
	//      1 × 503 busy
	//      1 × no whole answer
}

func TestOutcomeNames(t *testing.T) {
	for o := Complete; o <= TimedOut; o++ {
		if strings.Contains(o.String(), "(") {
			t.Errorf("outcome %d has no name", o)
		}
	}
	if got := Outcome(9).String(); got != "outcome(9)" {
		t.Error(got)
	}
}
