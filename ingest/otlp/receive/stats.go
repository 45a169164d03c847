package receive

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/adapter/genai"
)

// stats are counted since the start.
type stats struct {
	of       [signals][transports]traffic
	dropped  [genai.Classes]atomic.Int64 // attributes not kept
	oversize atomic.Int64

	evaluations, known, lines, understood, passed atomic.Int64 // of logs

	mu      sync.Mutex
	refused map[refusal]*Refusal
}

type traffic struct {
	requests, bytes    atomic.Int64
	accepted, rejected atomic.Int64 // spans, points, records
}

type refusal struct {
	signal    Signal
	transport Transport
	cause     string
}

func (s *stats) refuse(signal Signal, t Transport, f *failure, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := refusal{signal, t, f.cause}
	if s.refused == nil {
		s.refused = map[refusal]*Refusal{}
	}
	if s.refused[k] == nil {
		s.refused[k] = &Refusal{Signal: signal.String(), Transport: t.String(), Cause: f.cause}
	}
	r := s.refused[k]
	r.Count, r.Last, r.At = r.Count+1, f.text, now
}

// Refusal says how many requests were refused whole for one cause.
type Refusal struct {
	Signal    string
	Transport string
	Cause     string
	Count     int64
	Last      string // what the last sender was told
	At        time.Time
}

// Refusals lists the requests that were refused since the start, by cause.
func (r *Receiver) Refusals() (out []Refusal) {
	r.stats.mu.Lock()
	defer r.stats.mu.Unlock()
	for _, f := range r.stats.refused {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.Cause, b.Cause))
	})
	return out
}

var (
	requestsTotal = desc("otlp_requests_total", "OTLP requests that were decoded or tried.", "signal", "transport")
	bytesTotal    = desc("otlp_bytes_total", "Bytes of OTLP requests as they came.", "signal", "transport")
	acceptedTotal = desc("otlp_accepted_total", "Spans, data points and log records that were taken.", "signal", "transport")
	rejectedTotal = desc("otlp_rejected_total", "Spans, data points and log records that were refused one by one (partial success).", "signal", "transport")
	refusedTotal  = desc("otlp_refused_requests_total", "OTLP requests that were refused whole.", "signal", "transport", "cause")
	droppedTotal  = desc("otlp_dropped_attributes_total", "Attributes that were not kept, by class of key.", "class")
	logsTotal     = desc("otlp_logs_total", "What came of log records: evaluations, those of them that were known already, lines of consoles, lines of those that were understood, records that were let go.", "as")
	inFlightNow   = desc("otlp_in_flight_bytes", "Bytes of OTLP requests that are not answered yet.")
	deltaSeries   = desc("otlp_delta_series", "Series whose deltas are added up.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("whylate_"+name, help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (r *Receiver) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, out) }

// Collect implements [prometheus.Collector]: the receiver's own figures for /metrics.
func (r *Receiver) Collect(out chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for s := range signals {
		for t := range transports {
			c := &r.stats.of[s][t]
			count(requestsTotal, c.requests.Load(), s.String(), t.String())
			count(bytesTotal, c.bytes.Load(), s.String(), t.String())
			count(acceptedTotal, c.accepted.Load(), s.String(), t.String())
			count(rejectedTotal, c.rejected.Load(), s.String(), t.String())
		}
	}
	for _, f := range r.Refusals() {
		count(refusedTotal, f.Count, f.Signal, f.Transport, f.Cause)
	}
	for class := range genai.Classes {
		count(droppedTotal, r.stats.dropped[class].Load(), class.String())
	}
	for as, n := range map[string]*atomic.Int64{"evaluation": &r.stats.evaluations, "evaluation known already": &r.stats.known, "console line": &r.stats.lines, "console line understood": &r.stats.understood, "let go": &r.stats.passed} {
		count(logsTotal, n.Load(), as)
	}
	out <- prometheus.MustNewConstMetric(inFlightNow, prometheus.GaugeValue, float64(r.inFlight.Load()))
	r.sums.mu.Lock()
	n := len(r.sums.series)
	r.sums.mu.Unlock()
	out <- prometheus.MustNewConstMetric(deltaSeries, prometheus.GaugeValue, float64(n))
}
