package overhead

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestIntervalByHand(t *testing.T) {
	// Mean 2, standard deviation 1, n = 3: half = 4.3027 / √3.
	i := IntervalOf([]float64{1, 2, 3})
	if math.Abs(i.Mean-2) > 1e-12 || math.Abs(i.Half()-2.4841) > 1e-3 || !i.HoldsZero() {
		t.Errorf("%+v", i)
	}
	if i := IntervalOf([]float64{4, 4, 4}); i != (Interval{4, 4, 4}) || i.HoldsZero() {
		t.Errorf("equal differences: %+v", i)
	}
}

// In 95 of 100 benches the interval holds the true difference, however few pairs there are, and whatever drifts from pair to pair.
func TestIntervalCoversTheTruth(t *testing.T) {
	draw := rand.New(rand.NewPCG(7, 11))
	for _, pairs := range []int{3, 6, 12} {
		const benches, truth = 4000, 1.5
		held := 0
		for range benches {
			d := make([]float64, pairs)
			for i := range d {
				drift := 40 * draw.Float64() // of both arms of the pair
				off := 100 + drift + draw.NormFloat64()
				d[i] = 100 + truth + drift + draw.NormFloat64() - off
			}
			if i := IntervalOf(d); i.Low <= truth && truth <= i.High {
				held++
			}
		}
		// The standard error of the share is 0.34 %.
		if share := float64(held) / benches; math.Abs(share-0.95) > 0.014 {
			t.Errorf("%d pairs: %.1f %% of the intervals hold the truth, want 95 %%", pairs, 100*share)
		}
	}
}

func TestSignFlipCountsExactly(t *testing.T) {
	for _, c := range []struct {
		d    []float64
		want float64
	}{
		{[]float64{1, 1, 1}, 2.0 / 8},
		{[]float64{1, 2, 4, 8, 16, 32}, 2.0 / 64},
		{[]float64{1, -1}, 1},
		{[]float64{3, 1, -1}, 6.0 / 8},       // of |±3±1±1| two are 5, four are 3, two are 1
		{[]float64{0.1, 0.2, -0.3}, 1},       // zero but for rounding
		{[]float64{0, 0, 0}, 1},              // nothing differs
		{[]float64{-1, -2, -4, -8}, 2. / 16}, // both sides count
	} {
		got, ok := signFlip(c.d)
		if !ok || got != c.want {
			t.Errorf("%v: p = %v %v, want %v", c.d, got, ok, c.want)
		}
	}
	if _, ok := signFlip(make([]float64, 13)); ok {
		t.Error("13 pairs are not to be counted out")
	}
	if _, ok := signFlip(nil); ok {
		t.Error("no pairs have no p-value")
	}
}

// Where nothing differs, a p-value of at most 5 % comes in at most 5 of 100 benches.
func TestSignFlipKeepsItsPromise(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 5))
	const benches = 3000
	low := 0
	for range benches {
		d := make([]float64, 6)
		for i := range d {
			d[i] = draw.ExpFloat64() - draw.ExpFloat64() // not normal, but as likely this way as that
		}
		if p, _ := signFlip(d); p <= 0.05 {
			low++
		}
	}
	if share := float64(low) / benches; share > 0.05 || share < 0.02 { // exactly 2/64
		t.Errorf("%.1f %% of the benches have p ≤ 5 %%", 100*share)
	}
}
