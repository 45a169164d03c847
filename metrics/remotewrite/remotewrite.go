// Package remotewrite takes in what a Prometheus, or whoever speaks its remote write 1.0, sends.
package remotewrite

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/exposition"
)

// ahead is how far in the future a sample may lie, as at Prometheus: clocks differ.
const ahead = 10 * time.Minute

// atOnce is how many requests are taken in at once. Further ones are told to come again.
const atOnce = 8

// mostFamilies bounds what is remembered of metrics' types and texts.
const mostFamilies = 20_000

// Handler takes requests in. Samples that cannot be kept are refused one by one, counted by their reason, and answered with 400, which the
// specification says is not to be sent again; the rest of the request is kept.
type Handler struct {
	to     storage.AppendableV2
	now    func() time.Time
	places chan struct{}

	mu       sync.Mutex
	families map[string]metadata.Metadata
	refused  map[string]*api.Fault // by reason
}

// New makes a handler that writes to a storage. now may be nil: the time of the day.
func New(to storage.AppendableV2, now func() time.Time) *Handler {
	if now == nil {
		now = time.Now
	}
	return &Handler{to: to, now: now, places: make(chan struct{}, atOnce), families: map[string]metadata.Metadata{}, refused: map[string]*api.Fault{}}
}

// ServeHTTP implements [http.Handler]. Who may send is for the caller to decide.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "remote write is POST", http.StatusMethodNotAllowed)
		return
	}
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at once; send this one again", http.StatusServiceUnavailable)
		return
	}
	err := h.take(r)
	var whole *refusal
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &whole):
		h.count("a request", whole.text, 1)
		http.Error(w, whole.text, whole.code)
	default:
		var some *partial
		if errors.As(err, &some) {
			for why, n := range some.reasons {
				h.count("samples "+why, "of "+some.examples[why].metric, n) // other labels may be anything
			}
			http.Error(w, some.Error(), http.StatusBadRequest)
			return
		}
		h.count("a request: the store did not take it", err.Error(), 1)
		http.Error(w, "nothing of it is kept: "+err.Error()+"; send it again", http.StatusServiceUnavailable)
	}
}

// take takes a request in. Its errors are a *refusal, a *partial, or the store's own.
func (h *Handler) take(r *http.Request) error {
	if err := spoken(r.Header); err != nil {
		return err
	}
	b, err := unpack(r.Body)
	if err != nil {
		return err
	}
	t := taking{h: h, app: h.to.AppenderV2(r.Context()), latest: h.now().Add(ahead).UnixMilli(), partial: partial{reasons: map[string]uint64{}, examples: map[string]example{}}}
	if err := parts(b, t.series, h.describe); err != nil {
		_ = t.app.Rollback()
		if t.broken {
			return err
		}
		return &refusal{http.StatusBadRequest, "nothing of the request is kept: " + err.Error()}
	}
	if err := t.app.Commit(); err != nil {
		return err
	}
	if len(t.reasons) > 0 {
		return &t.partial
	}
	return nil
}

// describe keeps what a sender says that a metric is. It comes in requests of its own.
func (h *Handler) describe(m *prompb.MetricMetadata) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := m.MetricFamilyName
	if _, known := h.families[name]; !known && len(h.families) >= mostFamilies || !model.UTF8Validation.IsValidMetricName(name) {
		return
	}
	h.families[name] = metadata.Metadata{Type: model.MetricType(strings.ToLower(m.Type.String())), Unit: m.Unit, Help: strings.ToValidUTF8(m.Help, "�")}
}

// described is what is known of the metric that a series belongs to.
func (h *Handler) described(series string) storage.AOptions {
	h.mu.Lock()
	defer h.mu.Unlock()
	base, _ := exposition.Split(series)
	for _, family := range []string{series, base, strings.TrimSuffix(series, "_total")} {
		if m, ok := h.families[family]; ok {
			return storage.AOptions{MetricFamilyName: family, Metadata: m}
		}
	}
	return storage.AOptions{}
}

func (h *Handler) count(what, example string, n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.refused[what]
	if f == nil {
		f = &api.Fault{What: "remote write: " + what}
		h.refused[what] = f
	}
	f.Count, f.Last, f.At = f.Count+n, example, h.now().UnixNano()
}

// Faults tells what was refused since the start, by reason.
func (h *Handler) Faults() (out []api.Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(h.refused)) {
		out = append(out, *h.refused[what])
	}
	return out
}

// partial is a request of which some samples could not be kept.
type partial struct {
	total    uint64
	reasons  map[string]uint64  // samples by reason
	examples map[string]example // of each
}

// example is a series that was refused.
type example struct{ metric, series string }

func (p *partial) Error() string {
	var lost uint64
	var why []string
	for _, reason := range slices.Sorted(maps.Keys(p.reasons)) {
		lost += p.reasons[reason]
		why = append(why, fmt.Sprintf("%d %s, such as of %s", p.reasons[reason], reason, p.examples[reason].series))
	}
	return fmt.Sprintf("%d of %d samples are not kept, the rest is: %s", lost, p.total, strings.Join(why, "; "))
}

// taking is one request being taken in.
type taking struct {
	h      *Handler
	app    storage.AppenderV2
	latest int64 // Unix ms
	broken bool  // the store is, not the request
	labels labels.ScratchBuilder
	partial
}

func (t *taking) refuse(metric, series, why string, n int) {
	t.reasons[why] += uint64(n)
	if _, ok := t.examples[why]; !ok {
		t.examples[why] = example{exposition.Printable(cmp.Or(metric, "no name"), 80), exposition.Printable(series, 120)}
	}
}

// series takes one series in. An error is the store's, and ends the request.
func (t *taking) series(ts *prompb.TimeSeries) error {
	n := len(ts.Samples) + len(ts.Histograms)
	t.total += uint64(n)
	if why := wrong(ts.Labels); why != "" {
		t.refuse(nameOf(ts.Labels), shown(ts.Labels), why, n)
		return nil
	}
	ls := ts.ToLabels(&t.labels, nil)
	s := line{taking: t, labels: ls, opts: t.h.described(ls.Get(model.MetricNameLabel))}
	for _, v := range ts.Samples {
		if err := s.append(v.Timestamp, v.Value, nil, nil); err != nil {
			return err
		}
	}
	s.newest = 0
	for i := range ts.Histograms {
		p := &ts.Histograms[i]
		whole, float, err := native(p)
		if err != nil {
			s.refuse("no valid native histogram (" + err.Error() + ")")
			continue
		}
		if err := s.append(p.Timestamp, 0, whole, float); err != nil {
			return err
		}
	}
	return nil
}

// line is a series that samples are appended to.
type line struct {
	*taking
	labels labels.Labels
	opts   storage.AOptions
	ref    storage.SeriesRef
	newest int64 // of this request
}

func (s *line) refuse(why string) {
	s.taking.refuse(s.labels.Get(model.MetricNameLabel), s.labels.String(), why, 1)
}

func (s *line) append(at int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	switch {
	case at > s.latest:
		s.refuse("more than 10 minutes in the future: look at the sender's clock")
		return nil
	case at < s.newest:
		s.refuse("older than the one before it in the request")
		return nil
	}
	s.newest = at
	ref, err := s.app.Append(s.ref, s.labels, 0, at, v, h, fh, s.opts)
	var invalid histogram.Error
	switch {
	case err == nil, errors.Is(err, (*storage.AppendPartialError)(nil)):
		s.ref = ref
	case errors.Is(err, storage.ErrOutOfOrderSample):
		s.refuse("out of order")
	case errors.Is(err, storage.ErrTooOldSample), errors.Is(err, storage.ErrOutOfBounds):
		s.refuse("too old")
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		s.refuse("a second value for one time")
	case errors.As(err, &invalid):
		s.refuse("no valid native histogram (" + err.Error() + ")")
	default:
		s.broken = true
		return err
	}
	return nil
}

// native is a native histogram as it was sent, checked before anything reckons with it, and no finer than is kept.
func native(p *prompb.Histogram) (whole *histogram.Histogram, float *histogram.FloatHistogram, err error) {
	if p.IsFloatHistogram() {
		float = p.ToFloatHistogram()
		if err = float.Validate(); err == nil && histogram.IsExponentialSchemaReserved(float.Schema) && float.Schema > histogram.ExponentialSchemaMax {
			err = float.ReduceResolution(histogram.ExponentialSchemaMax)
		}
		return nil, float, err
	}
	whole = p.ToIntHistogram()
	if err = whole.Validate(); err == nil && histogram.IsExponentialSchemaReserved(whole.Schema) && whole.Schema > histogram.ExponentialSchemaMax {
		err = whole.ReduceResolution(histogram.ExponentialSchemaMax)
	}
	return whole, nil, err
}

// wrong is what is wrong with labels by the specification, "" if nothing is.
func wrong(ls []prompb.Label) string {
	for i, l := range ls {
		switch {
		case !utf8.ValidString(l.Name) || !utf8.ValidString(l.Value):
			return "with labels that are not UTF-8"
		case l.Name == "":
			return "with a label without a name"
		case i > 0 && l.Name == ls[i-1].Name:
			return "with a label twice"
		case i > 0 && l.Name < ls[i-1].Name:
			return "with labels that are not sorted"
		}
	}
	if nameOf(ls) == "" {
		return "without a metric's name"
	}
	return ""
}

// nameOf is the metric's name, "" where there is none.
func nameOf(ls []prompb.Label) string {
	for _, l := range ls {
		if l.Name == model.MetricNameLabel {
			return l.Value
		}
	}
	return ""
}

// shown is a series with whatever labels it has.
func shown(ls []prompb.Label) string {
	var parts []string
	for _, l := range ls[:min(len(ls), 8)] {
		parts = append(parts, l.Name+"="+l.Value)
	}
	return cmp.Or(strings.Join(parts, ","), "no labels")
}
