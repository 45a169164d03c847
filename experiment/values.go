package experiment

import (
	"maps"
	"math"
	"math/bits"
	"slices"
)

// exactValues is how many values are kept as they are, 512 KiB, before they are only counted in buckets.
const exactValues = 1 << 16

// Values gathers numbers, such as lengths in tokens or durations in ns, for their quantiles, in memory that does not grow with
// them. Up to 65,536 numbers its quantiles are exact; beyond that each is within 0.4 % of the true one. The zero value holds
// nothing yet.
type Values struct {
	n      int64
	sum    float64
	max    int64
	exact  []int64
	sorted bool
	counts map[int32]int64 // by bucket, once there are too many; then exact is empty
}

// Add takes one number up.
func (v *Values) Add(x int64) {
	if v.n++; v.n == 1 || x > v.max {
		v.max = x
	}
	v.sum += float64(x)
	if v.counts != nil {
		v.counts[bucketOf(x)]++
		return
	}
	if v.exact, v.sorted = append(v.exact, x), false; len(v.exact) > exactValues {
		v.counts = make(map[int32]int64)
		for _, x := range v.exact {
			v.counts[bucketOf(x)]++
		}
		v.exact = nil
	}
}

// Count returns how many numbers there were.
func (v *Values) Count() int64 { return v.n }

// Mean returns their mean, 0 if there were none.
func (v *Values) Mean() float64 { return v.sum / max(float64(v.n), 1) }

// Max returns the greatest, exactly; 0 if there were none.
func (v *Values) Max() int64 { return v.max }

// Quantile returns the value below or at which the part q of all lies, by nearest rank: one of those that were added, not a
// guess between two. It returns 0 if there were none.
func (v *Values) Quantile(q float64) int64 {
	if v.n == 0 {
		return 0
	}
	rank := min(max(int64(math.Ceil(q*float64(v.n))), 1), v.n)
	if v.counts == nil {
		if !v.sorted {
			slices.Sort(v.exact)
			v.sorted = true
		}
		return v.exact[rank-1]
	}
	if rank == v.n {
		return v.max
	}
	for _, b := range slices.Sorted(maps.Keys(v.counts)) {
		if rank -= v.counts[b]; rank <= 0 {
			return min(middle(b), v.max)
		}
	}
	return v.max
}

// A bucket holds the numbers whose first eight binary digits are the same: up to 255 it is one number, above that it is not
// wider than a 128th of its least. A negative number has the negative bucket of its opposite.
func bucketOf(x int64) int32 {
	if x < 0 {
		return -bucketOf(-max(x, -math.MaxInt64))
	}
	shift := max(bits.Len64(uint64(x))-8, 0)
	return int32(shift)<<7 + int32(x>>shift)
}

// middle returns the number in the middle of a bucket.
func middle(b int32) int64 {
	if b < 0 {
		return -middle(-b)
	}
	shift := max(b>>7-1, 0)
	return int64(b-shift<<7)<<shift + (1<<shift)/2
}
