package genai

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Two hosts' clocks are compared by causality: no server begins before its client asked, and none answers after its client had the answer. Each
// such pair bounds the shift between the clocks; all of a stretch of time together bound it closely.

// Clock is a clock that spans were stamped by.
type Clock struct{ Of, Name string }

func (c Clock) String() string { return c.Of + " " + c.Name }

// ClockNamed is the clock of which s is the String.
func ClockNamed(s string) Clock {
	of, name, _ := strings.Cut(s, " ")
	return Clock{of, name}
}

func (c Clock) compare(d Clock) int {
	return cmp.Or(cmp.Compare(c.Of, d.Of), cmp.Compare(c.Name, d.Name))
}

// clockOf is the clock of a resource: its host's, else the service's, as far as anybody can tell.
func clockOf(r *Resource) Clock {
	switch {
	case r.Host != "":
		return Clock{"host", r.Host}
	case r.Pod != "":
		return Clock{"pod", r.Pod}
	}
	return Clock{"service", cmp.Or(r.Service, "without a name")}
}

// bound is what one pair says, or several that agree: what must be added to times of the inner clock lies between low and high.
type bound struct {
	at        int64
	low, high int64
	pairs     int
}

// Shift is the difference of two clocks over a stretch of time.
type Shift struct {
	Outer, Inner Clock
	From         int64 // Unix ns on the outer clock; the stretch ends where the next begins
	Low, High    int64 // ns to add to times of the inner clock
	Pairs        int   // client and server pairs that bound it
}

// Proven reports that the clocks differ: no shift of zero fits. Only then are times corrected.
func (s Shift) Proven() bool { return s.Low > 0 || s.High < 0 }

// Middle is the shift that times are corrected by, right to ± Half.
func (s Shift) Middle() int64 {
	if !s.Proven() {
		return 0
	}
	return s.Low + s.Half()
}

// Half is half the width of the interval.
func (s Shift) Half() int64 { return (s.High - s.Low) / 2 }

func (s Shift) String() string {
	side, shift := "behind", s.Middle()
	if shift < 0 {
		side, shift = "ahead of", -shift
	}
	return fmt.Sprintf("clock of %s is %s ± %s %s that of %s (%s bound it to %s); its times are shown corrected, the original ones are kept",
		s.Inner, millis(shift), millis(s.Half()), side, s.Outer, counted(s.Pairs, "client and server pair"), interval(s.Low, s.High, shift != s.Middle()))
}

func interval(low, high int64, negative bool) string {
	if negative {
		low, high = -high, -low
	}
	return fmt.Sprintf("%s to %s", millis(low), millis(high))
}

type clockPair struct{ outer, inner Clock }

// Clocks is what pairs of spans have told of the hosts' clocks so far. It is carried from one set of spans to the next, so that later calls
// are bounded by earlier ones too. The zero value knows nothing.
type Clocks struct {
	bounds map[clockPair][]bound
	flips  map[clockPair]int // how many more pairs had the two the other way round
	shifts map[clockPair][]Shift
	clash  []string
}

// Clone is a copy that can learn more without c knowing.
func (c *Clocks) Clone() *Clocks {
	out := &Clocks{bounds: maps.Clone(c.bounds), flips: maps.Clone(c.flips), shifts: maps.Clone(c.shifts)}
	for p, list := range out.bounds {
		out.bounds[p] = slices.Clone(list)
	}
	return out
}

// Limits of what is carried: hosts come and go under names of their own.
const (
	maxStretches  = 64
	maxClockPairs = 10_000
)

func pairOf(outer, inner Clock) (p clockPair, flipped bool) {
	if outer.compare(inner) > 0 {
		return clockPair{inner, outer}, true
	}
	return clockPair{outer, inner}, false
}

// see takes a pair of nested spans of two clocks. answered: the outer one waited for the inner one's end.
func (c *Clocks) see(outer, inner *Span, answered bool) {
	if c.bounds == nil || c.flips == nil {
		c.bounds, c.flips = map[clockPair][]bound{}, map[clockPair]int{}
	}
	p, flipped := pairOf(clockOf(outer.Resource), clockOf(inner.Resource))
	b := bound{at: outer.Start, low: outer.Start - inner.Start, high: math.MaxInt64, pairs: 1}
	if answered {
		b.high = outer.End - inner.End
	}
	c.flips[p]--
	if flipped {
		b.low, b.high = -b.high, -b.low
		c.flips[p] += 2
	}
	c.bounds[p] = append(c.bounds[p], b)
}

// settle intersects the bounds. Where one does not fit the stretch before it, a clock was set and a new stretch begins; where that happens all
// the time, the spans do not bound anything and nothing is corrected. What is left of the bounds is one for each stretch.
func (c *Clocks) settle() {
	c.shifts, c.clash = map[clockPair][]Shift{}, nil
	for p, list := range c.bounds {
		slices.SortFunc(list, func(a, b bound) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.low, b.low), cmp.Compare(a.high, b.high))
		})
		pairs := 0
		stretches := list[:0]
		for _, b := range list {
			pairs += b.pairs
			if n := len(stretches); n > 0 && max(stretches[n-1].low, b.low) <= min(stretches[n-1].high, b.high) {
				s := &stretches[n-1]
				s.low, s.high, s.pairs = max(s.low, b.low), min(s.high, b.high), s.pairs+b.pairs
				continue
			}
			stretches = append(stretches, b)
		}
		if len(stretches) > 1+pairs/8 {
			c.clash = append(c.clash, fmt.Sprintf("clocks of %s and %s: %s contradict each other, so no shift is estimated (several hosts behind one name, or spans that do not wait for what they enclose)",
				p.outer, p.inner, counted(pairs, "client and server pair")))
		} else {
			shifts := make([]Shift, len(stretches))
			for i, b := range stretches {
				shifts[i] = Shift{Outer: p.outer, Inner: p.inner, From: b.at, Low: b.low, High: b.high, Pairs: b.pairs}
			}
			c.shifts[p] = shifts
		}
		c.bounds[p] = slices.Clone(stretches[max(0, len(stretches)-maxStretches):])
	}
	if len(c.bounds) > maxClockPairs { // these spans were judged by all of them, the next begin anew
		c.bounds, c.flips = nil, nil
	}
	slices.Sort(c.clash)
}

// between is the shift between two clocks at a time of the outer one; ok is false where nothing bounds it on both sides.
func (c *Clocks) between(outer, inner Clock, at int64) (s Shift, ok bool) {
	p, flipped := pairOf(outer, inner)
	shifts := c.shifts[p]
	k, _ := slices.BinarySearchFunc(shifts, at, func(s Shift, at int64) int {
		if s.From <= at {
			return -1
		}
		return 1
	})
	if len(shifts) == 0 {
		return s, false
	}
	s = shifts[max(k-1, 0)]
	if flipped {
		s = s.flip()
	}
	return s, s.High != math.MaxInt64 && s.Low != -math.MaxInt64
}

// flip is the same as seen from the other clock.
func (s Shift) flip() Shift {
	s.Outer, s.Inner, s.Low, s.High = s.Inner, s.Outer, -s.High, -s.Low
	return s
}

// proven lists the shifts between clocks that are known to differ; the reference is the clock that more often asked.
func (c *Clocks) proven() (out []Shift) {
	for p, list := range c.shifts {
		for _, s := range list {
			if s.Proven() && s.High != math.MaxInt64 && s.Low != -math.MaxInt64 {
				if c.flips[p] > 0 {
					s = s.flip()
				}
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b Shift) int {
		return cmp.Or(a.Outer.compare(b.Outer), a.Inner.compare(b.Inner), cmp.Compare(a.From, b.From))
	})
	return out
}
