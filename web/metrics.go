package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the server's own figures of its HTTP side. Labels come from closed lists: the table of routes, known methods, statuses.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	open     prometheus.Gauge
	streams  prometheus.Gauge
	lost     prometheus.Counter
	panics   prometheus.Counter
	all      prometheus.Gatherer
	handler  http.Handler
}

func newMetrics(more prometheus.Gatherer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "whylate_http_requests_total", Help: "HTTP requests answered, by route, method and status."}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "whylate_http_request_duration_seconds", Help: "How long HTTP requests took, by route; event streams and imports last as long as they last.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"route"}),
		open:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "whylate_http_requests_in_flight", Help: "HTTP requests being answered now."}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "whylate_http_event_streams", Help: "Event streams open now."}),
		lost:    prometheus.NewCounter(prometheus.CounterOpts{Name: "whylate_http_events_lost_total", Help: "Events that watchers missed as they read too slowly."}),
		panics:  prometheus.NewCounter(prometheus.CounterOpts{Name: "whylate_http_panics_total", Help: "Panics caught while answering."}),
	}
	own := prometheus.NewRegistry()
	own.MustRegister(m.requests, m.seconds, m.open, m.streams, m.lost, m.panics, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	all := prometheus.Gatherers{own}
	if more != nil {
		all = append(all, more)
	}
	m.all = all
	m.handler = promhttp.HandlerFor(all, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError})
	return m
}

func (m *metrics) count(route, method string, status int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}
