package student

import (
	"math"
	"testing"
)

// From the tables that every textbook has.
func TestStudentsQuantiles(t *testing.T) {
	for freedom, want := range map[float64]float64{1: 12.706, 2: 4.303, 5: 2.571, 11: 2.201, 30: 2.042, 1e6: 1.960} {
		if got := Quantile(0.975, freedom); math.Abs(got-want) > 0.0006 {
			t.Errorf("t(0.975, %v) = %v, want %v", freedom, got, want)
		}
	}
}
