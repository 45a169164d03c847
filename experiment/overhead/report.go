package overhead

import (
	"fmt"
	"math"
)

// Report is what a bench found. Field names are stable: -o json prints it.
type Report struct {
	Sham         bool         `json:"sham"`
	Pairs        int          `json:"pairs"` // whole ones
	PairsPlanned int          `json:"pairs_planned"`
	Seed         uint64       `json:"seed"`
	Load         string       `json:"load"`
	Servers      string       `json:"servers"` // what was compared, in words
	Notes        []string     `json:"notes"`   // what is not in the numbers, or is in them
	Measures     []Comparison `json:"measures"`
	Runs         []Run        `json:"runs"`
}

// Run is one run's values by the name of their measure. What was not measured is absent.
type Run struct {
	Pair   int                `json:"pair"` // from 1
	Arm    Arm                `json:"arm"`
	Values map[string]float64 `json:"values"`
}

// Comparison is one measure over all pairs.
type Comparison struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Pairs int    `json:"pairs"` // that have it

	// Means over the runs of each arm. Off is absent where without whylate there is nothing to measure.
	Off *float64 `json:"off,omitempty"`
	On  *float64 `json:"on,omitempty"`

	Difference *Interval `json:"difference,omitempty"` // on − off, in the unit
	Percent    *Interval `json:"percent,omitempty"`    // the same, of its pair's off; absent where an off is 0 or there is none
	SignFlip   *float64  `json:"sign_flip_p,omitempty"`
	Resolves   *float64  `json:"resolves,omitempty"` // half the interval of Percent, or of Difference if that is absent

	Verdict Verdict `json:"verdict"`
	Words   string  `json:"words"`
}

// Verdict says what may be claimed.
type Verdict string

// Verdicts.
const (
	Costs   Verdict = "costs"   // worse with the probe: the interval is on one side, and so is what the signs say
	Saves   Verdict = "saves"   // better with it
	Perhaps Verdict = "perhaps" // the interval is on one side, but the signs of so few pairs prove nothing
	Unseen  Verdict = "unseen"  // no difference fits the interval
	Takes   Verdict = "takes"   // there is no off to compare with
	Absent  Verdict = "absent"  // not measured
)

func newRun(pair int, arm Arm, p *played) Run {
	r := Run{Pair: pair, Arm: arm, Values: map[string]float64{}}
	for _, m := range measures {
		if v, ok := m.of(p); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			r.Values[m.name] = v
		}
	}
	return r
}

// report compares whole pairs: runs 2i and 2i+1 are one.
func (b *Bench) report(runs []Run) *Report {
	r := &Report{Sham: b.Sham, Pairs: len(runs) / 2, PairsPlanned: b.Pairs, Seed: b.Seed, Load: b.Load.String(), Runs: runs}
	if d, ok := b.Servers.(fmt.Stringer); ok {
		r.Servers = d.String()
	}
	for _, m := range measures {
		r.Measures = append(r.Measures, compare(m, runs))
	}
	if n, ok := b.Servers.(interface{ Notes() []string }); ok {
		r.Notes = n.Notes()
	}
	return r
}

// compare takes one measure from all pairs that have it in the arms where it is.
func compare(m measure, runs []Run) Comparison {
	var off, on, diff, percent []float64
	for i := 0; i+1 < len(runs); i += 2 {
		a, b := runs[i], runs[i+1]
		if a.Arm == On {
			a, b = b, a
		}
		x, hasOff := a.Values[m.name]
		y, hasOn := b.Values[m.name]
		if hasOff {
			off = append(off, x)
		}
		if hasOn {
			on = append(on, y)
		}
		if hasOff && hasOn {
			diff = append(diff, y-x)
			if x > 0 {
				percent = append(percent, 100*(y-x)/x)
			}
		}
	}
	c := Comparison{Name: m.name, Title: m.title, Unit: m.unit, Off: mean(off), On: mean(on), Verdict: Absent, Words: "not measured"}
	switch {
	case len(diff) >= MinPairs:
		c.Pairs = len(diff)
		c.judge(m, diff, percent)
	case len(on) >= MinPairs && len(off) == 0:
		c.Pairs = len(on)
		i := IntervalOf(on)
		c.Verdict, c.Words = Takes, "takes "+between(i.Low, i.High, m.unit)
	}
	return c
}

// judge says what the differences allow to say, and no more.
func (c *Comparison) judge(m measure, diff, percent []float64) {
	d := IntervalOf(diff)
	c.Difference = &d
	i, unit := d, m.unit
	if len(percent) == len(diff) {
		p := IntervalOf(percent)
		c.Percent = &p
		i, unit, diff = p, "%", percent
	}
	half := i.Half()
	c.Resolves = &half
	p, counted := signFlip(diff)
	if counted {
		c.SignFlip = &p
	}
	verdict, low, high := Costs, i.Low, i.High
	if m.moreIsBetter == (i.Mean > 0) {
		verdict = Saves
	}
	if i.Mean < 0 {
		low, high = -i.High, -i.Low
	}
	switch {
	case i.HoldsZero():
		c.Verdict, c.Words = Unseen, fmt.Sprintf("no difference seen; beyond %s or %s %s would not fit", signed(i.Low), signed(i.High), unit)
	case counted && p > 1-confidence:
		c.Verdict, c.Words = Perhaps, fmt.Sprintf("perhaps %s %s, but signs by chance do this with p = %.2f: more pairs", verdict, between(low, high, unit), p)
	default:
		c.Verdict, c.Words = verdict, fmt.Sprintf("%s %s", verdict, between(low, high, unit))
	}
}

func mean(v []float64) *float64 {
	if len(v) == 0 {
		return nil
	}
	var sum float64
	for _, x := range v {
		sum += x
	}
	sum /= float64(len(v))
	return &sum
}

func between(low, high float64, unit string) string {
	if short(low) == short(high) {
		return fmt.Sprintf("%s %s", short(low), unit)
	}
	return fmt.Sprintf("between %s and %s %s", short(low), short(high), unit)
}
