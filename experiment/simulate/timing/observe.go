package timing

import (
	"math"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// The parts that an iteration's time is learned in.
const (
	partHost   = iota // from the decision to the launch
	partDevice        // until the device is done
	partTail          // until its output is taken up
	partGap           // until the engine decides again, where it has work
	numParts
)

var partNames = [numParts]string{"host", "device", "tail", "gap"}

// parts are times in nanoseconds, or factors; NaN = not known.
type parts [numParts]float64

// total is the time of the iteration itself.
func (p parts) total() float64 { return p[partHost] + p[partDevice] + p[partTail] }

// observation is one iteration of a ledger: what it computed and how long its parts took.
type observation struct {
	number uint64
	shape  Shape
	mode   ledger.GraphMode
	padded int
	took   parts
	first  first
}

// first is a set of features of [ledger.Work]: those that an iteration is the first of its engine to carry.
type first uint32

// firsts finds what each iteration is the first to carry. It is told of all, in order.
type firsts struct{ seen first }

func (f *firsts) of(s *Shape) first {
	if s.Tokens == 0 {
		return 0
	}
	carried := first(1 << ledger.WorkIterations)
	for i, amount := range s.Work {
		if amount > 0 {
			carried |= 1 << i
		}
	}
	fresh := carried &^ f.seen
	f.seen |= carried
	return fresh
}

// observe takes the iterations of e that are wholly known and for which use returns true.
func observe(e *ledger.Engine, use func(n uint64) bool) []observation {
	prefills := prefillsOf(e)
	continues := continuing(e)
	depth := uint64(max(e.Depth, 1))
	var seen []observation
	var fresh firsts
	for k := range e.Iterations {
		it := &e.Iterations[k]
		if !it.Complete() || it.Launched == 0 || it.Completed == 0 {
			continue
		}
		o := observation{number: it.Number, shape: shapeOf(e, it, prefills[k])}
		o.first = fresh.of(&o.shape)
		if e.Began > 1 { // what it carried before is not known
			o.first = 0
		}
		if !use(it.Number) {
			continue
		}
		o.took = partsOf(e, it)
		if continues[k] {
			o.took[partGap] = gapAfter(e, it, depth)
		}
		if x := it.Execution; x != nil {
			o.mode, o.padded = x.Graph, int(x.Padded)
		}
		seen = append(seen, o)
	}
	return seen
}

func shapeOf(e *ledger.Engine, it *ledger.Iteration, prefills int) Shape {
	s := Shape{Sequences: int(it.Members), Tokens: int(it.Tokens), Prefills: prefills}
	if it.Tokens > 0 {
		s.Work = account.WorkOf(e, it)
	}
	return s
}

// partsOf takes an iteration's time apart. The device works on one batch at a time, so with two decisions in flight it begins when
// the one before is done. Where a rank timed its device, what else passed until the output was there counts as tail.
func partsOf(e *ledger.Engine, it *ledger.Iteration) parts {
	begin := it.Launched
	if prev := e.Row(it.Number - 1); prev != nil && prev.Completed != 0 {
		begin = max(begin, prev.Completed)
	}
	device, tail := it.Completed-begin, it.End-it.Completed
	if x := it.Execution; x != nil && x.Device > 0 && x.Device <= device {
		device, tail = x.Device, tail+device-x.Device
	}
	return parts{float64(it.Launched - it.Decided), float64(max(device, 0)), float64(tail), math.NaN()}
}

// gapAfter is the time from an iteration's end to the next decision that had waited for it.
func gapAfter(e *ledger.Engine, it *ledger.Iteration, depth uint64) float64 {
	next, last := e.Row(it.Number+depth), e.Row(it.Number+depth-1)
	if next == nil || next.Decided == 0 || last.Launched > it.End || next.Decided < it.End {
		return math.NaN()
	}
	return float64(next.Decided - it.End)
}

// continuing says of each row whether a sequence goes on after it, so that the engine had no reason to wait.
func continuing(e *ledger.Engine) []bool {
	change := make([]int, len(e.Iterations)+1)
	each(e, func(q *ledger.Sequence, first, last int) {
		change[first]++
		change[last]--
	})
	on := make([]bool, len(e.Iterations))
	n := 0
	for k := range on {
		n += change[k]
		on[k] = n > 0
	}
	return on
}

// each calls f with the rows of each sequence's first and last iteration, as far as the engine has them.
func each(e *ledger.Engine, f func(q *ledger.Sequence, first, last int)) {
	for _, q := range e.Sequences {
		if q.Join == 0 || q.Leave < e.First || q.Join > e.Last() {
			continue
		}
		f(q, int(max(q.Join, e.First)-e.First), int(min(q.Leave, e.Last())-e.First))
	}
}

// prefillsOf counts the members of each row that compute tokens of their prompt, recompute included.
func prefillsOf(e *ledger.Engine) []int {
	counts := make([]int, len(e.Iterations))
	each(e, func(q *ledger.Sequence, _, _ int) {
		for i := range q.Stints {
			s := &q.Stints[i]
			if s.Phase == ledger.Decode || s.Last < e.First {
				continue
			}
			for n := max(s.First, e.First); n <= min(s.Last, e.Last()); n++ {
				counts[n-e.First]++
			}
		}
	})
	return counts
}
