package promapi

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/whylate/whylate/metrics"
)

// Prefix is where the API is mounted; a data source's URL is what stands before /api/v1.
const Prefix = "/prometheus/api/v1"

const (
	maxForm   = 1 << 20 // bytes of a posted query
	maxLines  = 100_000 // series, names or values in one answer
	maxPoints = 11_000  // of a series in a range, as at Prometheus
)

// Options say what is answered beside queries.
type Options struct {
	Version string            // whylate's
	Started time.Time         // of the process
	Flags   map[string]string // settings that concern time series
	Targets func() []Target   // what is scraped; nil = nothing
	Now     func() time.Time  // nil = time.Now
}

// Target is one that is scraped, as the API shows it.
type Target struct {
	DiscoveredLabels   labels.Labels `json:"discoveredLabels"`
	Labels             labels.Labels `json:"labels"`
	ScrapePool         string        `json:"scrapePool"`
	ScrapeURL          string        `json:"scrapeUrl"`
	GlobalURL          string        `json:"globalUrl"`
	LastError          string        `json:"lastError"`
	LastScrape         time.Time     `json:"lastScrape"`
	LastScrapeDuration float64       `json:"lastScrapeDuration"` // seconds
	Health             string        `json:"health"`             // up, down or unknown
	ScrapeInterval     string        `json:"scrapeInterval"`
	ScrapeTimeout      string        `json:"scrapeTimeout"`
}

type handler struct {
	Options
	db        *metrics.DB
	engine    *promql.Engine
	queryable storage.Queryable
	parser    parser.Parser
	places    chan struct{} // one for each question that is worked on, or whose large answer is being taken
}

// New answers from db.
func New(db *metrics.DB, o Options) http.Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Targets == nil {
		o.Targets = func() []Target { return nil }
	}
	h := &handler{o, db, db.Engine(), db.Queryable(), metrics.Parser(), make(chan struct{}, db.Limits().Concurrent)}
	mux := http.NewServeMux()
	get := func(path string, answer func(*http.Request) result) {
		mux.HandleFunc("GET "+Prefix+path, serve(answer))
	}
	both := func(path string, answer func(*http.Request) result) {
		get(path, answer)
		mux.HandleFunc("POST "+Prefix+path, serve(answer))
	}
	both("/query", h.inTurn(h.query))
	both("/query_range", h.inTurn(h.queryRange))
	both("/query_exemplars", h.exemplars)
	both("/format_query", h.format)
	both("/series", h.inTurn(h.series))
	both("/labels", h.inTurn(h.labels))
	get("/label/{name}/values", h.inTurn(h.values))
	get("/metadata", h.metadata)
	get("/targets", h.targets)
	get("/rules", nothing("groups"))
	get("/alerts", nothing("alerts"))
	get("/status/buildinfo", h.buildinfo)
	get("/status/runtimeinfo", h.runtimeinfo)
	get("/status/flags", h.flags)
	get("/status/tsdb", h.cardinality)
	mux.HandleFunc("/", serve(func(r *http.Request) result {
		return failed(notFound, fmt.Errorf("whylate answers queries, not %s %.100q: docs/metrics.md lists what there is", method(r), r.URL.Path))
	}))
	return mux
}

func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodHead:
		return r.Method
	}
	return "this method"
}

// result is what a question comes to: data or an error, with what is to be said beside.
type result struct {
	data        any
	err         *failure
	annotations annotations.Annotations
	large       bool   // it takes much memory until it is done
	done        func() // once it is written; may be nil
}

// failure is an error as the API names it.
type failure struct {
	kind
	error
}

// kind is a class of errors with its status.
type kind struct {
	name   string
	status int
}

// The classes, as Prometheus has them. 499 is nginx's: the client hung up.
var (
	badData  = kind{"bad_data", http.StatusBadRequest}
	exec     = kind{"execution", http.StatusUnprocessableEntity}
	timeout  = kind{"timeout", http.StatusServiceUnavailable}
	canceled = kind{"canceled", 499}
	internal = kind{"internal", http.StatusInternalServerError}
	notFound = kind{"not_found", http.StatusNotFound}
)

func failed(k kind, err error) result { return result{err: &failure{k, err}} }

func invalid(parameter string, err error) result {
	return failed(badData, fmt.Errorf("invalid parameter %q: %w", parameter, err))
}

// classified gives an error of the engine or the store its class.
func classified(err error) *failure {
	var (
		hungUp promql.ErrQueryCanceled
		slow   promql.ErrQueryTimeout
		disk   promql.ErrStorage
	)
	switch {
	case errors.As(err, &hungUp), errors.Is(err, context.Canceled):
		return &failure{canceled, err}
	case errors.As(err, &slow), errors.Is(err, context.DeadlineExceeded):
		return &failure{timeout, err}
	case errors.As(err, &disk):
		return &failure{internal, err}
	}
	return &failure{exec, err}
}

// inTurn has a question wait for a place, up to the limit of a query. A large answer keeps its place until it is written: a reader takes it as
// slowly as it likes, and it lies in memory meanwhile.
func (h *handler) inTurn(answer func(*http.Request) result) func(*http.Request) result {
	return func(r *http.Request) result {
		patience := time.NewTimer(h.db.Limits().Timeout)
		defer patience.Stop()
		select {
		case h.places <- struct{}{}:
		case <-r.Context().Done():
			return result{err: classified(r.Context().Err())}
		case <-patience.C:
			return failed(timeout, fmt.Errorf("waited for %s: %d questions are worked on, or their readers take large answers slowly; ask again later, or raise metrics.query.concurrent", h.db.Limits().Timeout, cap(h.places)))
		}
		leave := func() { <-h.places }
		keeps := false
		defer func() {
			if !keeps {
				leave()
			}
		}()
		res := answer(r)
		if keeps = res.large; keeps {
			done := res.done
			res.done = func() { done(); leave() }
		}
		return res
	}
}

// largeAnswer is how many samples make an answer one that keeps its place, some megabytes; of series and names a tenth.
const largeAnswer = 100_000

func serve(answer func(*http.Request) result) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		}
		var res result
		if err := r.ParseForm(); err != nil {
			res = failed(badData, fmt.Errorf("error parsing form values: %w", err))
		} else {
			res = answer(r)
		}
		if res.done != nil {
			defer res.done()
		}
		write(w, r, res)
	}
}

// write answers in the API's envelope, compressed for whoever takes that.
func write(w http.ResponseWriter, r *http.Request, res result) {
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Add("Vary", "Accept-Encoding")
	status := http.StatusOK
	if res.err != nil {
		status = res.err.status
	}
	if !takesGzip(r) {
		w.WriteHeader(status)
		encode(w, r.FormValue("query"), res)
		return
	}
	head.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	encode(z, r.FormValue("query"), res)
	z.Close()
}

func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q = strings.ReplaceAll(q, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.000")
		}
	}
	return false
}

func nothing(list string) func(*http.Request) result {
	return func(*http.Request) result { return result{data: map[string][]struct{}{list: {}}} }
}
