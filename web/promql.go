package web

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// promql is where Prometheus's API is mounted: its routes alerts, rules and status would collide with ours.
const promql = "/prometheus/"

// promql hands a question in PromQL on, under the rules of every other question: who may ask, and how many at once; these are counted for
// themselves.
func (h *Handler) promql(w http.ResponseWriter, r *http.Request) {
	named(w, promql)
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		notAllowed(w, r, "GET, HEAD, POST")
		return
	}
	if err := h.authorise(w, r, Viewer); err != nil {
		writeProblem(w, err)
		return
	}
	leave, err := enter(h.promqls, "questions in PromQL are being answered")
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer leave()
	h.opts.PromQL.ServeHTTP(w, r)
}

// Gatherer gives what /metrics says.
func (h *Handler) Gatherer() prometheus.Gatherer { return h.metrics.all }
