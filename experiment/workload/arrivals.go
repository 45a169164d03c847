package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals gives the times of requests, one after the other, without end.
type Arrivals func() time.Duration

// maxArrival is when arrivals end to be told apart, 73 years; every cut comes before it.
const maxArrival = time.Duration(1 << 61)

// arrivals adds up gaps, given in seconds.
func arrivals(gap func() float64) Arrivals {
	at := 0.0
	return func() time.Duration {
		at += gap()
		return time.Duration(min(at*1e9, float64(maxArrival)))
	}
}

func checkRate(rate float64) error {
	if !(rate > 0) || rate > 1e9 {
		return fmt.Errorf("rate %v: give requests a second, above 0, such as 5", rate)
	}
	return nil
}

// Steady sends at even distances, the first at once.
func Steady(rate float64) (Arrivals, error) {
	n := -1
	return func() time.Duration {
		n++
		return time.Duration(min(float64(n)/rate*1e9, float64(maxArrival)))
	}, checkRate(rate)
}

// Poisson is the arrivals of many users who know nothing of each other: rate a second on average.
func Poisson(rate float64, seed uint64) (Arrivals, error) {
	random := rand.New(rand.NewPCG(seed, forArrivals))
	return arrivals(func() float64 { return -math.Log1p(-random.Float64()) / rate }), checkRate(rate)
}

// Gamma is arrivals in bursts: gaps of a gamma distribution with the given coefficient of variation. 1 is Poisson, 3 is bursty,
// below 1 it is more even than chance.
func Gamma(rate, cv float64, seed uint64) (Arrivals, error) {
	if err := checkRate(rate); err != nil {
		return nil, err
	}
	if !(cv >= 0.01 && cv <= 100) {
		return nil, fmt.Errorf("coefficient of variation %v: give 0.01 to 100; 1 is Poisson, 3 is bursty", cv)
	}
	random := rand.New(rand.NewPCG(seed, forArrivals))
	return arrivals(func() float64 { return gamma(random, 1/(cv*cv)) / rate }), nil
}

// Diurnal is Poisson arrivals whose rate follows the day as a sine does: it begins at its least, rate·(1−swing), and is greatest,
// rate·(1+swing), half a period later (thinning of Lewis and Shedler, 1979).
func Diurnal(rate, swing float64, period time.Duration, seed uint64) (Arrivals, error) {
	if err := checkRate(rate); err != nil {
		return nil, err
	}
	if !(swing >= 0 && swing <= 1) {
		return nil, fmt.Errorf("swing %v: give 0 to 1; 0.8 lets the rate go from a fifth to nine fifths", swing)
	}
	if period < time.Second {
		return nil, fmt.Errorf("period %v: give a second or more, such as 24h", period)
	}
	random := rand.New(rand.NewPCG(seed, forArrivals))
	at := 0.0
	return arrivals(func() float64 {
		for begun := at; ; {
			at += -math.Log1p(-random.Float64()) / (rate * (1 + swing))
			now := 1 - swing*math.Cos(2*math.Pi*at/period.Seconds())
			if random.Float64()*(1+swing) < now {
				return at - begun
			}
		}
	}), nil
}

// AtOnce sends everything at the start, as a batch job does.
func AtOnce() Arrivals { return func() time.Duration { return 0 } }
