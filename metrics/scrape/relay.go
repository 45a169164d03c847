package scrape

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	prom "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/relabel"
	promscrape "github.com/prometheus/prometheus/scrape"

	"github.com/whylate/whylate/exposition"
)

// relay stands between Prometheus's scraper and the targets. The scraper refuses a whole page for one bad line, and its options let
// nobody at a page; but they let us dial. So each of its requests ends here, over a pipe in memory: the relay asks the target as the job
// says, bounds what comes, mends it (exposition.Mend), and hands it on. What it saw of a target it keeps for whoever asks for its health.
type relay struct {
	jobs   atomic.Pointer[map[string]*fetcher]
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}

	mu   sync.Mutex
	seen map[string]*sight // by sightKey
}

// sight is what the relay saw of a target.
type sight struct {
	samples  int
	leftOut  uint64   // lines, since the start
	problems []string // of the last page
	err      error    // why there was no page; nil = there was one
}

// jobHeader tells the relay whose target it is.
const jobHeader = "X-Whylate-Job"

// lead sends a job's scrapes to the relay: plainly, over its own dialler, with the real scheme as the path's first element. It comes
// after the job's own relabelling, so it changes no label that a series gets.
func lead(sc *prom.ScrapeConfig) error {
	sc.HTTPClientConfig = config.DefaultHTTPClientConfig
	sc.HTTPClientConfig.HTTPHeaders = &config.Headers{Headers: map[string]config.Header{jobHeader: {Values: []string{url.QueryEscape(sc.JobName)}}}}
	all := relabel.MustNewRegexp("(.*)")
	for _, r := range []*relabel.Config{
		{Action: relabel.Drop, SourceLabels: model.LabelNames{promscrape.UnixSocketLabel}, Regex: relabel.MustNewRegexp("(.+)")}, // such a target would be dialled past the relay
		{Action: relabel.Replace, SourceLabels: model.LabelNames{model.SchemeLabel, model.MetricsPathLabel}, Separator: "/", Regex: all, TargetLabel: model.MetricsPathLabel, Replacement: "/$1"},
		{Action: relabel.Replace, Regex: all, TargetLabel: model.SchemeLabel, Replacement: "http"},
	} {
		if err := r.Validate(sc.MetricNameValidationScheme); err != nil {
			return err
		}
		sc.RelabelConfigs = append(sc.RelabelConfigs, r)
	}
	return nil
}

// real is the target's address, of the one that the scraper asks the relay by.
func real(led *url.URL) *url.URL {
	u := *led
	scheme, path, _ := strings.Cut(strings.TrimPrefix(led.Path, "/"), "/")
	u.Scheme, u.Path = scheme, "/"+strings.TrimPrefix(path, "/")
	return &u
}

func newRelay() *relay {
	r := &relay{conns: make(chan net.Conn), closed: make(chan struct{}), seen: map[string]*sight{}}
	r.jobs.Store(&map[string]*fetcher{})
	r.server = &http.Server{Handler: r}
	return r
}

// Dial is the other end of a connection to the relay, whatever the address.
func (r *relay) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case r.conns <- ours:
		return theirs, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.closed:
		return nil, net.ErrClosed
	}
}

// Accept, Close and Addr make the relay the listener of its own server.
func (r *relay) Accept() (net.Conn, error) {
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.closed:
		return nil, net.ErrClosed
	}
}

// Close lets no connection in any more. It is called once, by the server.
func (r *relay) Close() error {
	close(r.closed)
	return nil
}

// Addr is nowhere.
func (*relay) Addr() net.Addr { return &net.UnixAddr{Name: "relay", Net: "pipe"} }

// use takes up how jobs are asked for from now on.
func (r *relay) use(fetchers map[string]*fetcher) {
	old := r.jobs.Swap(&fetchers)
	for _, f := range *old {
		f.client.CloseIdleConnections()
	}
}

// ServeHTTP answers one scrape.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	job, _ := url.QueryUnescape(req.Header.Get(jobHeader))
	f := (*r.jobs.Load())[job]
	led := *req.URL
	led.Host = req.Host
	u := real(&led)
	if f == nil {
		http.Error(w, "job gone", http.StatusServiceUnavailable) // its settings were changed just now
		return
	}
	p, err := f.fetch(req, u)
	r.note(job, u, p, err)
	if err != nil {
		http.Error(w, "no page", http.StatusBadGateway) // who asks for the target's health gets err
		return
	}
	w.Header().Set("Content-Type", p.MediaType)
	_, _ = w.Write(p.Page)
}

// fetch asks a target for its page.
func (f *fetcher) fetch(req *http.Request, u *url.URL) (*exposition.Mended, error) {
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, &refusal{fmt.Sprintf("the scheme is %q", exposition.Printable(u.Scheme, 20)), "write scheme: http or scheme: https"}
	}
	ctx := req.Context()
	out := req.Clone(ctx)
	out.URL, out.Host, out.RequestURI = u, "", ""
	out.Header.Del(jobHeader)
	out.Header.Set("User-Agent", "whylate")
	out.Header.Set("Accept-Encoding", "identity")
	if f.compress {
		out.Header.Set("Accept-Encoding", "gzip")
	}
	began := time.Now()
	resp, err := f.client.Do(out)
	if err != nil {
		return nil, timely(req, began, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &status{resp.StatusCode, resp.Status}
	}
	body, err := unpacked(resp, f.body+1)
	if err != nil {
		return nil, timely(req, began, err)
	}
	if int64(len(body)) > f.body {
		return nil, &refusal{fmt.Sprintf("the page has more than %d bytes, unpacked", f.body), "raise body_size_limit of the job (or scrape.body_limit), or have the target say less"}
	}
	mediaType := cmp.Or(resp.Header.Get("Content-Type"), "text/plain")
	if isHTML(mediaType, body) {
		return nil, &refusal{"it answers with a web page, not with metrics", "set metrics_path to where the metrics are; a login page in front of them needs credentials"}
	}
	p := exposition.Mend(body, mediaType)
	if p.Samples == 0 && len(p.Problems) > 0 {
		return nil, &refusal{fmt.Sprintf("no line of its page is a metric; the first is %s (%s)", p.Problems[0].Text, p.Problems[0].Why), "set metrics_path and the port to where the metrics are"}
	}
	return &p, nil
}

// unpacked is the body of an answer, up to so many bytes.
func unpacked(resp *http.Response, most int64) ([]byte, error) {
	var r io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		r = z
	}
	return io.ReadAll(io.LimitReader(r, most))
}

func isHTML(mediaType string, body []byte) bool {
	start := bytes.ToLower(bytes.TrimSpace(body[:min(len(body), 512)]))
	return strings.HasPrefix(mediaType, "text/html") || bytes.HasPrefix(start, []byte("<!doctype")) || bytes.HasPrefix(start, []byte("<html"))
}

// timely says that it took too long, where the scraper hung up before the target had answered.
func timely(req *http.Request, began time.Time, err error) error {
	limit, _ := strconv.ParseFloat(req.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if req.Context().Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return &refusal{fmt.Sprintf("no whole page within %.3g s (gave up after %.3g s)", limit, time.Since(began).Seconds()), "look whether the target hangs; else raise scrape_timeout of the job"}
	}
	return err
}

// mostSights bounds what is remembered of targets that came and went.
const mostSights = 20_000

// mostProblems is how many problems of a page are told.
const mostProblems = 5

func sightKey(job string, u *url.URL) string { return job + "\n" + u.String() }

func (r *relay) note(job string, u *url.URL, p *exposition.Mended, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) >= mostSights {
		clear(r.seen) // targets that are still there come back with their next scrape
	}
	key := sightKey(job, u)
	s := sight{err: err}
	if before := r.seen[key]; before != nil {
		s.leftOut = before.leftOut
	}
	if p != nil {
		s.samples = p.Samples
		s.leftOut += uint64(len(p.Problems))
		for _, problem := range p.Problems[:min(len(p.Problems), mostProblems)] {
			s.problems = append(s.problems, problem.String())
		}
	}
	r.seen[key] = &s
}

// sight is what was seen of a target, the zero sight where nothing was yet.
func (r *relay) sight(job string, u *url.URL) sight {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.seen[sightKey(job, u)]; s != nil {
		return *s
	}
	return sight{}
}
