package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter"
)

// troubles are what goes wrong between a gateway and engines, each counted by itself: a request may be in several.
var troubles = []struct{ signal, one, more string }{
	{"gateway.timeouts", "call given up", "calls given up"},
	{"gateway.retries", "call repeated", "calls repeated"},
	{"gateway.overflow", "request turned away at a limit", "requests turned away at a limit"},
	{"gateway.connect_failures", "connection failed", "connections failed"},
	{"gateway.upstream_failures", "failure of an engine", "failures of engines"},
	{"gateway.left", "client left", "clients left"},
}

// atGateways is what gateways say of the way to engines.
func atGateways(s *Scene) (ms []measure) {
	ms = append(ms, tails(s, "gateway.queue_time", "gateway queue")...)
	for _, m := range gauges(s, "gateway.pending", func(v float64, _ adapter.Who) string { return count(v) + " waiting for a connection" }) {
		if m.worse > 0 {
			ms = append(ms, m)
		}
	}
	for _, t := range troubles {
		for _, w := range s.Engines() {
			if n := s.recent(t.signal, w); n == 1 {
				ms = append(ms, measure{t.signal, n, w, "1 " + t.one})
			} else if n > 0 {
				ms = append(ms, measure{t.signal, n, w, count(n) + " " + t.more})
			}
		}
	}
	return ms
}

// meanQueues are mean waits of engines that only count how long all requests waited together.
func meanQueues(s *Scene) (ms []measure) {
	for _, w := range s.Engines() {
		sum, n := s.recent("request.queue_seconds", w), s.recent("request.finished", w)
		if len(s.about("request.queue_seconds", w)) > 0 && n > 0 {
			ms = append(ms, measure{"mean queue", sum / n, w, fmt.Sprintf("queue mean %s", seconds(sum/n))})
		}
	}
	return ms
}
