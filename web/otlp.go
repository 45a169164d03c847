package web

import "net/http"

// otlp are the paths that OpenTelemetry's protocol has over HTTP: its senders know them, and no others.
var otlp = []string{"/v1/traces", "/v1/metrics", "/v1/logs"}

// otlp hands a request on that brings telemetry. How many come at once, and how large they are, is bounded there.
func (h *Handler) otlp(w http.ResponseWriter, r *http.Request, path string) {
	named(w, path)
	if r.Method != http.MethodPost {
		notAllowed(w, r, http.MethodPost)
		return
	}
	if err := h.authorise(w, r, Operator); err != nil {
		writeProblem(w, err)
		return
	}
	h.opts.OTLP.ServeHTTP(w, r)
}
