package main

import (
	"math"

	"github.com/whylate/whylate/experiment/overhead"
)

// interval is the mean of xs and half the width of its 95 % interval, which is infinite for a single value.
func interval(xs []float64) (mean, half float64) {
	switch len(xs) {
	case 0:
		return 0, math.Inf(1)
	case 1:
		return xs[0], math.Inf(1)
	}
	i := overhead.IntervalOf(xs)
	return i.Mean, i.Half()
}
