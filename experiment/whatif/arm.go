package whatif

import (
	"math"
	"slices"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
)

// measure is one of the figures that arms are compared by.
type measure struct {
	name, unit string
	of         func(*outcome) float64
}

// measures of an arm. Each is taken from a ledger, whoever filled it: an engine or a simulation.
var measures = []measure{
	{"TTFT p50", "ns", func(o *outcome) float64 { return quantile(o.ttft, 0.5) }},
	{"TTFT p99", "ns", func(o *outcome) float64 { return quantile(o.ttft, 0.99) }},
	{"TPOT p50", "ns", func(o *outcome) float64 { return quantile(o.tpot, 0.5) }},
	{"TPOT p99", "ns", func(o *outcome) float64 { return quantile(o.tpot, 0.99) }},
	{"E2E p50", "ns", func(o *outcome) float64 { return quantile(o.e2e, 0.5) }},
	{"E2E p99", "ns", func(o *outcome) float64 { return quantile(o.e2e, 0.99) }},
	{"queue mean", "ns", func(o *outcome) float64 { return o.queue }},
	{"output", "tokens/s", func(o *outcome) float64 { return o.rate }},
	{"preemptions", "", func(o *outcome) float64 { return o.preemptions }},
	{"prompt from cache", "share", func(o *outcome) float64 { return o.cached }},
}

// outcome is what became of the requests of one run. Slices are sorted.
type outcome struct {
	ttft, tpot, e2e []float64 // ns, of requests that are over
	queue           float64   // ns, their mean
	rate            float64   // output tokens a second, from the first arrival to the last end
	preemptions     float64
	cached          float64 // share of prompt tokens
	requests, over  int
}

// outcomeOf measures a ledger.
func outcomeOf(b *ledger.Book) *outcome {
	o := &outcome{requests: len(b.Requests)}
	var output, prompt, cached float64
	first, last := int64(math.MaxInt64), int64(0)
	for _, r := range b.Requests {
		a := account.Of(r, nil, 0)
		if a.State != account.Finished || a.Output == 0 {
			continue
		}
		o.over++
		o.e2e = append(o.e2e, float64(a.E2E()))
		o.queue += float64(a.Line(account.Queue).NS)
		if a.TTFT > 0 {
			o.ttft = append(o.ttft, float64(a.TTFT))
		}
		if a.TPOT > 0 {
			o.tpot = append(o.tpot, float64(a.TPOT))
		}
		output += float64(a.Output)
		first, last = min(first, a.From), max(last, a.To)
		for _, q := range r.Sequences {
			prompt, cached = prompt+float64(q.Prompt), cached+float64(q.Cached)
			o.preemptions += float64(len(q.Preemptions))
		}
	}
	o.queue /= float64(max(o.over, 1))
	if prompt > 0 {
		o.cached = cached / prompt
	}
	if last > first {
		o.rate = output / (float64(last-first) / 1e9)
	}
	for _, xs := range [][]float64{o.ttft, o.tpot, o.e2e} {
		slices.Sort(xs)
	}
	return o
}

// Observed are the figures of an answer, as a ledger shows them of one engine's requests: by their names, in nanoseconds where they are times.
func Observed(b *ledger.Book, e *ledger.Engine, take func(*ledger.Request) bool) map[string]float64 {
	o, figures := outcomeOf(only(b, e, take)), map[string]float64{}
	for _, m := range measures {
		figures[m.name] = m.of(o)
	}
	return figures
}

// quantile of sorted values, by the nearest rank; NaN of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// arm is a simulated engine under some settings.
type arm struct {
	version  string
	settings map[string]any
	time     *timing.Calibration
	front    world.Front
	network  time.Duration
	requests []experiment.Request
}

// play runs the arm once.
func (a *arm) play(seed uint64) (*outcome, error) {
	book := ingest.New()
	w, err := world.New(world.Config{Seed: seed, Recorder: world.NewFrames(book), Client: world.Client{Network: a.network}, Workload: experiment.Open(experiment.Requests(a.requests)),
		Replicas: []world.Replica{{Name: "whatif", Front: a.front, Ranks: []world.Rank{{Version: a.version, Settings: a.settings, Model: a.time.Model(seed)}}}}})
	if err != nil {
		return nil, err
	}
	if _, err := w.Run(); err != nil {
		return nil, err
	}
	return outcomeOf(book.Book()), nil
}

// way is the median time from a client to the front end, 0 where no client was recorded.
func way(b *ledger.Book) time.Duration {
	var all []int64
	for _, r := range b.Requests {
		if len(r.Clients) == 1 && r.Clients[0].Sent != 0 && r.Received > r.Clients[0].Sent {
			all = append(all, r.Received-r.Clients[0].Sent)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return time.Duration(all[len(all)/2])
}
