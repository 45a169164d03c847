package numeric

import (
	"math"
	"testing"
)

func TestNonNegative(t *testing.T) {
	// Without the bound the first would be −1: 2x + y = 0, x + 2y = 3 has (−1, 2). With it y = 3/2.
	a := [][]float64{{2, 1, 0}, {1, 2, 0}, {0, 0, 0}}
	c := NonNegative(a, []float64{0, 3, 5}, 1000, 1e-12)
	for i, want := range []float64{0, 1.5, 0} {
		if math.Abs(c[i]-want) > 1e-9 {
			t.Errorf("c[%d] = %v, want %v", i, c[i], want)
		}
	}
}

func TestQuantileInterpolates(t *testing.T) {
	xs := []float64{4, 1, 3, 2}
	for q, want := range map[float64]float64{0: 1, 0.5: 2.5, 1: 4} {
		if got := Quantile(xs, q); got != want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if xs[0] != 4 || Quantile(nil, 0.5) != 0 {
		t.Error("what was given was sorted, or none has a quantile")
	}
}
