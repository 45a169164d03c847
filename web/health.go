package web

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const textType = "text/plain; charset=utf-8"

// healthz says that the process is up and answers.
func (h *Handler) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", textType)
	fmt.Fprintln(w, "ok")
}

// readyz says whether the server can do its work, and if not why.
func (h *Handler) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), min(h.opts.Timeout, 5*time.Second))
	defer cancel()
	w.Header().Set("Content-Type", textType)
	if err := h.opts.Ready(ctx); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "not ready:", shown(err.Error()))
		return
	}
	fmt.Fprintln(w, "ready")
}
