package objective

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/account"
)

// Bounds of buckets, in seconds, before the objectives are put among them. They lie close where people wait, and go on far enough that a long
// answer is not in the last one.
var (
	ttftBounds = []float64{.01, .025, .05, .1, .15, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300}
	tpotBounds = []float64{.001, .0025, .005, .0075, .01, .015, .02, .025, .03, .04, .05, .06, .075, .1, .15, .2, .3, .5, 1, 2}
	e2eBounds  = []float64{.05, .1, .25, .5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600}
)

// lengths are classes of prompts and answers by their tokens: an alert about long prompts does not drown in short ones.
var lengths = []struct {
	most uint32
	name string
}{{256, "to 256"}, {1024, "to 1k"}, {4096, "to 4k"}, {16384, "to 16k"}, {65536, "to 64k"}, {262144, "to 256k"}}

func length(tokens uint32) string {
	for _, l := range lengths {
		if tokens <= l.most {
			return l.name
		}
	}
	return "above 256k"
}

// most is how many deployments are told apart; the others are "other" together.
const most = 200

// Meter counts requests that are over. All methods may be called from several goroutines.
type Meter struct {
	objectives Objectives
	known      map[string]bool // deployments; only Count's caller touches it

	ttft, tpot, e2e *prometheus.HistogramVec
	parts           *prometheus.CounterVec
	judged, missed  *prometheus.CounterVec
	promised        *prometheus.GaugeVec
}

// NewMeter makes a meter whose buckets know the objectives.
func NewMeter(o Objectives) *Meter {
	histogram := func(name, help string, bounds []float64, objective time.Duration, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "whylate", Name: name, Help: help, Buckets: among(bounds, objective)}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "whylate", Name: name, Help: help}, labels)
	}
	m := &Meter{objectives: o, known: map[string]bool{},
		ttft:   histogram("request_ttft_seconds", "Arrival to first token of requests that are over, by tokens of the prompt.", ttftBounds, o.TTFT, "deployment", "prompt"),
		tpot:   histogram("request_tpot_seconds", "Mean gap between tokens of requests that are over, by tokens of the answer.", tpotBounds, o.TPOT, "deployment", "output"),
		e2e:    histogram("request_e2e_seconds", "First seen to last byte of requests that are over.", e2eBounds, o.E2E, "deployment"),
		parts:  counter("request_part_seconds_total", "Where the time of requests that are over went, by part of the account.", "deployment", "part"),
		judged: counter("requests_judged_total", "Requests that are over: good met every objective, late missed one, failed got no whole answer, left had a client that went away.", "deployment", "verdict"),
		missed: counter("objectives_missed_total", "Requests that missed an objective, by objective; one request may miss several.", "deployment", "objective"),
		promised: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "whylate", Name: "objective_seconds",
			Help: "What is promised of a request."}, []string{"objective"}),
	}
	for _, p := range o.promises() {
		if p.most > 0 {
			m.promised.WithLabelValues(p.name).Set(p.most.Seconds())
		}
	}
	return m
}

// among is bounds with an objective as one of them.
func among(bounds []float64, objective time.Duration) []float64 {
	bounds = slices.Clone(bounds)
	if s := objective.Seconds(); s > 0 && !slices.Contains(bounds, s) {
		bounds = append(bounds, s)
		slices.Sort(bounds)
	}
	return bounds
}

// Register makes the meter's figures part of a registry.
func (m *Meter) Register(r prometheus.Registerer) {
	r.MustRegister(m.ttft, m.tpot, m.e2e, m.parts, m.judged, m.missed, m.promised)
}

// Count counts a request that is over. prompt is its tokens. It is to be called by one goroutine at a time.
func (m *Meter) Count(deployment string, prompt uint32, a *account.Account) {
	deployment = m.deployment(deployment)
	v, missed := m.objectives.Judge(a)
	m.judged.WithLabelValues(deployment, string(v)).Inc()
	for _, name := range missed {
		m.missed.WithLabelValues(deployment, name).Inc()
	}
	if a.TTFT > 0 {
		m.ttft.WithLabelValues(deployment, length(prompt)).Observe(seconds(a.TTFT))
	}
	if a.TPOT > 0 {
		m.tpot.WithLabelValues(deployment, length(a.TailOutput)).Observe(seconds(a.TPOT))
	}
	if v == Good || v == Late {
		m.e2e.WithLabelValues(deployment).Observe(seconds(a.E2E()))
	}
	for _, l := range a.Lines {
		if l.NS > 0 {
			m.parts.WithLabelValues(deployment, string(l.Part)).Add(seconds(l.NS))
		}
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// begin counts nothing of a deployment yet: the first failure and the first miss are then growth, and a deployment without one has none.
func (m *Meter) begin(deployment string) {
	for _, v := range []Verdict{Good, Late, Failed, Left} {
		m.judged.WithLabelValues(deployment, string(v))
	}
	for _, p := range m.objectives.promises() {
		if p.most > 0 {
			m.missed.WithLabelValues(deployment, p.name)
		}
	}
}

func (m *Meter) deployment(name string) string {
	switch {
	case name == "":
		name = "unknown"
	case !m.known[name] && len(m.known) >= most:
		name = "other"
	}
	if m.known[name] {
		return name
	}
	m.known[name] = true
	m.begin(name)
	return name
}
