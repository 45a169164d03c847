package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Refused is what the guard did not let in as it was.
type Refused struct {
	Store   string // detail or rollup
	Metric  string // "" where its name itself was refused, or too many metrics had something refused
	Label   string // "" where it is not about one
	Why     string
	Count   uint64 // samples, those of a series being decided on each time they come
	Example string // what the value looks like: letters as a, digits as 9
}

type refusal struct{ metric, label, why string }

// refuse is called with mu held. The list is bounded: what no longer fits is counted by its reason alone.
func (g *guard) refuse(r refusal, value string) {
	e := g.refusals[r]
	if e == nil {
		if len(g.refusals) >= mostReasons {
			r = refusal{why: r.why}
			value = ""
			if len(g.refusals) >= 2*mostReasons {
				r.why = "other reasons"
			}
		}
		if e = g.refusals[r]; e == nil {
			e = &Refused{Store: g.store, Metric: r.metric, Label: r.label, Why: r.why, Example: shape(value)}
			g.refusals[r] = e
		}
	}
	e.Count++
}

// Refused lists what the guards did not let in as it was, the most frequent first.
func (db *DB) Refused() (out []Refused) {
	for _, p := range []*part{db.detail, db.rollup} {
		p.guard.mu.Lock()
		for _, r := range p.guard.refusals {
			out = append(out, *r)
		}
		p.guard.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Refused) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Why, b.Why))
	})
	return out
}

// Allow trusts labels that a target was given by whoever configured it: their values are kept, unless they are content.
func (db *DB) Allow(names ...string) { db.detail.guard.allow(names...) }

// register makes the figures of /metrics. Their labels come from closed lists.
func (db *DB) register() { db.registry.MustRegister((*figures)(db)) }

type figures DB

var (
	seriesNow    = prometheus.NewDesc("whylate_metrics_series", "Series in memory.", []string{"store"}, nil)
	seriesBudget = prometheus.NewDesc("whylate_metrics_series_budget", "Series that there may be in memory.", []string{"store"}, nil)
	foldedAll    = prometheus.NewDesc("whylate_metrics_folded_samples_total", "Samples that were folded into a series whose offending labels are 'other'.", []string{"store"}, nil)
	droppedAll   = prometheus.NewDesc("whylate_metrics_refused_samples_total", "Samples that were refused: no name, no room, too many labels.", []string{"store"}, nil)
	lostBytes    = prometheus.NewDesc("whylate_metrics_log_lost_bytes", "Bytes of the log that a repair at the start has cost.", []string{"store"}, nil)
)

func (f *figures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{seriesNow, seriesBudget, foldedAll, droppedAll, lostBytes} {
		out <- d
	}
}

func (f *figures) Collect(out chan<- prometheus.Metric) {
	for _, p := range []*part{f.detail, f.rollup} {
		g := p.guard
		g.mu.Lock()
		series, folded, dropped := g.series, g.foldedSamples, g.droppedSamples
		g.mu.Unlock()
		var lost int64
		if p.lost != nil {
			lost = p.lost.Bytes
		}
		out <- prometheus.MustNewConstMetric(seriesNow, prometheus.GaugeValue, float64(series), p.name)
		out <- prometheus.MustNewConstMetric(seriesBudget, prometheus.GaugeValue, float64(g.budget.Total), p.name)
		out <- prometheus.MustNewConstMetric(foldedAll, prometheus.CounterValue, float64(folded), p.name)
		out <- prometheus.MustNewConstMetric(droppedAll, prometheus.CounterValue, float64(dropped), p.name)
		out <- prometheus.MustNewConstMetric(lostBytes, prometheus.GaugeValue, float64(lost), p.name)
	}
}
