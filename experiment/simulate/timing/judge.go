package timing

import (
	"math"

	"github.com/whylate/whylate/internal/numeric"
	"github.com/whylate/whylate/ledger"
)

// Accuracy is how far a calibration is off on iterations that it did not learn from, given what each of them computed.
type Accuracy struct {
	All     Errors `json:"all"`
	Decode  Errors `json:"decode"`  // of iterations without prefill
	Prefill Errors `json:"prefill"` // of iterations with
}

// Errors compares durations as DESIGN §8 has them: from the later of the decision and the previous completion to the completion. All
// are shares of the real ones.
type Errors struct {
	Rows int `json:"rows"`
	// One iteration, predicted at the median residual of its kind: quantiles of the absolute error over the iterations.
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	// The same iterations with residuals drawn, a few times over: signed errors of the quantiles of the durations, and of their sum
	// without stalls.
	DrawnP50   float64 `json:"drawn_p50"`
	DrawnP90   float64 `json:"drawn_p90"`
	DrawnP99   float64 `json:"drawn_p99"`
	DrawnTotal float64 `json:"drawn_total"`
}

// Judge predicts the iterations of e for which use returns true, which should not be among those that c learned from.
func (c *Calibration) Judge(e *ledger.Engine, use func(n uint64) bool) Accuracy {
	return c.judge(e, observe(e, use))
}

// draws is how many times residuals are drawn to judge by, so that the chance of one drawing does not decide.
const draws = 8

func (c *Calibration) judge(e *ledger.Engine, seen []observation) Accuracy {
	var all, decode, prefill comparison
	var drawn [draws]*Calibrated
	for i := range drawn {
		drawn[i] = c.Model(uint64(i))
	}
	for i := range seen {
		o := &seen[i]
		it := e.Row(o.number)
		if o.shape.Tokens == 0 || it.Duration() <= 0 {
			continue
		}
		p := pair{real: float64(it.Duration()), typical: Duration(e, it, c.Typical(&o.shape))}
		for i, m := range drawn {
			p.drawn[i] = Duration(e, it, m.Iteration(0, &o.shape))
		}
		all = append(all, p)
		if o.shape.Prefills > 0 {
			prefill = append(prefill, p)
		} else {
			decode = append(decode, p)
		}
	}
	return Accuracy{all.errors(), decode.errors(), prefill.errors()}
}

// Duration is how long iteration it would have lasted, in ns, had it been decided when it was, after what went before, and taken t.
func Duration(e *ledger.Engine, it *ledger.Iteration, t Took) float64 {
	begin, start := it.Decided+int64(t.Host), it.Decided
	if prev := e.Row(it.Number - 1); prev != nil {
		begin, start = max(begin, prev.Completed), max(start, prev.End)
	}
	return float64(begin + int64(t.Device+t.Tail) - start)
}

// pair is one iteration as it was and as it was predicted, ns.
type pair struct {
	real, typical float64
	drawn         [draws]float64
}

type comparison []pair

func (c comparison) errors() Errors {
	e := Errors{Rows: len(c)}
	if len(c) == 0 {
		return e
	}
	var one, real, drawn []float64
	var realSum, drawnSum float64
	for _, p := range c {
		one, real, drawn = append(one, math.Abs(p.typical-p.real)/p.real), append(real, p.real), append(drawn, p.drawn[:]...)
		if !stalled(p.real, p.typical) {
			realSum += p.real
		}
		for _, d := range p.drawn {
			if !stalled(d, p.typical) {
				drawnSum += d / draws
			}
		}
	}
	off := func(q float64) float64 { return numeric.Quantile(drawn, q)/numeric.Quantile(real, q) - 1 }
	e.Median, e.P90, e.P99 = numeric.Quantile(one, 0.5), numeric.Quantile(one, 0.9), numeric.Quantile(one, 0.99)
	e.DrawnP50, e.DrawnP90, e.DrawnP99 = off(0.5), off(0.9), off(0.99)
	if realSum > 0 {
		e.DrawnTotal = drawnSum/realSum - 1
	}
	return e
}

// stalled reports whether an iteration took a multiple of what was expected of it.
func stalled(took, expected float64) bool {
	return took > stallFactor*expected && took > expected+stallExcess
}
