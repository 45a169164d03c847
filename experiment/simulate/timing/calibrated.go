package timing

import (
	"math"
	"math/rand/v2"
	"time"
)

// Calibrated is a model drawn from a [Calibration]: what is expected of an iteration's work, times the residual of a real iteration of
// its kind.
//
// Residuals are drawn by the stationary bootstrap (Politis and Romano, 1994): they go on in the order in which they happened, and
// with probability 1/[meanBlock] jump to any other place of the run, which goes on at its beginning after its end. So each real
// residual comes back equally often, and slow spells stay together.
//
// Stalls stand outside of that. One that came with the first iteration to carry something (a first use compiles a kernel) comes with
// the first simulated one that does; each other one as rarely as it came: in one of all iterations.
type Calibrated struct {
	c     *Calibration
	rng   *rand.Rand
	x     []float64
	place []int // of each kind, in its residuals; −1 before the first
	fresh firsts
	came  []bool // of each stall: it came with a first use
}

// meanBlock is how many residuals of a kind follow each other on average. On a real run they resemble each other over some
// dozens of iterations (docs/timing.md).
const meanBlock = 128

// Model draws a model. Each engine needs one of its own.
func (c *Calibration) Model(seed uint64) *Calibrated {
	m := &Calibrated{c: c, rng: rand.New(rand.NewPCG(seed, 0x74696d65)), x: make([]float64, c.basis.len()), place: make([]int, len(c.kinds)), came: make([]bool, len(c.stalls))}
	for i := range m.place {
		m.place[i] = -1
	}
	return m
}

// Iteration implements [Model].
func (m *Calibrated) Iteration(_ time.Duration, s *Shape) Took {
	k := m.c.kindOf(s)
	residual := m.draw(k)
	took := m.c.times(m.x, s, func(p int) float64 { return float64(m.c.kinds[k].residuals[p][residual]) })
	for p, extra := range m.stalls(s) {
		took.add(p, extra)
	}
	return took
}

// draw goes on to the next residual of kind k.
func (m *Calibrated) draw(k int) int {
	n := m.c.kinds[k].len()
	if jump := m.rng.Float64() < 1.0/meanBlock; jump || m.place[k] < 0 {
		m.place[k] = m.rng.IntN(n)
	} else {
		m.place[k] = (m.place[k] + 1) % n
	}
	return m.place[k]
}

// stalls is what stalls add to this iteration.
func (m *Calibrated) stalls(s *Shape) (extra parts) {
	all := m.c.stalls
	if i := m.rng.IntN(m.c.Provenance.Rows); i < len(all) && all[i].first == 0 {
		extra = all[i].extra
	}
	if fresh := m.fresh.of(s); fresh != 0 {
		for i := range all {
			if all[i].first&fresh != 0 && !m.came[i] {
				m.came[i] = true
				for p := range extra {
					extra[p] += all[i].extra[p]
				}
			}
		}
	}
	return extra
}

// Expect is the time expected of a shape without its residual: it grows with the work.
func (c *Calibration) Expect(s *Shape) Took {
	return c.times(make([]float64, c.basis.len()), s, func(int) float64 { return 1 })
}

// Typical is the time of a shape at the median residual of its kind.
func (c *Calibration) Typical(s *Shape) Took {
	k := &c.kinds[c.kindOf(s)]
	return c.times(make([]float64, c.basis.len()), s, func(p int) float64 { return k.medians[p] })
}

// times are the expected times of a shape, each part times a factor; x is room for its amounts.
func (c *Calibration) times(x []float64, s *Shape, factor func(part int) float64) Took {
	c.basis.amounts(x, s)
	var t Took
	for p := range c.expected {
		t.add(p, c.expected[p].expect(x)*factor(p))
	}
	t.Mode, t.Padded = c.basis.launch(s)
	t.Memory = c.memory(x)
	return t
}

// memory is the share of the device's time that waits for memory. A ledger does not tell it; what is known of such models is that
// prefill computes and the rest reads weights and KV cache.
func (c *Calibration) memory(x []float64) float64 {
	var prefill, all float64
	for i, amount := range x {
		t := amount * c.expected[partDevice].per[i]
		all += t
		if ofPrefill(i) {
			prefill += t
		}
	}
	if all == 0 {
		return 0
	}
	return 1 - prefill/all
}

// longest keeps durations far from an overflow, whatever a file says.
const longest = float64(24 * time.Hour)

func (t *Took) add(part int, ns float64) {
	d := time.Duration(math.Round(min(ns, longest)))
	switch part {
	case partHost:
		t.Host += d
	case partDevice:
		t.Device += d
	case partTail:
		t.Tail += d
	case partGap:
		t.Gap += d
	}
}
