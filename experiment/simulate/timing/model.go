package timing

import (
	"math"
	"time"

	"github.com/whylate/whylate/ledger"
)

// Shape is what one iteration computes, as far as its time depends on it.
type Shape struct {
	Work      ledger.Work // the features of DESIGN §8 of the whole batch: [ledger.IterationWork] summed over its members
	Sequences int         // members
	Tokens    int         // scheduled
	Prefills  int         // members that compute tokens of their prompt
}

// Took is how long one iteration takes on the host and on the device.
type Took struct {
	Host   time.Duration    // deciding and preparing: from the decision to the launch
	Device time.Duration    // at the device's nominal clock
	Memory float64          // share of Device that is bound by memory bandwidth, 0 … 1: a lower SM clock does not stretch it
	Tail   time.Duration    // from the device's end to the completion: sampling, taking up the output
	Gap    time.Duration    // from the completion to the next decision, where there is work: no part of the iteration itself
	Mode   ledger.GraphMode // how the batch was launched
	Padded int              // size of the batch with its padding; 0 = not padded
}

// Total is the iteration's time where nothing overlaps: the duration of DESIGN §8.
func (t Took) Total() time.Duration { return t.Host + t.Device + t.Tail }

// Model says how long iterations take. It may keep state (drift, garbage collection, where in a run its residuals are taken from), so
// it is one engine's own and is asked in order of time. Same seed, same calls, same answers.
type Model interface {
	// Iteration is asked once for each iteration, when it is decided, at the given time since the run began. It does not keep s.
	Iteration(at time.Duration, s *Shape) Took
}

// Unit is what a model's durations mean.
type Unit uint8

const (
	// Seconds are seconds: the model was measured, or is a world of its own.
	Seconds Unit = iota
	// Ratio is in multiples of a reference, [RatioReference], which is called one: the model was reckoned from a data sheet. Only
	// quotients of such times mean anything. Whoever prints them must divide, and must not print a unit of time.
	Ratio
)

// RatioReference is the length that a model in [Ratio] gives to its unit: one decode iteration of one sequence without context.
const RatioReference = time.Second

// UnitOf is the unit of a model's answers: what it says of itself by a method Unit, or [Seconds].
func UnitOf(m Model) Unit {
	if u, ok := m.(interface{ Unit() Unit }); ok {
		return u.Unit()
	}
	return Seconds
}

// String is the unit's name.
func (u Unit) String() string {
	if u == Ratio {
		return "× a decode iteration of one sequence"
	}
	return "s"
}

// Faster is m on a device that is so many times as fast: 2 halves the device's time. The host stays as it is.
func Faster(m Model, times float64) Model { return &faster{m, times} }

type faster struct {
	Model
	times float64
}

func (f *faster) Iteration(at time.Duration, s *Shape) Took {
	t := f.Model.Iteration(at, s)
	t.Device = time.Duration(math.Round(float64(t.Device) / f.times))
	return t
}

// Unit is that of the model.
func (f *faster) Unit() Unit { return UnitOf(f.Model) }
