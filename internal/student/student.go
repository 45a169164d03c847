// Package student has Student's distribution, which says how far the mean of a few values may be off.
package student

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Quantile is the quantile p > ½ of Student's distribution with ν degrees of freedom: where ν/(ν+t²) is the quantile of the beta
// distribution that has twice the upper tail.
func Quantile(p, freedom float64) float64 {
	x := mathext.InvRegIncBeta(freedom/2, 0.5, 2*(1-p))
	return math.Sqrt(freedom * (1 - x) / x)
}
