package timing

import (
	"math"

	"github.com/whylate/whylate/internal/numeric"
)

// coefficients are those of one part: nanoseconds per unit of each amount, and the least that the part is expected to take.
type coefficients struct {
	per   []float64
	least float64
}

func (c *coefficients) expect(x []float64) float64 {
	var t float64
	for i, amount := range x {
		if amount != 0 {
			t += amount * c.per[i]
		}
	}
	return max(t, c.least)
}

// sample is an iteration as a fit of one part sees it.
type sample struct {
	x     []float64
	y     float64 // ns
	class class
}

const (
	rounds = 20
	reach  = 6 * 1.4826 // in median absolute errors: the Gaussian σ times six
)

// fit finds coefficients ≥ 0 by reweighted least squares of the relative error. A row that lies far from the rest of its class loses
// its weight (Tukey's biweight). Each class is judged by its own spread, and all classes weigh the same, since a few prompts
// among thousands of decodes are no outliers.
func fit(rows []sample, n int) coefficients {
	ys := make([]float64, len(rows))
	for i := range rows {
		ys[i] = rows[i].y
	}
	c := coefficients{per: make([]float64, n), least: numeric.Quantile(ys, 0.01) / 2}
	if len(rows) == 0 {
		return c
	}
	floor := numeric.Quantile(ys, 0.5) / 8
	weights, errs := make([]float64, len(rows)), make([]float64, len(rows))
	var counts [numClasses]float64
	for i := range rows {
		counts[rows[i].class]++
	}
	for i, r := range rows { // relative to what was measured: a stall weighs nothing
		y := max(r.y, floor)
		weights[i] = 1 / (y * y * counts[r.class])
	}
	c.per = nonNegative(rows, weights, n)
	for range rounds {
		var by [numClasses][]float64
		for i, r := range rows {
			errs[i] = math.Abs(r.y/max(c.expect(r.x), floor) - 1)
			by[r.class] = append(by[r.class], errs[i])
		}
		var scale [numClasses]float64
		for k := range by {
			scale[k] = max(reach*numeric.Quantile(by[k], 0.5), 1e-6)
		}
		for i, r := range rows {
			weights[i] = 0
			if e := errs[i] / scale[r.class]; e < 1 {
				y, t := max(c.expect(r.x), floor), 1-e*e
				weights[i] = t * t / (y * y * counts[r.class])
			}
		}
		before := c.per
		if c.per = nonNegative(rows, weights, n); settled(before, c.per) {
			break
		}
	}
	return c
}

// settled reports whether no coefficient moved by more than a thousandth.
func settled(before, after []float64) bool {
	for i := range after {
		if math.Abs(after[i]-before[i]) > 1e-3*after[i] {
			return false
		}
	}
	return true
}

// nonNegative solves the weighted least-squares problem with all coefficients ≥ 0, by coordinate descent on the normal equations
// of amounts scaled to one.
func nonNegative(rows []sample, weights []float64, n int) []float64 {
	scale := make([]float64, n)
	for i, r := range rows {
		for j, x := range r.x {
			scale[j] += weights[i] * x * x
		}
	}
	for j := range scale {
		scale[j] = math.Sqrt(scale[j])
	}
	a, b := make([][]float64, n), make([]float64, n)
	for j := range a {
		a[j] = make([]float64, n)
	}
	for i, r := range rows {
		if weights[i] == 0 {
			continue
		}
		for j, x := range r.x {
			if x == 0 {
				continue
			}
			u := weights[i] * x / scale[j]
			b[j] += u * r.y
			for k, z := range r.x {
				if z != 0 {
					a[j][k] += u * z / scale[k]
				}
			}
		}
	}
	c := numeric.NonNegative(a, b, 5000, 1e-7)
	for j := range c {
		if scale[j] > 0 {
			c[j] /= scale[j]
		}
	}
	return c
}
