package receive

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/whylate/whylate/ingest/otlp"
)

// accumulator adds deltas up to what Prometheus wants: sums since a start. It knows a bounded number of series and forgets those that are silent
// for long; a series that comes again begins anew, which PromQL reads as a restart.
type accumulator struct {
	mu     sync.Mutex
	series map[string]*running
	most   int
	idle   time.Duration
	now    func() time.Time
}

// running is the sum of a series so far.
type running struct {
	point otlp.Point
	start int64 // ms: when adding up began
	seen  time.Time
}

// sums are those of one request: they count only when what it appended is stored, so that a request that is sent again is not counted twice.
type sums struct {
	a     *accumulator
	mine  map[string]*running
	begun bool // a is locked
	own   bool // what is added is counted here: it comes once, and may come twice in a millisecond
}

func (a *accumulator) begin() *sums { return &sums{a: a} }

// end keeps the request's sums, or forgets them.
func (s *sums) end(stored bool) {
	if !s.begun {
		return
	}
	if stored {
		maps.Copy(s.a.series, s.mine)
	}
	s.a.mu.Unlock()
	s.begun = false
}

// add adds a delta to its series and gives what it comes to, since when, and whether it is the first; or the reason why it cannot be added. One
// request at a time adds.
func (s *sums) add(key string, m *otlp.Metric, p *otlp.Point) (sum *otlp.Point, start int64, fresh bool, reason string) {
	if !s.begun {
		s.a.mu.Lock()
		s.begun, s.mine = true, map[string]*running{}
	}
	now := s.a.now()
	if m.Form == otlp.Sum && m.Monotonic && !(p.Value >= 0) {
		return nil, 0, false, negative
	}
	before := s.mine[key]
	if before == nil {
		before = s.a.series[key]
	}
	if before == nil {
		if !s.a.room(len(s.mine), now) {
			return nil, 0, false, crowded
		}
		first := &running{point: copied(p), start: int64(p.Start / 1e6), seen: now}
		s.mine[key] = first
		return &first.point, first.start, true, ""
	}
	at := p.Time
	if s.own {
		at = max(at, before.point.Time+uint64(time.Millisecond))
	} else if p.Time <= before.point.Time || p.Start > 0 && p.Start < before.point.Time && before.point.Time-p.Start > uint64(time.Millisecond) {
		return nil, 0, false, repeated
	}
	next := &running{point: copied(&before.point), start: before.start, seen: now}
	if !add(&next.point, p, m) {
		return nil, 0, false, otherForm
	}
	next.point.Time = at
	s.mine[key] = next
	return &next.point, next.start, false, ""
}

// room reports whether one more series can be added up; where there is none, silent ones go.
func (a *accumulator) room(also int, now time.Time) bool {
	if len(a.series)+also < a.most {
		return true
	}
	maps.DeleteFunc(a.series, func(_ string, r *running) bool { return now.Sub(r.seen) > a.idle })
	return len(a.series)+also < a.most
}

// copied is a point that owns what it holds, without its labels.
func copied(p *otlp.Point) otlp.Point {
	c := *p
	c.Labels = nil
	c.Bounds, c.Counts, c.Quantiles = slices.Clone(p.Bounds), slices.Clone(p.Counts), slices.Clone(p.Quantiles)
	c.Positive.Counts, c.Negative.Counts = slices.Clone(p.Positive.Counts), slices.Clone(p.Negative.Counts)
	return c
}

// add adds p to sum, if the metric is one that can be added and their buckets are the same.
func add(sum, p *otlp.Point, m *otlp.Metric) bool {
	if sum.Absent || p.Absent {
		return false
	}
	switch m.Form {
	case otlp.Sum:
		sum.Value += p.Value
		return true
	case otlp.Histogram:
		if !slices.Equal(sum.Bounds, p.Bounds) || len(sum.Counts) != len(p.Counts) {
			return false
		}
		for i := range p.Counts {
			sum.Counts[i] += p.Counts[i]
		}
	case otlp.Exponential:
		if !addExponential(sum, p) {
			return false
		}
	default:
		return false
	}
	sum.Count += p.Count
	sum.Total += p.Total
	sum.HasTotal = sum.HasTotal && p.HasTotal
	return true
}

// addExponential brings both to the coarser scale and the wider middle, and adds.
func addExponential(sum, p *otlp.Point) bool {
	scale := min(sum.Scale, p.Scale, mostScale)
	if max(sum.Scale, p.Scale)-scale > 31 || sum.ZeroThreshold != p.ZeroThreshold {
		return false
	}
	positive, ok := addBuckets(coarser(sum.Positive, sum.Scale-scale), coarser(p.Positive, p.Scale-scale))
	negative, also := addBuckets(coarser(sum.Negative, sum.Scale-scale), coarser(p.Negative, p.Scale-scale))
	if !ok || !also {
		return false
	}
	sum.Scale, sum.Positive, sum.Negative = scale, positive, negative
	sum.Zero += p.Zero
	return true
}

// coarser makes one bucket of 2^down.
func coarser(b otlp.Buckets, down int32) otlp.Buckets {
	if down <= 0 || len(b.Counts) == 0 {
		return b
	}
	out := otlp.Buckets{Offset: b.Offset >> down}
	for i, n := range b.Counts {
		at := int((int64(b.Offset)+int64(i))>>down - int64(out.Offset))
		for len(out.Counts) <= at {
			out.Counts = append(out.Counts, 0)
		}
		out.Counts[at] += n
	}
	return out
}

// spread is how many buckets one side of a sum may have.
const spread = 1 << 14

func addBuckets(a, b otlp.Buckets) (otlp.Buckets, bool) {
	switch {
	case len(b.Counts) == 0:
		return a, true
	case len(a.Counts) == 0:
		return otlp.Buckets{Offset: b.Offset, Counts: slices.Clone(b.Counts)}, true
	}
	from := min(int64(a.Offset), int64(b.Offset))
	until := max(int64(a.Offset)+int64(len(a.Counts)), int64(b.Offset)+int64(len(b.Counts)))
	if until-from > spread || until > math.MaxInt32 {
		return a, false
	}
	out := otlp.Buckets{Offset: int32(from), Counts: make([]uint64, until-from)}
	for i, n := range a.Counts {
		out.Counts[int64(a.Offset)+int64(i)-from] += n
	}
	for i, n := range b.Counts {
		out.Counts[int64(b.Offset)+int64(i)-from] += n
	}
	return out, true
}
