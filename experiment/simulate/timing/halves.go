package timing

import (
	"math"
	"time"

	"github.com/whylate/whylate/internal/numeric"
	"github.com/whylate/whylate/ledger"
)

// idle is how long an engine must have had nothing to do to be called so.
const idle = time.Millisecond

// Half is the iteration that ends the first half of a run: nearest to its middle, and such that the engine had nothing left to do. What
// comes after it can be simulated from an empty engine. Where there is no such moment, it is the middle itself, and clean is false.
func Half(e *ledger.Engine) (n uint64, clean bool) {
	if len(e.Iterations) == 0 {
		return 0, false
	}
	on := continuing(e)
	middle := len(on) / 2
	best := -1
	for k := range len(on) - 1 {
		it, next := &e.Iterations[k], &e.Iterations[k+1]
		quiet := !on[k] && it.Waiting == 0 && it.End != 0 && next.Decided-it.End >= int64(idle)
		if quiet && (best < 0 || abs(k-middle) < abs(best-middle)) {
			best = k
		}
	}
	if best < 0 {
		return e.Iterations[middle].Number, false
	}
	return e.Iterations[best].Number, true
}

func abs(n int) int { return max(n, -n) }

// Pace compares the mean gap between the tokens of a sequence (TPOT) to what it would have been had each iteration taken a drawn time, in
// the batches that there really were. Scheduling has no part in it.
type Pace struct {
	Sequences int     `json:"sequences"`
	Median    float64 `json:"median"` // of one sequence's absolute error
	P50       float64 `json:"p50"`    // signed errors of the quantiles over the sequences
	P99       float64 `json:"p99"`
	Mean      float64 `json:"mean"`
}

// leastPace is how many judged iterations a sequence needs.
const leastPace = 8

// Pace judges sequences on those iterations between their first and their last token for which use returns true. Iterations that
// stalled, in truth or in the drawing, are left out: a single one would be all there is to see.
func (c *Calibration) Pace(e *ledger.Engine, use func(n uint64) bool) Pace {
	seen := observe(e, use)
	var real, drawn, one []float64
	for seed := range uint64(draws) {
		sums := c.tiles(e, seen, seed)
		for _, q := range e.Sequences {
			if q.FirstEmit < e.First || q.LastEmit <= q.FirstEmit || q.LastEmit > e.Last() {
				continue
			}
			p := sums[q.LastEmit-e.First+1].sub(sums[q.FirstEmit-e.First+1])
			if p.n >= leastPace {
				real, drawn, one = append(real, p.real/p.n), append(drawn, p.drawn/p.n), append(one, math.Abs(p.drawn/p.real-1))
			}
		}
	}
	if len(real) == 0 {
		return Pace{}
	}
	off := func(q float64) float64 { return numeric.Quantile(drawn, q)/numeric.Quantile(real, q) - 1 }
	return Pace{len(real) / draws, numeric.Quantile(one, 0.5), off(0.5), off(0.99), sum(drawn)/sum(real) - 1}
}

// pace is time over n iterations, ns.
type pace struct{ n, real, drawn float64 }

func (p pace) add(o pace) pace { return pace{p.n + o.n, p.real + o.real, p.drawn + o.drawn} }
func (p pace) sub(o pace) pace { return pace{p.n - o.n, p.real - o.real, p.drawn - o.drawn} }

// tiles are running sums over the rows of e, of what was seen: iterations with the gap before them, as they were and drawn.
func (c *Calibration) tiles(e *ledger.Engine, seen []observation, seed uint64) []pace {
	sums := make([]pace, len(e.Iterations)+1)
	model := c.Model(seed)
	gap := time.Duration(0)
	for _, o := range seen {
		it := e.Row(o.number)
		took := model.Iteration(0, &o.shape)
		real, drawn, typical := float64(it.Duration()), Duration(e, it, took), Duration(e, it, c.Typical(&o.shape))
		if !stalled(real, typical) && !stalled(drawn, typical) {
			sums[o.number-e.First+1] = pace{1, float64(it.End - e.TileStart(o.number)), drawn + float64(gap)}
		}
		if gap = took.Gap; e.Depth > 1 { // it passes beside the device's work
			gap = 0
		}
	}
	for k := range e.Iterations {
		sums[k+1] = sums[k+1].add(sums[k])
	}
	return sums
}

func sum(xs []float64) float64 {
	var s float64
	for _, x := range xs {
		s += x
	}
	return s
}
