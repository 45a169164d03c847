package main

import "math"

// t975 is the 0.975-quantile of Student's t by degrees of freedom from 1; beyond the table that of the normal distribution is near enough.
var t975 = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}

// interval is the mean of xs and half the width of its 95 % interval, which is infinite for a single value.
func interval(xs []float64) (mean, half float64) {
	n := float64(len(xs))
	for _, x := range xs {
		mean += x / n
	}
	if len(xs) < 2 {
		return mean, math.Inf(1)
	}
	var squares float64
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	t := 1.960
	if df := len(xs) - 1; df <= len(t975) {
		t = t975[df-1]
	}
	return mean, t * math.Sqrt(squares/(n-1)/n)
}
