package metrics

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

const (
	mostLabels  = 64  // of a series
	mostParts   = 256 // series of one histogram or summary
	mostSources = 1 << 16
	mostReasons = 1000
)

// Whatever is created in a store's memory and was not decided here is turned back: a reference that a sender kept may be of a series that is
// long gone.
var errUndecided = errors.New("the guard has not decided on this series")

// guard stands before one store. It decides on a series once, when it is to be created; samples of series that are there pass it by.
type guard struct {
	store  string
	budget Budget
	rollup bool

	deciding sync.Mutex // one new series at a time: between the decision and its creation no other may be counted

	mu       sync.Mutex
	trusted  map[string]trust // by label: those of the configuration and of targets
	metrics  map[string]*metric
	series   int // in the store's memory
	replay   bool
	expected uint64 // the hash of the series that may be created now
	sources  int    // of all pools, that are followed
	refusals map[refusal]*Refused

	foldedSamples, droppedSamples uint64
}

// metric is what the guard knows of a name, a histogram's without its suffix.
type metric struct {
	budget  int
	members map[uint64]int // series of each set of labels, le and quantile aside: a histogram has many; 0 = its place is taken, it comes with the commit
	pools   map[uint64]*pool
	signal  *signals.Signal
	counter bool             // its producer says so
	since   map[uint64]int64 // when a target first sent it: what turns up later has counted from zero
}

func newGuard(store string, b Budget, rollup bool) *guard {
	g := &guard{store: store, budget: b, rollup: rollup, trusted: map[string]trust{}, metrics: map[string]*metric{}, refusals: map[refusal]*Refused{}, replay: true}
	for _, name := range b.Labels {
		g.trusted[name] = ordinary
	}
	return g
}

// allow trusts labels that somebody who configures a target has given it.
func (g *guard) allow(names ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range names {
		if len(g.trusted) < mostReasons {
			g.trusted[n] = identity
		}
	}
}

func (g *guard) trust(label string) trust {
	if t := known[label]; t != unknown {
		return t
	}
	return g.trusted[label]
}

// replayed ends the time in which series come from the store's own log: they were decided on in an earlier life.
func (g *guard) replayed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replay = false
}

// PreCreation implements [tsdb.SeriesLifecycleCallback].
func (g *guard) PreCreation(ls labels.Labels) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.replay || g.expected == ls.Hash() && g.expected != 0 {
		return nil
	}
	return errUndecided
}

// PostCreation implements [tsdb.SeriesLifecycleCallback].
func (g *guard) PostCreation(ls labels.Labels) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.series++
	m, own := g.metric(nameOf(ls)), identityOf(ls)
	m.members[own]++
}

// PostDeletion implements [tsdb.SeriesLifecycleCallback].
func (g *guard) PostDeletion(gone map[chunks.HeadSeriesRef]labels.Labels) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ls := range gone {
		g.series--
		name, own := nameOf(ls), identityOf(ls)
		m := g.metric(name)
		if m.members[own]--; m.members[own] <= 0 {
			delete(m.members, own)
		}
		if p := m.pools[ls.Hash()]; p != nil {
			g.sources -= len(p.from)
			delete(m.pools, ls.Hash())
		}
		g.forget(name)
	}
}

// forget lets go of a metric that has no series and no pool.
func (g *guard) forget(name string) {
	if m := g.metrics[name]; m != nil && len(m.members) == 0 && len(m.pools) == 0 {
		delete(g.metrics, name)
	}
}

// nameOf is the metric's name, without what a histogram's parts have.
func nameOf(ls labels.Labels) string {
	name, _ := exposition.Split(ls.Get(labels.MetricName))
	return name
}

var partLabels = []string{labels.MetricName, labels.BucketLabel, "quantile"} // in order, as labels.Labels wants them

// identityOf is the same for all parts of a histogram.
func identityOf(ls labels.Labels) uint64 {
	h, _ := ls.HashWithoutLabels(make([]byte, 0, 1024), partLabels...)
	return h
}

func (g *guard) metric(name string) *metric {
	m := g.metrics[name]
	if m == nil {
		m = &metric{budget: g.budget.Each, members: map[uint64]int{}, pools: map[uint64]*pool{}, since: map[uint64]int64{}}
		if m.signal = SignalOf(name); m.signal == nil {
			m.signal = signals.Sent(name)
		}
		if m.signal != nil {
			m.budget = m.signal.Series
		}
		g.metrics[name] = m
	}
	return m
}

// decision is what becomes of a sample whose series is not there.
type decision struct {
	keep labels.Labels // to be created as it is, if it is not empty
	pool *pool         // else it is folded into this, if it is not nil; else it is refused
	late bool          // it turned up when its target had long been sending others
}

// decide is called with deciding held.
func (g *guard) decide(ls labels.Labels, t int64, counter bool) decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := ls.Get(labels.MetricName)
	switch {
	case !isName(name):
		g.refuse(refusal{"", "", "no name that a metric can have"}, name)
		g.droppedSamples++
		return decision{}
	case (SignalOf(name) != nil) != g.rollup:
		g.refuse(refusal{name, "", "a name of whylate's own signals"}, "")
		g.droppedSamples++
		return decision{}
	case ls.Len() > mostLabels:
		g.refuse(refusal{name, "", fmt.Sprintf("more than %d labels", mostLabels)}, "")
		g.droppedSamples++
		return decision{}
	}
	for _, label := range []string{labels.BucketLabel, "quantile"} {
		if v := ls.Get(label); v != "" && !isBound(v) {
			g.refuse(refusal{name, label, "not a number"}, v)
			g.droppedSamples++
			return decision{}
		}
	}
	base, _ := exposition.Split(name)
	if g.metrics[base] == nil && len(g.metrics) >= g.budget.Total {
		g.full(name)
		return decision{}
	}
	m := g.metric(base)
	m.counter = m.counter || counter
	late := m.late(ls, t)
	fit, why := g.fit(name, ls)
	own := identityOf(fit)
	parts, there := m.members[own]
	switch {
	case parts >= mostParts:
		g.refuse(refusal{name, labels.BucketLabel, fmt.Sprintf("more than %d parts", mostParts)}, "")
		g.droppedSamples++
		return decision{}
	case !there && len(m.members) >= m.budget-1: // one place is for what is folded
		g.refuse(refusal{name, "", fmt.Sprintf("over the budget of %d series", m.budget)}, "")
		fit, why = swallowed(ls), "over the metric's budget"
	}
	if why != "" {
		d := g.fold(m, fit)
		d.late = late
		return d
	}
	if g.series >= g.budget.Total {
		g.full(name)
		return decision{}
	}
	g.expected = ls.Hash()
	return decision{keep: ls}
}

// duplicate refuses a series that has a label twice.
func (g *guard) duplicate(name, label string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.droppedSamples++
	if !isName(name) || !isName(label) {
		name, label = "", ""
	}
	g.refuse(refusal{name, label, "a label that stands twice"}, "")
}

func (g *guard) full(name string) {
	g.droppedSamples++
	g.refuse(refusal{name, "", fmt.Sprintf("over the budget of %d series of all metrics", g.budget.Total)}, "")
}

// isBound reports whether a bound or a quantile is a number.
func isBound(v string) bool {
	f, err := strconv.ParseFloat(v, 64)
	return err == nil && !math.IsNaN(f) && len(v) <= 32
}

// fit puts other for what may not be kept, and says why; "" where all may.
func (g *guard) fit(name string, ls labels.Labels) (labels.Labels, string) {
	var why string
	b := labels.NewBuilder(ls)
	ls.Range(func(l labels.Label) {
		switch l.Name {
		case labels.MetricName, labels.BucketLabel, "quantile":
			return
		}
		switch reason := unfit(g.trust(l.Name), l.Value); {
		case l.Value == other:
			if why == "" {
				why = "sent as " + other
			}
		case reason != "":
			label := l.Name
			if !isName(label) {
				b.Del(label)
				label = ""
			} else {
				b.Set(label, other)
			}
			g.refuse(refusal{name, label, reason}, l.Value)
			why = reason
		}
	})
	if why == "" {
		return ls, ""
	}
	return b.Labels(), why
}

// swallowed is the series of all that is over a metric's budget.
func swallowed(ls labels.Labels) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, n := range partLabels {
		b.Set(n, ls.Get(n))
	}
	b.Set("overflow", other)
	return b.Labels()
}

// decided ends the time in which the series of the last decision may be created.
func (g *guard) decided(ls labels.Labels) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected = 0
	g.forget(nameOf(ls))
}

// room reports whether one more series may be created, and expects it if so.
func (g *guard) room(ls labels.Labels) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.series >= g.budget.Total {
		g.full(ls.Get(labels.MetricName))
		return false
	}
	g.expected = ls.Hash()
	return true
}
