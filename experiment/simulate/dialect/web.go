package dialect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// web is what the front end's HTTP server counts of its requests: when each is over, however it ended.
type web struct {
	requests map[route]float64 // by status class
	times    map[string]*histogram
	all      *histogram
}

type route struct{ path, status string }

var (
	fineBounds   = []float64{.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}
	coarseBounds = []float64{.1, .5, 1}
)

func newWeb() *web {
	return &web{requests: map[route]float64{}, times: map[string]*histogram{}, all: newHistogram(fineBounds)}
}

func (w *web) count(x *exchange, status int, at int64) {
	w.requests[route{x.path, fmt.Sprintf("%dxx", status/100)}]++
	if w.times[x.path] == nil {
		w.times[x.path] = newHistogram(coarseBounds)
	}
	took := float64(at-x.received) / 1e9
	w.times[x.path].observe(took)
	w.all.observe(took)
}

func (w *web) write(p *page) {
	p.counter("http_requests", "Requests by method, status class and handler.", func(put func(float64, ...label)) {
		for _, r := range slices.SortedFunc(maps.Keys(w.requests), func(a, b route) int {
			return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.status, b.status))
		}) {
			put(w.requests[r], label{"handler", r.path}, label{"method", "POST"}, label{"status", r.status})
		}
	})
	p.histogram("http_request_duration_highr_seconds", "Time of a request, until its answer is over, in many buckets.", func(put func(*histogram, ...label)) { put(w.all) })
	p.histogram("http_request_duration_seconds", "Time of a request by handler, until its answer is over.", func(put func(*histogram, ...label)) {
		for _, path := range slices.Sorted(maps.Keys(w.times)) {
			put(w.times[path], label{"handler", path}, label{"method", "POST"})
		}
	})
}
