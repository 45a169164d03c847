package exposition

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
)

// Hist is a classic histogram: counts by upper bound, cumulative.
type Hist struct {
	Labels Labels
	Bounds []float64 // ascending, without +Inf
	Counts []float64 // of the observations at most as large; as many as Bounds
	Count  float64   // of all
	Sum    float64   // NaN where it is not told
	At     int64     // Unix ms, if the page says so; else 0
}

// Assemble makes a histogram of its buckets in any order (+Inf may be among them), its sum and its count; NaN where one is not told. It says
// what is wrong with them.
func Assemble(ls Labels, bounds, counts []float64, sum, count float64) (h Hist, why string) {
	h = Hist{Labels: ls, Bounds: bounds, Counts: counts, Sum: sum, Count: count}
	why = h.settle()
	return h, why
}

// settle puts the buckets in order and the last one, +Inf, into Count. It says what is wrong with them.
func (h *Hist) settle() (why string) {
	order := make([]int, len(h.Bounds))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return h.Bounds[order[a]] < h.Bounds[order[b]] })
	bounds, counts := make([]float64, 0, len(order)), make([]float64, 0, len(order))
	most := 0.0
	for _, i := range order {
		if h.Counts[i] < most || math.IsNaN(h.Counts[i]) {
			why = fmt.Sprintf("the bucket %v counts fewer than a smaller one; it is taken as equal to it", h.Bounds[i])
			h.Counts[i] = most
		}
		most = h.Counts[i]
		switch {
		case math.IsInf(h.Bounds[i], 1):
			if math.IsNaN(h.Count) {
				h.Count = most
			}
		case len(bounds) > 0 && bounds[len(bounds)-1] == h.Bounds[i]:
			counts[len(counts)-1] = most
		default:
			bounds, counts = append(bounds, h.Bounds[i]), append(counts, most)
		}
	}
	if math.IsNaN(h.Count) {
		h.Count = most
		why = "neither a count nor a bucket +Inf: what is above the last bound is unknown"
	}
	h.Count = max(h.Count, most)
	h.Bounds, h.Counts = bounds, counts
	return why
}

// Mean is the sum divided by the count; NaN where that means nothing: no sum, no observation, or a sum that observations of a duration
// cannot have.
func (h *Hist) Mean() float64 {
	if h.Count <= 0 || h.Sum < 0 {
		return math.NaN()
	}
	return h.Sum / h.Count
}

// Least is the smallest sum that observations of no less than zero can have in these buckets. A smaller Sum proves a negative one.
func (h *Hist) Least() (sum float64) {
	below, floor := 0.0, 0.0
	for i, c := range h.Counts {
		sum += (c - below) * max(floor, 0)
		below, floor = c, h.Bounds[i]
	}
	return sum + (h.Count-below)*max(floor, 0)
}

// Since is what was observed after an earlier state of the same histogram. A count that has fallen is a restart: then all of it is new. Where
// the bounds differ, only those that both have remain.
func (h *Hist) Since(earlier *Hist) (d Hist, restarted bool) {
	if earlier == nil || h.Count < earlier.Count {
		return *h, earlier != nil
	}
	d = Hist{Labels: h.Labels, Count: h.Count - earlier.Count, Sum: h.Sum - earlier.Sum}
	for i, bound := range h.Bounds {
		if k, ok := slices.BinarySearch(earlier.Bounds, bound); ok {
			d.Bounds = append(d.Bounds, bound)
			d.Counts = append(d.Counts, max(h.Counts[i]-earlier.Counts[k], 0))
		}
	}
	return d, false
}

// Plus is both together. Where the bounds differ, only those that both have remain.
func (h *Hist) Plus(other *Hist) Hist {
	s := Hist{Count: h.Count + other.Count, Sum: h.Sum + other.Sum}
	for i, bound := range h.Bounds {
		if k, ok := slices.BinarySearch(other.Bounds, bound); ok {
			s.Bounds = append(s.Bounds, bound)
			s.Counts = append(s.Counts, h.Counts[i]+other.Counts[k])
		}
	}
	return s
}

// Between is an interval in which a quantile lies: above Low, at most High. What a histogram does not say, nobody interpolates.
type Between struct{ Low, High float64 }

// Floor reports that all that is known is the first bound, Cap that it lies above the last one.
func (b Between) Floor() bool { return math.IsInf(b.Low, -1) }

// Cap reports that it lies above the last bound.
func (b Between) Cap() bool { return math.IsInf(b.High, 1) }

// String gives the interval in the bounds' unit.
func (b Between) String() string {
	n := func(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
	switch {
	case b.Floor() && b.Cap():
		return "unknown"
	case b.Floor():
		return "≤ " + n(b.High)
	case b.Cap():
		return "> " + n(b.Low)
	}
	return n(b.Low) + " to " + n(b.High)
}

// Quantile is where the q-quantile lies (0 < q ≤ 1). Low is -Inf in the first bucket.
func (h *Hist) Quantile(q float64) Between {
	b := Between{math.Inf(-1), math.Inf(1)}
	if h.Count <= 0 {
		return b
	}
	rank := q * h.Count
	for i, n := range h.Counts {
		if n >= rank-1e-9 {
			b.High = h.Bounds[i]
			break
		}
		b.Low = h.Bounds[i]
	}
	return b
}

// Above is how many observations lie above the last bound.
func (h *Hist) Above() float64 {
	if len(h.Counts) == 0 {
		return h.Count
	}
	return h.Count - h.Counts[len(h.Counts)-1]
}

// AtMost is how many are at most as large as x: between two numbers where x is no bound.
func (h *Hist) AtMost(x float64) (low, high float64) {
	k := sort.SearchFloat64s(h.Bounds, x)
	if k > 0 {
		low = h.Counts[k-1]
	}
	switch {
	case k == len(h.Bounds):
		return low, h.Count
	case h.Bounds[k] == x:
		return h.Counts[k], h.Counts[k]
	}
	return low, h.Counts[k]
}

// AboveMean are bounds on the mean of those above the last bound, from the sum: nobody else can make up for it. NaN where nothing lies above.
func (h *Hist) AboveMean() (low, high float64) {
	n := h.Above()
	if n <= 0 || math.IsNaN(h.Sum) || len(h.Bounds) == 0 {
		return math.NaN(), math.NaN()
	}
	least, most, below, floor := 0.0, 0.0, 0.0, 0.0
	for i, c := range h.Counts {
		least += (c - below) * floor
		most += (c - below) * h.Bounds[i]
		below, floor = c, h.Bounds[i]
	}
	last := h.Bounds[len(h.Bounds)-1]
	return max((h.Sum-most)/n, last), max((h.Sum-least)/n, last)
}
