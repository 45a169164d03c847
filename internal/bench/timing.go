package main

import (
	"bytes"
	"os"
	"slices"

	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/ledger"
)

// recordedRun is a run of a real engine: vLLM 0.32.0 on a CPU, on a machine that it shared.
const recordedRun = "cli/demo.wlc"

// iterationTimes are the figures of how long simulated iterations take: what half of a real run tells of the other half, given what each
// iteration computed, and what asking costs.
func iterationTimes(s *figure.Sheet) error {
	raw, err := os.ReadFile(recordedRun)
	if err != nil {
		return err
	}
	a := ingest.New()
	if err := ingest.ReadCapture(bytes.NewReader(raw), recordedRun, a); err != nil {
		return err
	}
	e := a.Book().Engines[0]
	half, _ := timing.Half(e)
	for _, k := range []struct {
		name  string
		learn func(n uint64) bool
	}{
		{"simulate/time_stretches", timing.Alternate}, // of 64 iterations: what is learned from saw the same machine as what is judged
		{"simulate/time_second_half_by_first", func(n uint64) bool { return n <= half }},
		{"simulate/time_first_half_by_second", func(n uint64) bool { return n > half }},
	} {
		c, err := timing.Calibrate(e, k.learn)
		if err != nil {
			return err
		}
		rest := func(n uint64) bool { return !k.learn(n) }
		a, pace := c.Judge(e, rest), c.Pace(e, rest)
		judged(s, k.name, a.All)
		judged(s, k.name+"_decode", a.Decode)
		judged(s, k.name+"_prefill", a.Prefill)
		percent(s, k.name+"_tpot_mean", pace.Mean)
		percent(s, k.name+"_tpot_p50", pace.P50)
		percent(s, k.name+"_tpot_p99", pace.P99)
	}
	// How much the machine's own speed changed: the median iteration that decodes one sequence, second half against first.
	percent(s, "simulate/time_of_one_decode_second_half_against_first", alone(e, func(n uint64) bool { return n > half })/alone(e, func(n uint64) bool { return n <= half })-1)
	speed, err := bench("./experiment/simulate/timing", "Iteration")
	if err != nil {
		return err
	}
	for _, model := range []string{"calibrated", "synthetic", "roofline"} {
		s.Report("simulate/time_asked_"+model, speed.get("Iteration/"+model, "ns/op"), "ns")
	}
	return nil
}

// judged prints the errors of one iteration, and those of the distribution of all.
func judged(s *figure.Sheet, name string, e timing.Errors) {
	percent(s, name+"_one_median", e.Median)
	percent(s, name+"_one_p90", e.P90)
	percent(s, name+"_one_p99", e.P99)
	percent(s, name+"_drawn_p50", e.DrawnP50)
	percent(s, name+"_drawn_p90", e.DrawnP90)
	percent(s, name+"_drawn_p99", e.DrawnP99)
	percent(s, name+"_drawn_total", e.DrawnTotal)
}

func percent(s *figure.Sheet, name string, share float64) { s.Report(name, 100*share, "%") }

// alone is the median duration of iterations that decode one sequence and do nothing else.
func alone(e *ledger.Engine, use func(uint64) bool) float64 {
	var ns []int64
	for i := range e.Iterations {
		if it := &e.Iterations[i]; it.Complete() && it.Members == 1 && it.Tokens == 1 && use(it.Number) {
			ns = append(ns, it.Duration())
		}
	}
	slices.Sort(ns)
	return float64(ns[len(ns)/2])
}
