package metrics

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/whylate/whylate/signals"
)

// pool is a series into which others are folded. What counts is added up by its increments, buckets of histograms among it. Of gauges there is the
// sum where the registry says that they add, the mean where it says that, and else the greatest: a number that one of them really had, and
// the one to look at.
type pool struct {
	labels labels.Labels
	counts bool
	add    signals.Add
	from   map[uint64]*source
	total  float64
	hist   *histogram.FloatHistogram // of native histograms; nil until there is one
	newest int64                     // time of the newest sample, ms
	told   int64                     // … of the newest that was appended
	strict bool                      // sources have been let go: one that is new may be an old one
	swept  time.Time                 // when sources were last looked for that may be let go
}

// source is a series that is folded.
type source struct {
	value float64
	hist  *histogram.FloatHistogram
	at    int64
}

const (
	settled   = 2 * 60 * 1000 // ms after which a target has sent all that it has
	forgotten = 5 * 60 * 1000 // ms after which a gauge that is no longer sent does not count

	sweepEvery = 10 * time.Second // at most, for each pool: all its sources are looked at, and everybody waits
)

// fold finds the pool of a sample. It is called with mu held.
func (g *guard) fold(m *metric, ls labels.Labels) decision {
	key := ls.Hash()
	p := m.pools[key]
	if p == nil {
		if len(m.pools) >= 4*max(m.budget, 1)+mostParts {
			g.refuse(refusal{ls.Get(model.MetricNameLabel), "", "too many series to fold"}, "")
			g.droppedSamples++
			return decision{}
		}
		p = &pool{labels: ls, counts: m.isCounter(ls.Get(model.MetricNameLabel)), from: map[uint64]*source{}}
		if m.signal != nil {
			p.add = m.signal.Add
		}
		m.pools[key] = p
	}
	m.members[identityOf(ls)] += 0
	g.foldedSamples++
	return decision{pool: p}
}

func (m *metric) isCounter(name string) bool {
	if m.signal != nil && m.signal.Kind != signals.Gauge {
		return m.signal.Kind != signals.Info
	}
	for _, suffix := range []string{"_total", "_bucket", "_count", "_sum"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return m.counter
}

// add takes a sample of a source into its pool.
func (g *guard) add(p *pool, ls labels.Labels, late bool, t int64, v float64, h *histogram.FloatHistogram) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := nameOf(p.labels)
	key := ls.Hash()
	s := p.from[key]
	if h == nil && value.IsStaleNaN(v) || h != nil && value.IsStaleNaN(h.Sum) {
		if s != nil && !p.counts {
			delete(p.from, key)
			g.sources--
		}
		return
	}
	isNew := s == nil
	if isNew {
		if s = g.follow(p, key, name); s == nil {
			return
		}
	} else if t <= s.at {
		return
	}
	p.newest = max(p.newest, t)
	switch late = late && isNew && !p.strict; {
	case h != nil:
		p.addHistogram(s, h, isNew && !late)
	case !p.counts:
	case late:
		p.total += v
	case isNew:
	case v >= s.value:
		p.total += v - s.value
	default: // a reset: all that it says is new
		p.total += v
	}
	s.value, s.at = v, t
}

// late reports whether a series turns up when its target has long been sending others of its metric: then all that it has counted is new.
func (g *guard) late(m *metric, ls labels.Labels, t int64) bool {
	key, _ := ls.HashForLabels(nil, "instance", "job")
	since, ok := m.since[key]
	if !ok {
		if g.targets < mostSources {
			m.since[key] = t
			g.targets++
		}
		return false
	}
	return t > since+settled
}

// follow makes a source, nil where too many are followed already: then what it counts is not known, and said to be so.
func (g *guard) follow(p *pool, key uint64, name string) *source {
	if now := g.now(); g.sources >= mostSources && now.Sub(p.swept) >= sweepEvery {
		p.swept = now
		g.letGo(p)
	}
	if g.sources >= mostSources {
		g.refuse(refusal{name, "", "too many series to fold"}, "")
		g.droppedSamples++
		return nil
	}
	s := &source{}
	p.from[key] = s
	g.sources++
	return s
}

// letGo forgets sources of a pool that have been silent for long.
func (g *guard) letGo(p *pool) {
	for key, s := range p.from {
		if s.at < p.newest-forgotten {
			delete(p.from, key)
			g.sources--
			p.strict = true
		}
	}
}

func (p *pool) addHistogram(s *source, h *histogram.FloatHistogram, baseline bool) {
	more := h.Copy()
	if !baseline && s.hist != nil && !h.DetectReset(s.hist) {
		if _, _, _, err := more.Sub(s.hist); err != nil {
			baseline = true
		}
	}
	s.hist = h.Copy()
	if p.hist == nil {
		p.hist = h.Copy()
		p.hist.Mul(0)
	}
	if !baseline {
		more.CounterResetHint = p.hist.CounterResetHint
		_, _, _, _ = p.hist.Add(more) // what cannot be added has other bounds: the count of what is folded tells of it
	}
	s.value = math.NaN()
}

// tell is the pool's newest value, false where it has been told.
func (g *guard) tell(p *pool) (t int64, v float64, h *histogram.FloatHistogram, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.newest <= p.told {
		return 0, 0, nil, false
	}
	p.told = p.newest
	if p.hist != nil {
		return p.newest, 0, p.hist.Copy().Compact(0), true
	}
	if p.counts {
		return p.newest, p.total, nil, true
	}
	v, ok = p.gauge(g)
	return p.newest, v, nil, ok
}

func (p *pool) gauge(g *guard) (v float64, ok bool) {
	n, greatest := 0, math.Inf(-1)
	for key, s := range p.from {
		switch {
		case s.at < p.newest-forgotten:
			delete(p.from, key)
			g.sources--
		case !math.IsNaN(s.value):
			n++
			v += s.value
			greatest = max(greatest, s.value)
		}
	}
	switch {
	case n == 0:
		return 0, false
	case p.add == signals.Sum:
		return v, true
	case p.add == signals.Mean:
		return v / float64(n), true
	}
	return greatest, true
}
