package timing

import (
	"math"
	"time"

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

// Pace compares the mean gap between the tokens of a sequence (TPOT) to what it would have been had each iteration from its first to
// its last token taken a drawn time, in the batches that there really were. Scheduling has no part in it.
type Pace struct {
	Sequences int     `json:"sequences"`
	Median    float64 `json:"median"` // of one sequence's absolute error
	P50       float64 `json:"p50"`    // signed errors of the quantiles over the sequences
	P99       float64 `json:"p99"`
	Mean      float64 `json:"mean"`
}

// Pace judges the sequences all of whose iterations from the first to the last token are such that use returns true, and wholly known,
// and none of which stalled, in truth or in the drawing.
func (c *Calibration) Pace(e *ledger.Engine, use func(n uint64) bool, seed uint64) Pace {
	tiles := make([]float64, len(e.Iterations)) // drawn duration and gap of each iteration; NaN = not judged
	for k := range tiles {
		tiles[k] = math.NaN()
	}
	drawn := c.Model(seed)
	gap := 0.0 // before the next iteration
	for _, o := range observe(e, use) {
		it := e.Row(o.number)
		took := drawn.Iteration(0, &o.shape)
		if d, t := Duration(e, it, took), Duration(e, it, c.Typical(&o.shape)); !stalled(d, t) && !stalled(float64(it.Duration()), t) {
			tiles[o.number-e.First] = d + gap
		}
		gap = float64(took.Gap)
		if e.Depth > 1 { // it passes beside the device's work
			gap = 0
		}
	}
	sums, known := make([]float64, len(tiles)+1), make([]int, len(tiles)+1)
	for k, t := range tiles {
		sums[k+1], known[k+1] = sums[k], known[k]
		if !math.IsNaN(t) {
			sums[k+1], known[k+1] = sums[k]+t, known[k]+1
		}
	}
	var real, predicted, one []float64
	for _, q := range e.Sequences {
		if q.FirstEmit < e.First || q.LastEmit <= q.FirstEmit || q.LastEmit > e.Last() || q.FirstUncertain || q.Output < 2 {
			continue
		}
		a, b := q.FirstEmit-e.First+1, q.LastEmit-e.First+1 // tiles after the first token's, up to the last one's
		if known[b]-known[a] != int(b-a) {
			continue
		}
		n := float64(q.Output - 1)
		r, p := float64(e.Row(q.LastEmit).End-e.Row(q.FirstEmit).End)/n, (sums[b]-sums[a])/n
		real, predicted, one = append(real, r), append(predicted, p), append(one, math.Abs(p/r-1))
	}
	pace := Pace{Sequences: len(real)}
	if len(real) == 0 {
		return pace
	}
	pace.Median = quantile(one, 0.5)
	pace.P50, pace.P99 = quantile(predicted, 0.5)/quantile(real, 0.5)-1, quantile(predicted, 0.99)/quantile(real, 0.99)-1
	pace.Mean = sum(predicted)/sum(real) - 1
	return pace
}

func sum(xs []float64) float64 {
	var s float64
	for _, x := range xs {
		s += x
	}
	return s
}
