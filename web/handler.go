package web

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/api"
)

// Handler serves the HTTP API.
type Handler struct {
	svc     api.Service
	opts    Options
	mux     *http.ServeMux
	metrics *metrics
	asking  chan struct{} // a place for each question that is being answered
	promqls chan struct{} // … for each question in PromQL: dashboards must not crowd out whoever asks why
	streams chan struct{} // … for each event stream
	imports chan struct{} // … for each import
	caring  chan struct{} // … for each verification, compaction or export
	cross   *http.CrossOriginProtection

	stop     chan struct{} // closed when event streams are to end
	stopOnce sync.Once
}

// cares is how many verifications, compactions and exports go on at once: each reads everything that is kept.
const cares = 4

// New serves what svc answers.
func New(svc api.Service, opts Options) *Handler {
	opts = opts.withDefaults()
	h := &Handler{svc: svc, opts: opts, mux: http.NewServeMux(), metrics: newMetrics(opts.Gatherer), cross: http.NewCrossOriginProtection(), stop: make(chan struct{}),
		asking: make(chan struct{}, opts.Concurrent), promqls: make(chan struct{}, opts.Concurrent), streams: make(chan struct{}, opts.Streams), imports: make(chan struct{}, opts.Streams), caring: make(chan struct{}, cares)}
	byPath := map[string][]*route{}
	for i := range routes {
		r := &routes[i]
		byPath[base+r.path] = append(byPath[base+r.path], r)
	}
	for path, rs := range byPath {
		h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { h.dispatch(w, r, path, rs) })
	}
	h.handle(base+"/openapi.json", Viewer, h.openapi)
	h.handle("/healthz", Public, h.healthz)
	h.handle("/readyz", Public, h.readyz)
	h.handle("/metrics", Viewer, h.metrics.handler.ServeHTTP)
	if opts.PromQL != nil {
		h.mux.HandleFunc(promql, h.promql)
	}
	if opts.RemoteWrite != nil {
		h.mux.HandleFunc(remoteWrite, h.takeSamples)
	}
	if opts.OTLP != nil {
		for _, path := range otlp {
			h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { h.otlp(w, r, path) })
		}
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, &refusal{http.StatusNotFound, api.CodeNoRoute, "there is nothing at " + shown(r.URL.Path), "GET " + base + "/openapi.json lists what there is"})
	})
	return h
}

// Close ends all event streams: http.Server.Shutdown waits for them and would wait for ever.
func (h *Handler) Close() { h.stopOnce.Do(func() { close(h.stop) }) }

// ServeHTTP implements [http.Handler]. From the outside in: the log and the metrics see everything, a panic ends one request, and
// nobody gets at a route without the headers, the host and the origin being right.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w, route: "other"}
	began := time.Now()
	h.metrics.open.Inc()
	defer func() {
		cause := recover()
		if cause != nil {
			h.panicked(rec, r, cause)
		}
		h.metrics.open.Dec()
		h.log(rec, r, time.Since(began))
		if rec.broken {
			panic(http.ErrAbortHandler) // an answer that has begun can only be cut off
		}
	}()
	secure(rec, r)
	control := http.NewResponseController(rec)
	_ = control.SetWriteDeadline(time.Now().Add(h.opts.Timeout + h.opts.WriteTimeout)) // not every connection has deadlines
	if r.ContentLength != 0 {                                                          // net/http reads on after a refusal, and would wait for as long as the sender likes
		rec.unread = true
		_ = control.SetReadDeadline(time.Now().Add(h.opts.ReadTimeout))
	}
	if err := h.admit(r); err != nil {
		writeProblem(rec, err)
		return
	}
	h.mux.ServeHTTP(rec, r)
}

// secure sets the headers that every answer has: it is data, for nobody's frame, cache or guesswork.
func secure(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	if r.TLS != nil {
		head.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// handle serves what stands outside the table of routes.
func (h *Handler) handle(path string, role Role, serve http.HandlerFunc) {
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		named(w, path)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			notAllowed(w, r, "GET, HEAD")
			return
		}
		if err := h.authorise(w, r, role); err != nil {
			writeProblem(w, err)
			return
		}
		serve(w, r)
	})
}

// dispatch finds the route of a path by the method.
func (h *Handler) dispatch(w http.ResponseWriter, r *http.Request, path string, rs []*route) {
	named(w, path)
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	i := slices.IndexFunc(rs, func(rt *route) bool { return rt.method == method })
	if i < 0 {
		var methods []string
		for _, rt := range rs {
			methods = append(methods, rt.method)
		}
		notAllowed(w, r, strings.Join(methods, ", "))
		return
	}
	if err := h.run(w, r, rs[i]); err != nil {
		writeProblem(w, err)
	}
}

func notAllowed(w http.ResponseWriter, r *http.Request, methods string) {
	w.Header().Set("Allow", methods)
	writeProblem(w, &refusal{http.StatusMethodNotAllowed, api.CodeMethod, "not with " + shown(r.Method), "this path takes " + methods})
}

// run answers one route. An error that it returns was not written yet.
func (h *Handler) run(w http.ResponseWriter, r *http.Request, rt *route) error {
	if err := h.authorise(w, r, rt.role); err != nil {
		return err
	}
	if rt.method == http.MethodGet && r.ContentLength != 0 {
		return &refusal{http.StatusBadRequest, api.CodeInvalidArgument, "a GET request takes no body here", "put the arguments into the address"}
	}
	a := readArguments(r, rt.params)
	if a.err != nil {
		return a.err
	}
	if rt.serve != nil {
		return rt.serve(h, w, r, a)
	}
	leave, err := enter(h.asking, "questions are being answered")
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), h.opts.Timeout)
	defer cancel()
	v, err := rt.ask(ctx, h.svc, a)
	if err != nil {
		return err
	}
	return writeAnswer(w, v)
}

// writeAnswer answers with JSON. An error that it returns was not written yet.
func writeAnswer(w http.ResponseWriter, v any) error {
	var b bytes.Buffer
	if err := api.WriteJSON(&b, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(b.Bytes()) // whoever asked may be gone
	return nil
}

// enter takes a place, or says that all are taken.
func enter(places chan struct{}, what string) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, &api.Overloaded{What: countOf(cap(places), what), After: time.Second}
	}
}
