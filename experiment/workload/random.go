package workload

import (
	"math"
	"math/rand/v2"
	"time"
)

// What a generator is seeded for, so that its parts draw apart.
const (
	forArrivals = 0x61727269
	forLengths  = 0x6c656e67
	forScale    = 0x7363616c
	forThink    = 0x7468696e
	forSharing  = 0x73686172
	forTrace    = 0x74726163
)

// mixed makes one well-mixed number of two (the finaliser of splitmix64).
func mixed(a, b uint64) uint64 {
	x := a + b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// exponential draws a duration whose mean is given.
func exponential(random *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(-math.Log1p(-random.Float64()) * float64(mean))
}

// gamma draws from a gamma distribution of mean 1 and the given shape: Marsaglia and Tsang, "A simple method for generating
// gamma variables", 2000. Shape 1 is the exponential distribution.
func gamma(random *rand.Rand, shape float64) float64 {
	boost := 1.0
	k := shape
	if k < 1 {
		boost = math.Pow(1-random.Float64(), 1/k)
		k++
	}
	d := k - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := random.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if u := 1 - random.Float64(); math.Log(u) < x*x/2+d-d*v+d*math.Log(v) {
			return boost * d * v / shape
		}
	}
}
