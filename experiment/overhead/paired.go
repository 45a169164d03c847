package overhead

import (
	"math"

	"github.com/whylate/whylate/internal/student"
)

// MinPairs is how many pairs are needed before anything is said of them.
const MinPairs = 3

// signFlips is up to how many pairs all ways to give the differences other signs are counted: 4,096 for 12.
const signFlips = 12

// confidence of every interval.
const confidence = 0.95

// Interval is a mean of differences, and the 95 % interval around it.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Half is half the interval's width: what the run can resolve.
func (i Interval) Half() float64 { return (i.High - i.Low) / 2 }

// HoldsZero reports whether no difference at all fits the interval.
func (i Interval) HoldsZero() bool { return i.Low <= 0 && i.High >= 0 }

// IntervalOf is Student's two-sided interval of the mean. It needs two values.
func IntervalOf(d []float64) Interval {
	n := float64(len(d))
	var mean, squares float64
	for _, v := range d {
		mean += v / n
	}
	for _, v := range d {
		squares += (v - mean) * (v - mean)
	}
	half := student.Quantile(1-(1-confidence)/2, n-1) * math.Sqrt(squares/(n-1)/n)
	return Interval{mean, mean - half, mean + half}
}

// signFlip is the share of all ways to swap the arms within pairs that give a mean at least as far from zero: the exact two-sided p-value of
// "on or off makes no difference". It assumes nothing of how the differences are spread. False beyond 12 pairs.
func signFlip(d []float64) (p float64, ok bool) {
	if len(d) == 0 || len(d) > signFlips {
		return 0, false
	}
	var sum, size float64
	for _, v := range d {
		sum += v
		size += math.Abs(v)
	}
	reached := math.Abs(sum) - 1e-12*size // sums of the same numbers in another order differ by their rounding
	extreme := 0
	for signs := range 1 << len(d) {
		var s float64
		for i, v := range d {
			if signs>>i&1 == 1 {
				v = -v
			}
			s += v
		}
		if math.Abs(s) >= reached {
			extreme++
		}
	}
	return float64(extreme) / float64(int(1)<<len(d)), true
}
