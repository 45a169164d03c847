package account

import (
	"math"

	"github.com/whylate/whylate/internal/numeric"
	"github.com/whylate/whylate/ledger"
)

// Model is the iteration-time model of one engine configuration (DESIGN §8): a duration is the sum over the features of
// [ledger.Work] of amount × coefficient, all coefficients ≥ 0. It is linear on purpose, so that the modelled time of any
// interval is a dot product with a difference of running sums.
type Model struct {
	Coefficients ledger.Work // nanoseconds per unit of each feature
	Rows         int         // iterations fitted on
	Held         int         // iterations not fitted on, which the errors are measured on
	All          Errors
	Decode       Errors // on iterations without prefill
	Prefill      Errors // on iterations with
}

// MinRows is how many complete iterations a fit needs. With fewer there is no model, and an account says so.
const MinRows = 50

// Fit fits a model on the complete, non-empty iterations of e. Even blocks of iterations are fitted on and odd ones are
// held out for the error; the coefficients returned are then refitted on all. ok is false when there are too few rows.
func Fit(e *ledger.Engine) (m Model, ok bool) {
	all := rows(e, func(uint64) bool { return true })
	if len(all) < MinRows {
		return Model{Rows: len(all)}, false
	}
	return fitHeldOut(all), true
}

// FitOn is Fit restricted to the iterations for which use returns true; the error is measured on the others.
func FitOn(e *ledger.Engine, use func(n uint64) bool) (m Model, ok bool) {
	train := rows(e, use)
	if len(train) < MinRows {
		return Model{Rows: len(train)}, false
	}
	m = Model{Coefficients: solve(train), Rows: len(train)}
	m.judge(rows(e, func(n uint64) bool { return !use(n) }))
	return m, true
}

type row struct {
	number uint64
	work   ledger.Work
	ns     float64 // duration
	y      float64 // what is to be explained: the duration, or what an earlier stage left of it
}

func rows(e *ledger.Engine, use func(uint64) bool) []row {
	out := make([]row, 0, len(e.Iterations))
	for k := range e.Iterations {
		it := &e.Iterations[k]
		if !it.Complete() || it.Tokens == 0 || !use(it.Number) {
			continue
		}
		ns := float64(it.Duration())
		out = append(out, row{it.Number, WorkOf(e, it), ns, ns})
	}
	return out
}

// WorkOf is the work of one iteration: the difference of its sums and the row's before it.
func WorkOf(e *ledger.Engine, it *ledger.Iteration) ledger.Work {
	return e.Between(it.Number, it.Number).Work
}

// heldOutBlock is the length of the alternating blocks of training and held-out iterations: long enough that
// neighbouring iterations, which resemble each other, mostly lie on the same side.
const heldOutBlock = 64

func fitHeldOut(all []row) Model {
	var train, held []row
	for i, r := range all {
		if i/heldOutBlock%2 == 0 {
			train = append(train, r)
		} else {
			held = append(held, r)
		}
	}
	var m Model
	if len(held) >= MinRows/2 && len(train) >= MinRows/2 {
		m.Coefficients = solve(train)
		m.judge(held)
	} else {
		m.Coefficients = solve(all)
		m.judge(all)
		m.Held = 0 // an error on the rows fitted on is no proof
	}
	m.Coefficients = solve(all)
	m.Rows = len(all)
	return m
}

// judge measures the model's error on rows it was not fitted on.
func (m *Model) judge(held []row) {
	m.Held = len(held)
	m.All = m.errors(held)
	decode, prefill := strata(held)
	m.Decode, m.Prefill = m.errors(decode), m.errors(prefill)
}

// Errors is how far a model is off on iterations it was not fitted on.
type Errors struct {
	Median float64 // absolute error as a share of the duration
	P90    float64
	Bias   float64 // median of the signed error
	Spread float64 // median absolute residual in ns: what one iteration's duration is uncertain by
}

func (m *Model) errors(held []row) (e Errors) {
	if len(held) == 0 {
		return e
	}
	abs, signed, residual := make([]float64, len(held)), make([]float64, len(held)), make([]float64, len(held))
	for i, r := range held {
		d := r.ns - r.work.Dot(m.Coefficients)
		signed[i] = d / r.ns
		abs[i] = math.Abs(d) / r.ns
		residual[i] = math.Abs(d)
	}
	return Errors{Median: numeric.Quantile(abs, 0.5), P90: numeric.Quantile(abs, 0.9), Bias: numeric.Quantile(signed, 0.5), Spread: numeric.Quantile(residual, 0.5)}
}

// strata parts iterations with prefill from those without.
func strata(rs []row) (decode, prefill []row) {
	for _, r := range rs {
		if r.work[ledger.WorkPrefillTokens] > 0 {
			prefill = append(prefill, r)
		} else {
			decode = append(decode, r)
		}
	}
	return decode, prefill
}

// Predict is the expected duration of the given work, in nanoseconds.
func (m *Model) Predict(w ledger.Work) float64 { return w.Dot(m.Coefficients) }

// solve fits non-negative coefficients in two stages: what decode costs on the iterations without prefill, then what prefill
// adds on the others. Fitted together, a few long prompts among thousands of decodes would look like outliers to the robust fit
// and be thrown out of it.
func solve(rs []row) ledger.Work {
	decode, prefill := strata(rs)
	if len(decode) < MinRows/2 || len(prefill) == 0 {
		return robust(rs, everything)
	}
	c := robust(decode, ofDecode)
	rest := make([]row, len(prefill))
	for i, r := range prefill {
		rest[i] = row{r.number, r.work, r.ns, r.ns - r.work.Dot(c)}
	}
	return c.Add(robust(rest, ofPrefill))
}

// Which features a stage fits.
var (
	ofPrefill  = mask{ledger.WorkPrefillTokens: true, ledger.WorkPrefillContext: true, ledger.WorkPromptLogprobs: true, ledger.WorkPrefillSeqs: true}
	ofDecode   = ofPrefill.not()
	everything = mask{}.not()
)

type mask [ledger.NumWork]bool

// only is w without the features that are not in m.
func (m mask) only(w ledger.Work) ledger.Work {
	for i := range w {
		if !m[i] {
			w[i] = 0
		}
	}
	return w
}

func (m mask) not() mask {
	for i := range m {
		m[i] = !m[i]
	}
	return m
}

// robust is iteratively reweighted least squares of the relative error. A stall of seconds among iterations of milliseconds
// must not bend the fit, so rows far from it lose their weight (Tukey's biweight).
//
// Errors are relative to what the fit expects. Relative to what was measured, the same error would weigh less on an iteration that
// took long than on one that was quick, and where the machine's speed varies the fit would lie below the mean of what it is fitted to.
func robust(rs []row, use mask) ledger.Work {
	weights := make([]float64, len(rs))
	durations := make([]float64, len(rs))
	for i, r := range rs {
		durations[i] = r.ns
	}
	// The first pass has no residuals to judge by: whatever is longer than eight times the upper quartile waits outside.
	limit := 8 * numeric.Quantile(durations, 0.75)
	for i, r := range rs {
		if r.ns <= limit {
			weights[i] = 1 / (r.ns * r.ns)
		}
	}
	c := nonNegative(rs, weights, use)
	errs, expected := make([]float64, len(rs)), make([]float64, len(rs))
	least := numeric.Quantile(durations, 0.5) / 8
	for range 8 {
		for i, r := range rs {
			fit := r.work.Dot(c)
			expected[i] = max(r.ns-r.y+fit, least)
			errs[i] = math.Abs(r.y-fit) / expected[i]
		}
		scale := 6 * 1.4826 * numeric.Quantile(errs, 0.5)
		if scale < 1e-6 {
			break
		}
		for i := range rs {
			e := errs[i] / scale
			if e >= 1 {
				weights[i] = 0
				continue
			}
			t := 1 - e*e
			weights[i] = t * t / (expected[i] * expected[i])
		}
		c = nonNegative(rs, weights, use)
	}
	return c
}

// nonNegative solves the weighted least-squares problem with all coefficients ≥ 0 by cyclic coordinate descent on the
// normal equations; with a handful of features it converges in a few hundred cheap sweeps.
func nonNegative(rs []row, weights []float64, use mask) ledger.Work {
	var a [ledger.NumWork][ledger.NumWork]float64
	var b, scale ledger.Work
	for i, r := range rs {
		for j := range r.work {
			scale[j] += weights[i] * r.work[j] * r.work[j]
		}
	}
	for j := range scale {
		scale[j] = math.Sqrt(scale[j])
		if scale[j] == 0 || !use[j] {
			scale[j] = math.Inf(1) // a feature that never occurs, or is not asked for, gets coefficient 0
		}
	}
	for i, r := range rs {
		w := weights[i]
		if w == 0 {
			continue
		}
		for j := range r.work {
			x := r.work[j] / scale[j]
			if x == 0 {
				continue
			}
			b[j] += w * x * r.y
			for k := range r.work {
				a[j][k] += w * x * r.work[k] / scale[k]
			}
		}
	}
	rows := make([][]float64, len(a))
	for j := range a {
		rows[j] = a[j][:]
	}
	c := ledger.Work(numeric.NonNegative(rows, b[:], 2000, 1e-9))
	for j := range c {
		if math.IsInf(scale[j], 1) {
			c[j] = 0
		} else {
			c[j] /= scale[j]
		}
	}
	return c
}
