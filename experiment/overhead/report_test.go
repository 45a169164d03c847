package overhead

import (
	"math"
	"strings"
	"testing"
)

// pairs makes the runs of a measure from on and off of each pair.
func pairsOf(name string, values ...[2]float64) []Run {
	var runs []Run
	for i, v := range values {
		runs = append(runs, Run{Pair: i + 1, Arm: On, Values: map[string]float64{name: v[1]}}, Run{Pair: i + 1, Arm: Off, Values: map[string]float64{name: v[0]}})
	}
	return runs
}

func TestVerdictsClaimNoMoreThanTheyKnow(t *testing.T) {
	latency := measure{name: "m", unit: "ms"}
	rate := measure{name: "m", unit: "tokens/s", moreIsBetter: true}
	for name, c := range map[string]struct {
		m     measure
		pairs [][2]float64
		want  Verdict
		words string
	}{
		"slower":                             {latency, [][2]float64{{100, 102}, {100, 103}, {100, 102}, {100, 103}, {100, 102}, {100, 103}}, Costs, "costs between 1.93 and 3.07 %"},
		"faster":                             {latency, [][2]float64{{100, 98}, {100, 97}, {100, 98}, {100, 97}, {100, 98}, {100, 97}}, Saves, "saves between 1.93 and 3.07 %"},
		"fewer tokens":                       {rate, [][2]float64{{100, 98}, {100, 97}, {100, 98}, {100, 97}, {100, 98}, {100, 97}}, Costs, "costs between 1.93 and 3.07 %"},
		"more tokens":                        {rate, [][2]float64{{100, 102}, {100, 103}, {100, 102}, {100, 103}, {100, 102}, {100, 103}}, Saves, "saves between 1.93 and 3.07 %"},
		"three pairs prove nothing by signs": {latency, [][2]float64{{100, 102}, {100, 102.1}, {100, 102}}, Perhaps, "perhaps costs between 1.89 and 2.18 %, but signs by chance do this with p = 0.25: more pairs"},
		"noise":                              {latency, [][2]float64{{100, 104}, {100, 95}, {100, 101}, {100, 99}}, Unseen, "no difference seen; beyond −6.26 or +5.76 % would not fit"},
		"an off of zero":                     {latency, [][2]float64{{0, 1}, {0, 2}, {0, 1}, {0, 2}, {0, 1}, {0, 2}}, Costs, "costs between 0.93 and 2.07 ms"},
		"nothing moves":                      {latency, [][2]float64{{5, 5}, {5, 5}, {5, 5}}, Unseen, "no difference seen; beyond 0 or 0 % would not fit"},
		"two pairs are too few":              {latency, [][2]float64{{5, 6}, {5, 6}}, Absent, "not measured"},
	} {
		got := compare(c.m, pairsOf("m", c.pairs...))
		if got.Verdict != c.want || got.Words != c.words {
			t.Errorf("%s: %s %q, want %s %q", name, got.Verdict, got.Words, c.want, c.words)
		}
		if got.Difference != nil && got.Resolves != nil && got.Percent != nil && math.Abs(*got.Resolves-got.Percent.Half()) > 1e-12 {
			t.Errorf("%s: resolves %v, half the interval is %v", name, *got.Resolves, got.Percent.Half())
		}
	}
}

// Pairs are compared with each other, not arms: a machine that gets slower by half hides nothing.
func TestDriftBetweenPairsDoesNotCount(t *testing.T) {
	c := compare(measure{name: "m", unit: "ms"}, pairsOf("m", [2]float64{100, 101}, [2]float64{110, 111.2}, [2]float64{120, 121.1}, [2]float64{130, 131.4}, [2]float64{140, 141.3}, [2]float64{150, 151.6}))
	if c.Verdict != Costs || c.Percent.Half() > 0.2 {
		t.Errorf("%+v %+v", c, c.Percent)
	}
}

func TestTableIsPlain(t *testing.T) {
	r := &Report{Pairs: 3, PairsPlanned: 6, Servers: "sh -c \x1b[31mred", Notes: []string{"a note\a"},
		Measures: []Comparison{compare(measures[2], pairsOf("ttft_p50", [2]float64{10, 11}, [2]float64{10, 12}, [2]float64{10, 11})), {Title: "gap", Verdict: Absent}}}
	var out strings.Builder
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 pairs of runs", "6 pairs were wanted", "TTFT p50", "not measured: gap", "8 ways to flip signs", "+13.3 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.ContainsAny(out.String(), "\x1b\a") {
		t.Errorf("control characters: %q", out.String())
	}
}
