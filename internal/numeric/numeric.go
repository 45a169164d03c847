// Package numeric has the little linear algebra and statistics that fits of iteration times need. It knows nothing of what is fitted.
package numeric

import (
	"math"
	"slices"
)

// NonNegative minimises ½cᵀAc − bᵀc over c ≥ 0 by coordinate descent, A symmetric and positive semidefinite: the least squares of normal
// equations. It stops after so many rounds, or when no coordinate moved by more than the share within. A coordinate whose diagonal is 0 stays 0.
func NonNegative(a [][]float64, b []float64, rounds int, within float64) []float64 {
	c := make([]float64, len(b))
	for range rounds {
		var moved float64
		for j := range c {
			if a[j][j] == 0 {
				continue
			}
			g := b[j]
			for k := range c {
				g -= a[j][k] * c[k]
			}
			next := max(0, c[j]+g/a[j][j])
			moved = max(moved, math.Abs(next-c[j])/(math.Abs(next)+1e-12))
			c[j] = next
		}
		if moved < within {
			break
		}
	}
	return c
}

// Quantile is the q-quantile of xs by linear interpolation between order statistics, 0 of none; xs is left as it was.
func Quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Clone(xs)
	slices.Sort(s)
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}
