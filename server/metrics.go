package server

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics gives the server's own figures for /metrics: what it took in, what waits, what went wrong, how large the log is. No
// label is of unbounded value.
func (s *Server) Metrics() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	gauge := func(name, help string, f func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "whylate", Name: name, Help: help}, f))
	}
	counter := func(name, help string, f func() float64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "whylate", Name: name, Help: help}, f))
	}
	counter("log_records_total", "Records written to the log since the start.", func() float64 { return float64(s.store.LogInfo().Appended) })
	counter("log_passed_records_total", "Records that were in the log already and were passed over.", func() float64 { return float64(s.store.LogInfo().Passed) })
	counter("log_failures_total", "Writes to the log that failed.", func() float64 { return float64(s.store.LogInfo().Failed) })
	gauge("log_bytes", "Size of the log on disk.", func() float64 { return float64(s.store.LogInfo().Bytes) })
	gauge("waiting_bytes", "Bytes on disk that wait to be taken up by the hot period.", func() float64 { return float64(s.bytes.Load()) })
	counter("batches_turned_away_total", "Batches that senders were told to send again later.", func() float64 { return float64(s.busy.Load()) })
	gauge("event_watchers", "Who watches the events now.", func() float64 { return float64(s.feed.Watchers()) })
	gauge("hot_iterations", "Iterations in memory.", func() float64 {
		defer s.hot.lock()()
		var n int
		for _, e := range s.hot.l.Book.Engines {
			n += len(e.Iterations)
		}
		return float64(n)
	})
	gauge("hot_requests", "Requests in memory.", func() float64 {
		defer s.hot.lock()()
		return float64(len(s.hot.l.Book.Requests))
	})
	s.spanMetrics(gauge, counter)
	counter("faults_total", "What went wrong inside the server; 'whylate doctor' says what.", func() float64 {
		var n uint64
		for _, f := range s.faults.list() {
			n += f.Count
		}
		return float64(n)
	})
	return r
}
