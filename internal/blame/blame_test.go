package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/query"
)

// Each load can be played, has what it is named for, and takes away in the sham as much as it plants, request by request.
func TestLoads(t *testing.T) {
	for _, c := range cases {
		load := c.load()
		ids := map[string]bool{}
		var planted, aparts []experiment.Request
		for i, r := range load {
			if err := r.Validate(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if ids[r.ID] || i > 0 && r.At < load[i-1].At {
				t.Errorf("%s: %s twice, or out of order", c.name, r.ID)
			}
			ids[r.ID] = true
			switch r.Class {
			case c.planted:
				planted = append(planted, r)
			case apart:
				aparts = append(aparts, r)
			}
		}
		if len(planted) == 0 || c.sham != (len(aparts) > 0) {
			t.Errorf("%s: %d culprits planted, %d apart", c.name, len(planted), len(aparts))
		}
		for _, r := range aparts {
			if r.PromptTokens != planted[0].PromptTokens || r.OutputTokens != planted[0].OutputTokens {
				t.Errorf("%s: %s is not as large as %s", c.name, r.ID, planted[0].ID)
			}
		}
	}
}

// Every arm is played once a repeat, the culprits are known before they are left out, and the order varies.
func TestArms(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	orders := map[string]bool{}
	for repeat := range 20 {
		arms := cases[0].arms(repeat, random)
		if repeat == 0 && arms[0] != with {
			t.Errorf("the first arm is %s", arms[0])
		}
		orders[strings.Join(arms, " ")] = true
		if slices.Sort(arms); strings.Join(arms, " ") != "sham with without" {
			t.Errorf("arms %v", arms)
		}
	}
	if len(orders) < 4 {
		t.Errorf("only the orders %v", orders)
	}
}

func TestInterval(t *testing.T) {
	if mean, half := interval([]float64{1, 2, 3, 4, 5}); mean != 3 || math.Abs(half-1.963) > 0.001 {
		t.Errorf("%v ± %v, want 3 ± 1.963", mean, half)
	}
	if mean, half := interval([]float64{7}); mean != 7 || !math.IsInf(half, 1) {
		t.Errorf("%v ± %v: one value has no interval", mean, half)
	}
}

// A stream beside one long prompt, as explain's own scenario has it, in two repeats with everybody.
const recording = `
engine vllm depth=1 max_num_seqs=8 max_num_batched_tokens=257
0ms       http steady-0@long-0-with
1ms       arrive steady-0@long-0-with
1ms       submit steady-0@long-0-with prompt=16
2ms       queue steady-0@long-0-with prompt=16 max=200
2..12ms   iter steady-0@long-0-with:16
12ms      x100 8ms iter steady-0@long-0-with
811ms     http long-0@long-0-with
811.1ms   submit long-0@long-0-with prompt=1024
811.2ms   arrive long-0@long-0-with
811.3ms   queue long-0@long-0-with prompt=1024 max=8
812ms     x4 140ms iter steady-0@long-0-with long-0@long-0-with:256
1372ms    x7 9ms iter steady-0@long-0-with long-0@long-0-with end=long-0@long-0-with:length
1436ms    last long-0@long-0-with
1436ms    x88 8ms iter steady-0@long-0-with end=steady-0@long-0-with:length
2139ms    first steady-0@long-0-with
2141ms    last steady-0@long-0-with
`

func took(r *replayed, id string, ms int64) {
	r.results = append(r.results, replay.Result{RequestID: r.id(id), Planned: 1, Sent: 1, First: 1 + 10e6, End: 1 + ms*1e6})
}

// What explain names is what is left out; stated and lost are compared over those that blame it; a stream that loses something else
// than what is stated is seen as such.
func TestJudgesStatedAgainstLost(t *testing.T) {
	parsed, err := scenario.Parse(recording)
	if err != nil {
		t.Fatal(err)
	}
	b, err := parsed.Book()
	if err != nil {
		t.Fatal(err)
	}
	l := query.Open(b)
	c := one{name: "long", planted: "long", load: func() []experiment.Request {
		var l load
		l.streams(1, 0, 200)
		l.add("long", 811e6, 1024, 8)
		return l.sorted()
	}}
	all := replayed{Case: "long", Arm: with}
	took(&all, "steady-0", 2141)
	took(&all, "long-0", 625)
	culprits, _ := named(l, &all)
	if len(culprits) != 1 || culprits[0] != "long-0" {
		t.Fatalf("named %v", culprits)
	}
	for _, x := range []struct {
		without int64 // ms
		ratio   string
	}{{2141 - 528, "figure blame/long_ratio 1.0000 "}, {2141 - 264, "figure blame/long_ratio 2.00 "}} {
		less := replayed{Case: "long", Arm: without}
		took(&less, "steady-0", x.without)
		s := &session{Runs: []replayed{all, less}, Culprits: map[string][]string{"long": culprits}}
		var out bytes.Buffer
		if err := s.compare(figure.New(&out, "make blame"), l, c); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), x.ratio) {
			t.Errorf("want %q in\n%s", x.ratio, out.String())
		}
	}
}
