package web

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/whylate/whylate/api"
)

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	route  string // the pattern, never the path: it becomes a label
	role   Role
	status int
	bytes  int64
	unread bool // a body comes with the request
	broken bool // a panic came after the answer had begun
}

// Unwrap lets [http.ResponseController] find the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// named tells the recorder which route it is.
func named(w http.ResponseWriter, path string) {
	if rec, ok := w.(*recorder); ok {
		rec.route = path
	}
}

// panicked logs a panic and answers 500, if the answer has not begun. The server goes on.
func (h *Handler) panicked(w *recorder, r *http.Request, cause any) {
	if cause == http.ErrAbortHandler {
		w.broken = true
		return
	}
	reference := rand.Text()[:10]
	h.metrics.panics.Inc()
	h.opts.Log.Error("panic", "reference", reference, "route", w.route, "path", shown(r.URL.Path), "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if w.status != 0 {
		w.broken = true
		return
	}
	write(w, http.StatusInternalServerError, api.Problem{Code: api.CodeInternal, Reference: reference,
		Message: "whylate made a mistake while it answered; its log says more under the reference " + reference,
		Hint:    "please report it with the log's lines"})
}

// log writes the line of one request and counts it. Arguments are not logged: paths and routes are enough to find a request again.
func (h *Handler) log(w *recorder, r *http.Request, took time.Duration) {
	status := w.status
	if status == 0 {
		status = http.StatusOK // nothing was written: net/http answers so
	}
	h.metrics.count(w.route, r.Method, status, took)
	level := slog.LevelInfo
	switch {
	case w.route == "/healthz" || w.route == "/readyz" || w.route == "/metrics":
		level = slog.LevelDebug
	case status >= 500 && status != http.StatusNotImplemented:
		level = slog.LevelWarn
	}
	h.opts.Log.Log(r.Context(), level, "http", "method", shown(r.Method), "path", shown(r.URL.Path), "route", w.route, "status", strconv.Itoa(status),
		"bytes", w.bytes, "took", took, "role", w.role.String(), "remote", r.RemoteAddr, "agent", shown(r.UserAgent()))
}
