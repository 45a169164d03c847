package web

import (
	"net/http"
	"time"

	"github.com/whylate/whylate/api"
)

// remoteWrite is where a Prometheus sends its samples, beside the API that it is asked by.
const remoteWrite = promql + "api/v1/write"

// takeSamples hands on what a Prometheus sends. Who sends changes what there is.
func (h *Handler) takeSamples(w http.ResponseWriter, r *http.Request) {
	named(w, remoteWrite)
	if r.Method != http.MethodPost {
		notAllowed(w, r, "POST")
		return
	}
	if err := h.authorise(w, r, Operator); err != nil {
		writeProblem(w, err)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(h.opts.Timeout)) // not every connection has deadlines
	h.opts.RemoteWrite.ServeHTTP(w, r)
}

// scraper is the service's reading of metrics pages.
func scraper(s api.Service) (api.Scraper, error) {
	if x, ok := s.(api.Scraper); ok {
		return x, nil
	}
	return nil, &api.Unsupported{What: "this server answers from what it read at its start and scrapes nothing", Remedy: "ask a server that does ('whylate serve')"}
}
