package export

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics gives the exporter's own figures. No label is of unbounded value.
func (e *Exporter) Metrics() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{e})
	return r
}

// collector reads all figures at one moment.
type collector struct{ e *Exporter }

func described(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("whylate_export_"+name, help, labels, nil)
}

var (
	offeredDesc   = described("offered_requests_total", "Requests that were over and might leave as spans.")
	keptDesc      = described("chosen_requests_total", "Requests that were chosen to leave, by reason; one may have several.", "reason")
	sentDesc      = described("sent_requests_total", "Requests that the receiver took.")
	sentSpansDesc = described("sent_spans_total", "Spans that the receiver took.")
	lostDesc      = described("unsent_requests_total", "Requests that were not sent, by reason.", "reason")
	lostSpansDesc = described("unsent_spans_total", "Spans that were made and not sent, by reason.", "reason")
	waitingDesc   = described("waiting_spans", "Spans in the queue.")
	failuresDesc  = described("failures_total", "Batches that the receiver did not take whole, and places that could not be kept.")
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.e.Stats()
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	counter(offeredDesc, s.Offered)
	counter(sentDesc, s.Sent)
	counter(sentSpansDesc, s.SentSpans)
	counter(failuresDesc, s.Failures)
	for _, why := range []string{Baseline, Failed, Late} {
		counter(keptDesc, s.Kept[why], why)
	}
	for _, why := range Reasons {
		counter(lostDesc, s.Lost[why], why)
		counter(lostSpansDesc, s.LostSpans[why], why)
	}
	to <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(s.Waiting))
}
