package timing

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/whylate/whylate/ledger"
)

// Synthetic is an engine made up of parts that are all known, so that what finds them can be held against them. It is richer than the
// model of DESIGN §8 on purpose: compute hides behind memory up to a knee, the time steps at graph sizes, collections pause the
// host, the device drifts. It shares no parameter with what diagnoses it.
//
// It is a world of its own: its times are seconds, of no machine that exists.
type Synthetic struct {
	Device     Preset  // what the device would do at its data sheet's speed
	Efficiency float64 // share of that speed that it reaches

	Graphs []int         // sizes that graphs were captured at, ascending; larger batches are launched without
	Eager  time.Duration // that a launch without a graph takes longer on the device, which waits for the host

	Decide, DecidePer time.Duration // host: an iteration, and each of its sequences
	Tail, TailPer     time.Duration // the same after the device: sampling, taking up the output
	Gap               time.Duration // between a completion and the next decision
	LogprobRow        time.Duration // in the tail: each row with log-probabilities
	GrammarRow        time.Duration // on the host: each row with a grammar

	DeviceJitter, HostJitter float64 // σ of the logarithm

	Collection Collection
	Drift      Drift
}

// Collection is CPython's collector of garbage: young objects often, all objects seldom. Its pauses come with allocations, not with
// time, and the long ones grow with what is alive.
type Collection struct {
	PerSequence float64       // objects that scheduling one sequence allocates and keeps for a while
	Threshold   float64       // objects that start a young collection; every tenth is a middle one, every hundredth a full one
	Young       time.Duration // pauses
	Middle      time.Duration
	PerObject   time.Duration // of a full collection
	Alive       float64       // objects alive at the start
	Growth      float64       // and more of them a second
}

// Drift is a slow change of the device's speed: a mean-reverting walk of its logarithm (Ornstein and Uhlenbeck).
type Drift struct {
	Sigma float64       // standard deviation in the long run
	Over  time.Duration // within which it forgets
}

// MadeUp is a synthetic engine of the magnitude of an H100 with an 8B model under vLLM. Where its figures come from, docs/timing.md says.
func MadeUp() Synthetic {
	return Synthetic{
		Device: Presets[0], Efficiency: 0.9,
		Graphs: CaptureSizes(512), Eager: 900 * time.Microsecond,
		Decide: 150 * time.Microsecond, DecidePer: 4 * time.Microsecond,
		Tail: 250 * time.Microsecond, TailPer: 6 * time.Microsecond, Gap: 60 * time.Microsecond,
		LogprobRow: 40 * time.Microsecond, GrammarRow: 60 * time.Microsecond,
		DeviceJitter: 0.008, HostJitter: 0.12,
		Collection: Collection{PerSequence: 6, Threshold: 2000, Young: 60 * time.Microsecond, Middle: 500 * time.Microsecond, PerObject: 1300 * time.Nanosecond, Alive: 15_000, Growth: 2},
		Drift:      Drift{Sigma: 0.01, Over: time.Minute},
	}
}

// CaptureSizes are the sizes that vLLM captures graphs at by default: 1, 2, 4, then every 8th up to 256, every 16th above.
func CaptureSizes(most int) []int {
	var sizes []int
	for _, n := range []int{1, 2, 4} {
		if n <= most {
			sizes = append(sizes, n)
		}
	}
	for n := 8; n <= most; n += 8 {
		if n <= 256 || n%16 == 0 {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// Validate names the first parameter that no engine can have.
func (y *Synthetic) Validate() error {
	if !(y.Efficiency > 0) || y.Efficiency > 1 {
		return fmt.Errorf("timing: efficiency: %g: it must be above 0, and at most 1", y.Efficiency)
	}
	if y.Device.Count < 1 || !(y.Device.Accelerator.Bandwidth > 0) || !(y.Device.Accelerator.Compute > 0) || !(y.Device.Transformer.Parameters > 0) {
		return errors.New("timing: device: accelerators, their bandwidth and compute, and the model's parameters must be above 0")
	}
	for i, n := range y.Graphs {
		if n < 1 || i > 0 && n <= y.Graphs[i-1] {
			return fmt.Errorf("timing: graphs: %d: sizes must be above 0 and ascend", n)
		}
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"eager", float64(y.Eager)}, {"decide", float64(y.Decide)}, {"decide per sequence", float64(y.DecidePer)}, {"tail", float64(y.Tail)},
		{"tail per sequence", float64(y.TailPer)}, {"gap", float64(y.Gap)}, {"logprob row", float64(y.LogprobRow)}, {"grammar row", float64(y.GrammarRow)},
		{"device jitter", y.DeviceJitter}, {"host jitter", y.HostJitter}, {"objects per sequence", y.Collection.PerSequence},
		{"collection threshold", y.Collection.Threshold}, {"young collection", float64(y.Collection.Young)}, {"middle collection", float64(y.Collection.Middle)},
		{"full collection per object", float64(y.Collection.PerObject)}, {"objects alive", y.Collection.Alive}, {"growth of objects", y.Collection.Growth},
		{"drift", y.Drift.Sigma}, {"drift's time", float64(y.Drift.Over)},
	} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			return fmt.Errorf("timing: %s: %g: it must be 0 or more", f.name, f.value)
		}
	}
	return nil
}

// Model makes a model of the engine, which must be valid.
func (y Synthetic) Model(seed uint64) Model {
	return &synthetic{y: y, rng: rand.New(rand.NewPCG(seed, 0x6d616465))}
}

type synthetic struct {
	y     Synthetic
	rng   *rand.Rand
	last  time.Duration
	drift float64 // logarithm of how much slower the device is

	allocated   float64 // since the last collection
	collections int
}

// Iteration implements [Model].
func (m *synthetic) Iteration(at time.Duration, s *Shape) Took {
	y := &m.y
	t := Took{Gap: m.host(y.Gap)}
	n := time.Duration(s.Sequences)
	t.Host = m.host(y.Decide+n*y.DecidePer+amount(s, ledger.WorkGrammarRows, y.GrammarRow)) + m.collect(at, s)
	t.Tail = m.host(y.Tail + n*y.TailPer + amount(s, ledger.WorkLogprobRows, y.LogprobRow))
	m.wander(at)
	slower := math.Exp(m.drift) * m.jitter(y.DeviceJitter)
	if s.Tokens == 0 {
		return t
	}
	rows := s.Tokens
	if t.Mode, t.Padded = y.launch(s); t.Padded > 0 {
		rows = t.Padded
	}
	memory, compute := y.Device.reckon(s, rows)
	t.Memory = memory / (memory + compute)
	t.Device = seconds((memory + compute) / y.Efficiency * slower)
	if t.Mode == ledger.GraphNone {
		t.Device += y.Eager
	}
	return t
}

// launch: batches without prefill replay a full graph, those with one only pieces; what exceeds the largest is not padded.
func (y *Synthetic) launch(s *Shape) (mode ledger.GraphMode, padded int) {
	i, _ := slices.BinarySearch(y.Graphs, s.Tokens)
	switch {
	case i == len(y.Graphs):
		return ledger.GraphNone, 0
	case s.Prefills > 0:
		return ledger.GraphPiecewise, y.Graphs[i]
	}
	return ledger.GraphFull, y.Graphs[i]
}

// amount is the time of so many rows of a feature.
func amount(s *Shape, feature int, each time.Duration) time.Duration {
	return time.Duration(s.Work[feature] * float64(each))
}

func (m *synthetic) host(d time.Duration) time.Duration {
	return time.Duration(float64(d) * m.jitter(m.y.HostJitter))
}

// jitter is a factor around a mean of one.
func (m *synthetic) jitter(sigma float64) float64 {
	return math.Exp(sigma*m.rng.NormFloat64() - sigma*sigma/2)
}

// wander moves the drift on to the given time.
func (m *synthetic) wander(at time.Duration) {
	d := &m.y.Drift
	if d.Over <= 0 {
		return
	}
	keep := math.Exp(-float64(max(at-m.last, 0)) / float64(d.Over))
	m.drift = m.drift*keep + d.Sigma*math.Sqrt(1-keep*keep)*m.rng.NormFloat64()
	m.last = at
}

// collect is the pause for collecting garbage that the allocations of this iteration bring about.
func (m *synthetic) collect(at time.Duration, s *Shape) time.Duration {
	g := &m.y.Collection
	m.allocated += g.PerSequence * float64(s.Sequences)
	if g.Threshold <= 0 || m.allocated < g.Threshold {
		return 0
	}
	m.allocated = 0
	m.collections++
	switch {
	case m.collections%100 == 0:
		return time.Duration(min((g.Alive+g.Growth*at.Seconds())*float64(g.PerObject), longest))
	case m.collections%10 == 0:
		return g.Middle
	}
	return g.Young
}
