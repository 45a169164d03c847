package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/experiment/workload"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/ledger"
)

// simulated plays worlds of one engine with 64 running sequences: without a listener, into a capture, into a ledger; and as much of
// the heap as is alive after a long run, divided by that after one a tenth as long.
func simulated(s *figure.Sheet) error {
	world, err := bench("./experiment/simulate/world", "Iterations|Alive")
	if err != nil {
		return err
	}
	s.Report("simulate/iterations_per_second_silent", world.get("Iterations/silent", "iterations/core-s"), "iterations/s")
	s.AtLeast("simulate/iterations_per_second", world.get("Iterations/ledger", "iterations/core-s"), "iterations/s", 20_000)
	s.AtLeast("simulate/iterations_per_second_capture", world.get("Iterations/capture", "iterations/core-s"), "iterations/s", 20_000)
	s.AtMost("simulate/memory_ten_times_as_long", world.get("Alive", "ratio"), "ratio", 1.3)
	return predicted(s)
}

// realRun is a recorded run of a real engine, and predictions how many seeds play it.
const (
	realRun     = "cli/demo.wlc"
	predictions = 9
	stretch     = 64 // iterations
)

// predicted learns from one half of a real run how long iterations take, plays the whole run again from its arrivals and lengths
// alone, free running, and compares its requests with what was predicted of them: the median over some seeds of each quantile's error.
// Once the half is the first, and the requests are those that came later: what the load of the second half does was never seen. Once
// it is every other stretch, and the requests are all.
func predicted(s *figure.Sheet) error {
	book, err := bookOf(realRun)
	if err != nil {
		return err
	}
	e := book.Engines[0]
	middle := e.First + uint64(len(e.Iterations)/2)
	later := time.Duration(e.Row(middle).Decided - book.Requests[0].FirstSeen())
	if err := predict(s, book, "second_half", later, func(n uint64) bool { return n < middle }); err != nil {
		return err
	}
	return predict(s, book, "between", 0, func(n uint64) bool { return n/stretch%2 == 0 })
}

func predict(s *figure.Sheet, book *ledger.Book, name string, from time.Duration, learn func(n uint64) bool) error {
	e := book.Engines[0]
	calibration, err := timing.Calibrate(e, learn)
	if err != nil {
		return err
	}
	load := workload.FromLedger(book).Requests
	want := latencies(book, from)
	off := map[string][]float64{}
	for seed := range uint64(predictions) {
		again, err := play(e, world.FrontLike(book), calibration.Model(seed), load, seed)
		if err != nil {
			return err
		}
		for what, got := range latencies(again, from) {
			for _, q := range []float64{0.5, 0.99} {
				key := fmt.Sprintf("%s_p%.0f", what, 100*q)
				off[key] = append(off[key], 100*math.Abs(quantileOf(got, q)/quantileOf(want[what], q)-1))
			}
		}
	}
	for _, f := range []struct {
		name   string
		budget float64
	}{{"tpot_p50", 3}, {"e2e_p50", 5}, {"e2e_p99", 10}, {"ttft_p50", 10}, {"ttft_p99", 15}} {
		s.AtMost("simulate/predicted_"+name+"_"+f.name+"_error", quantileOf(off[f.name], 0.5), "%", f.budget)
	}
	s.Report("simulate/predicted_"+name+"_requests", float64(len(want["e2e"])), "count")
	return nil
}

func bookOf(capture string) (*ledger.Book, error) {
	f, err := os.Open(capture)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := ingest.New()
	a.KeepHashes = true
	if err := ingest.ReadCapture(f, capture, a); err != nil {
		return nil, err
	}
	return a.Book(), nil
}

// play plays a load on an engine like e.
func play(e *ledger.Engine, front world.Front, m timing.Model, load []experiment.Request, seed uint64) (*ledger.Book, error) {
	a := ingest.New()
	w, err := world.New(world.Config{Seed: seed, Recorder: world.NewFrames(a), Workload: experiment.Open(experiment.Requests(load)),
		Replicas: []world.Replica{{Name: "again", Front: front, Ranks: []world.Rank{{Version: e.Version, Settings: e.Settings, Model: m}}}}})
	if err != nil {
		return nil, err
	}
	if _, err := w.Run(); err != nil {
		return nil, err
	}
	return a.Book(), nil
}

// latencies are those of the whole answers to requests that came later than a time after the first, in ns.
func latencies(b *ledger.Book, from time.Duration) map[string][]float64 {
	all := map[string][]float64{}
	for _, r := range b.Requests {
		if r.End != ledger.EndComplete || r.FirstByte == 0 || r.Received-b.Requests[0].FirstSeen() < int64(from) {
			continue
		}
		ttft, e2e := float64(r.FirstByte-r.Received), float64(r.LastByte-r.Received)
		all["ttft"], all["e2e"] = append(all["ttft"], ttft), append(all["e2e"], e2e)
		if q := r.Sequences; len(q) == 1 && q[0].Output > 1 {
			all["tpot"] = append(all["tpot"], (e2e-ttft)/float64(q[0].Output-1))
		}
	}
	return all
}

func quantileOf(of []float64, q float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
