package account

import (
	"maps"
	"math"
	"slices"
)

// Band is what the model may be wrong by over n iterations that it says take modelled ns, of which prefill ns are prefill: the
// larger of a share of the time (a median error does not average out when it is a bias) and twice the spread of single
// iterations, which grows with the square root of their number.
func (m *Model) Band(modelled, prefill float64, n uint64) float64 {
	const toSigma = 1.4826 // median absolute deviation → standard deviation of a normal distribution
	share := m.Decode.Median*(modelled-prefill) + m.Prefill.Median*prefill
	return max(share, 2*toSigma*m.All.Spread*math.Sqrt(float64(n)))
}

func sortedKeys(m map[string]int64) []string { return slices.Sorted(maps.Keys(m)) }
