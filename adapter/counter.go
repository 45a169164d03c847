package adapter

import "github.com/whylate/whylate/signals"

// Span is a stretch of a counter between two resets.
type Span struct {
	First, Last Point
	From, To    int     // which of the reading's points they are, from 0
	By          float64 // what it counted between the two
	Before      float64 // what it had counted from its reset to First; 0 where that is not known
}

// patience is how many bad reads in a row are told from a reset.
const patience = 3

// Spans part a counter's points at its resets; bad are those that are none of its states. A fall is a reset only if the old level does not come
// back: a counter that reads 0 once and goes on where it was has not been reset. How fast it can come back without having been misread is known
// of a device (Signal.Fastest), and of an engine by its other steps.
func (r *Reading) Spans() (spans []Span, bad []int) {
	if len(r.Points) == 0 {
		return nil, nil
	}
	if r.Rate {
		return []Span{r.integrated()}, nil
	}
	s := Span{First: r.Points[0], Last: r.Points[0]}
	for i := 1; i < len(r.Points); {
		p := r.Points[i]
		switch back := r.back(s.To, i); {
		case r.follows(s.Last, p):
			s.By += p.Value - s.Last.Value
		case s.From == s.To && r.confirmed(i): // the first one was misread
			bad = append(bad, s.From)
			s = Span{First: p, From: i}
		case back > i: // what lies between is misread
			for ; i < back; i++ {
				bad = append(bad, i)
			}
			continue
		case p.Value < s.Last.Value:
			before := p.Value
			if !r.possible(Point{At: s.Last.At}, p) {
				before = 0
			}
			spans = append(spans, s)
			s = Span{First: p, From: i, Before: before}
		default: // it has been set forward, who knows from where
			spans = append(spans, s)
			s = Span{First: p, From: i}
		}
		s.Last, s.To = p, i
		i++
	}
	return append(spans, s), bad
}

// follows reports whether a counter can have gone from one state to another without a reset.
func (r *Reading) follows(from, to Point) bool {
	return to.Value >= from.Value && r.possible(from, to)
}

// confirmed reports whether a jump to a point is borne out by the next one.
func (r *Reading) confirmed(i int) bool {
	return r.Points[i].Value > r.Points[i-1].Value && (i+1 == len(r.Points) || r.follows(r.Points[i], r.Points[i+1]))
}

func (r *Reading) possible(from, to Point) bool {
	if r.Signal.Fastest == 0 || from.At == 0 || to.At <= from.At {
		return true
	}
	return to.Value-from.Value <= r.Signal.Fastest*float64(to.At-from.At)/1e9
}

// back is the point, not far after i, that goes on from the one at last as if what lies between were not there; i where there is none.
func (r *Reading) back(last, i int) int {
	rises := r.Points[i].Value >= r.Points[last].Value
	if rises && r.possible(r.Points[last], r.Points[i]) {
		return i
	}
	for k := i + 1; k < len(r.Points) && k <= i+patience; k++ {
		if r.follows(r.Points[last], r.Points[k]) && (r.Signal.Scope == signals.OfDevice || r.usual(last, k)) {
			return k
		}
	}
	return i
}

// nearby are as many steps of a counter on either side as tell what is usual of it, and leastUsual as many as they must be.
const nearby, leastUsual = 32, 3

// usual reports whether a counter that went from one point to another, far below which it was between, goes on as around them: after a restart it
// would have climbed back to where it was ten times faster than it ever rose.
func (r *Reading) usual(from, to int) bool {
	n, most := 0, 0.0
	for i := max(1, from-nearby); i < min(len(r.Points), to+nearby); i++ {
		if rise := r.Points[i].Value - r.Points[i-1].Value; (i <= from || i > to) && rise >= 0 {
			n, most = n+1, max(most, rise)
		}
	}
	low := r.Points[to].Value
	for _, p := range r.Points[from+1 : to] {
		low = min(low, p.Value)
	}
	return n >= leastUsual && r.Points[to].Value-low > 10*most*float64(to-from) && r.Points[to].Value-r.Points[from].Value <= 2*most*float64(to-from)
}

// integrated is the span of rates: what was counted is their area.
func (r *Reading) integrated() Span {
	s := Span{First: r.Points[0], Last: r.Points[0]}
	for i, p := range r.Points[1:] {
		if p.At > s.Last.At && s.Last.At != 0 {
			s.By += (p.Value + s.Last.Value) / 2 * float64(p.At-s.Last.At) / 1e9
		}
		s.Last, s.To = p, i+1
	}
	return s
}

// Grown is by how much a counter grew between the first sight and the last, and over which time (ns, 0 where it is not known). What is counted
// after a reset is all new. It is false with fewer than two values.
func (r *Reading) Grown() (by float64, over int64, ok bool) {
	spans, bad := r.Spans()
	if len(r.Points)-len(bad) < 2 {
		return 0, 0, false
	}
	for i, s := range spans {
		by += s.By
		if i > 0 {
			by += s.Before
		}
	}
	if first, last := spans[0].First, spans[len(spans)-1].Last; first.At != 0 && last.At > first.At {
		over = last.At - first.At
	}
	return by, over, true
}
