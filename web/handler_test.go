package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/web"
)

// wild panics when it is asked to explain.
type wild struct{ api.Service }

func (wild) Explain(context.Context, api.ExplainQuery) (*diagnose.Explanation, error) {
	panic("a mistake of ours")
}

// journal is a log that can be read while it is written.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func TestAPanicCostsOneAnswer(t *testing.T) {
	var j journal
	srv := serve(t, wild{server.NewLocal(crowdBook(t))}, web.Options{Log: slog.New(slog.NewJSONHandler(&j, nil))})
	resp, body := fetch(t, "GET", srv.URL+"/api/v1/explain", nil)
	var p api.ProblemBody
	if err := json.Unmarshal(body, &p); err != nil || resp.StatusCode != 500 || p.Error.Reference == "" || strings.Contains(string(body), "a mistake of ours") {
		t.Errorf("%s %s", resp.Status, body)
	}
	if resp, _ := fetch(t, "GET", srv.URL+"/api/v1/engines", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %s", resp.Status)
	}
	if s := j.String(); !strings.Contains(s, p.Error.Reference) || !strings.Contains(s, "a mistake of ours") || !strings.Contains(s, "handler_test.go") {
		t.Errorf("the log does not say what happened: %s", s)
	}
}

func TestTheLogSaysWhoAskedWhatAndNoToken(t *testing.T) {
	var j journal
	srv := serve(t, newLive(crowdBook(t)), web.Options{Tokens: tokens(t), Log: slog.New(slog.NewJSONHandler(&j, nil))})
	fetch(t, "GET", srv.URL+"/api/v1/requests/short", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+viewer)
		r.Header.Set("User-Agent", "agent/1")
	})
	fetch(t, "GET", srv.URL+"/healthz", nil)
	var line struct {
		Msg, Method, Path, Route, Status, Role, Remote, Agent string
		Bytes, Took                                           int64
	}
	if err := json.Unmarshal([]byte(j.String()), &line); err != nil {
		t.Fatalf("one line is wanted, health is not worth one: %v\n%s", err, j.String())
	}
	if line.Msg != "http" || line.Path != "/api/v1/requests/short" || line.Route != "/api/v1/requests/{id}" || line.Status != "200" || line.Role != "viewer" || line.Bytes < 500 || line.Took <= 0 || line.Remote == "" || line.Agent != "agent/1" {
		t.Errorf("%+v", line)
	}
	if s := j.String(); strings.Contains(s, viewer) || strings.Contains(s, "\x1b") {
		t.Errorf("the log shows what it must not: %q", s)
	}
}

func TestReadinessSaysWhy(t *testing.T) {
	var wrong error
	srv := serve(t, newLive(crowdBook(t)), web.Options{Ready: func(context.Context) error { return wrong }})
	c, err := client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(context.Background()); err != nil {
		t.Errorf("ready: %v", err)
	}
	wrong = errors.New("the log is being recovered: 3 of 7 segments")
	resp, body := fetch(t, "GET", srv.URL+"/readyz", nil)
	if resp.StatusCode != 503 || !strings.Contains(string(body), "3 of 7") {
		t.Errorf("%s %s", resp.Status, body)
	}
	var not *api.Unavailable
	if err := c.Ready(context.Background()); !errors.As(err, &not) || !strings.Contains(err.Error(), "3 of 7") {
		t.Errorf("not ready: %v", err)
	}
	if resp, _ := fetch(t, "GET", srv.URL+"/healthz", nil); resp.StatusCode != 200 {
		t.Errorf("the process is up: %s", resp.Status)
	}
}

func TestMetricsCountRoutesNotPaths(t *testing.T) {
	own := prometheus.NewRegistry()
	kept := prometheus.NewCounter(prometheus.CounterOpts{Name: "whylate_kept_total", Help: "x"})
	own.MustRegister(kept)
	srv := serve(t, newLive(crowdBook(t)), web.Options{Gatherer: own})
	for _, a := range []string{"/api/v1/requests/short", "/api/v1/requests/head", "/api/v1/requests/none", "/api/v1/requests?x=1", "/secret/path", "/other/path"} {
		fetch(t, "GET", srv.URL+a, nil)
	}
	fetch(t, "BREW", srv.URL+"/api/v1/requests", nil)
	resp, body := fetch(t, "GET", srv.URL+"/metrics", func(r *http.Request) { r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0") })
	text := string(body)
	for _, line := range []string{
		`whylate_http_requests_total{code="200",method="GET",route="/api/v1/requests/{id}"} 2`,
		`whylate_http_requests_total{code="404",method="GET",route="/api/v1/requests/{id}"} 1`,
		`whylate_http_requests_total{code="400",method="GET",route="/api/v1/requests"} 1`,
		`whylate_http_requests_total{code="404",method="GET",route="other"} 2`,
		`whylate_http_requests_total{code="405",method="other",route="/api/v1/requests"} 1`,
		`whylate_http_request_duration_seconds_count{route="/api/v1/requests/{id}"} 3`,
		`whylate_kept_total 0`, "# EOF",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, "secret") || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/openmetrics-text") {
		t.Errorf("%s\n%s", resp.Header.Get("Content-Type"), text)
	}
}

// Many ask at once, everything at a time; the race detector watches.
func TestManyAskAtOnce(t *testing.T) {
	l := newLive(demo())
	srv := serve(t, l, web.Options{Concurrent: 100})
	list, err := l.Requests(context.Background(), api.RequestsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for k := range 8 {
		c, err := client.New(srv.URL, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			events, err := c.Watch(ctx, "")
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 12 {
				r := list.Requests[(i*31+k*7)%len(list.Requests)]
				if x, err := c.Explain(ctx, api.ExplainQuery{ID: r.Name}); err != nil || x.Request.Name != r.Name {
					t.Errorf("explain %s: %v", r.Name, err)
				}
				if _, err := c.Requests(ctx, api.RequestsQuery{Sort: "ttft", Limit: 5}); err != nil {
					t.Error(err)
				}
				if _, err := c.Engines(ctx); err != nil {
					t.Error(err)
				}
				if _, err := c.Iteration(ctx, api.IterationQuery{Number: uint64(i + 1)}); err != nil {
					t.Error(err)
				}
				l.feed.Publish(api.Event{Kind: api.EventRequest, Text: fmt.Sprint(k, i)})
				<-events
			}
		})
	}
	wg.Wait()
}

// An import arrives whole and in pieces, and only where the service takes any.
func TestImport(t *testing.T) {
	ctx := context.Background()
	srv := serve(t, newLive(crowdBook(t)), web.Options{MaxImport: 1 << 20})
	c, err := client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Import(ctx, api.ImportQuery{Name: "a b/ü.wlc"}, strings.NewReader(strings.Repeat("x", 300_000)))
	if err != nil || r.Bytes != 300_000 || r.Name != "a b/ü.wlc" || r.New != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := c.Import(ctx, api.ImportQuery{}, strings.NewReader(strings.Repeat("x", 2<<20))); err == nil || !strings.Contains(err.Error(), "longer than the 1048576 bytes") {
		t.Errorf("too much: %v", err)
	}
	gone := errors.New("the disk was pulled out")
	if _, err := c.Import(ctx, api.ImportQuery{}, io.MultiReader(strings.NewReader("x"), broken{gone})); !errors.Is(err, gone) {
		t.Errorf("a file that cannot be read: %v", err)
	}
	fixed := serve(t, server.NewLocal(crowdBook(t)), web.Options{})
	if c, err = client.New(fixed.URL, client.Options{}); err != nil {
		t.Fatal(err)
	}
	var not *api.Unsupported
	if _, err := c.Import(ctx, api.ImportQuery{}, strings.NewReader("x")); !errors.As(err, &not) {
		t.Errorf("a service that takes nothing in: %v", err)
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// What labels choose, and what an iteration's ranks and evictions are, comes through HTTP as it was.
func TestLabelsExecutionsAndEvictionsComeThrough(t *testing.T) {
	c, err := client.New(serve(t, server.NewLocal(crowdBook(t)), web.Options{}).URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, q := range []api.RequestsQuery{{Tenant: "5f0c1a2b"}, {Class: "a1b2c3d4"}, {Route: "18f6e5d4c3b2a190"}, {Tenant: "5f0c1a2b3c4d5e6f", Class: "chat"}} {
		l, err := c.Requests(ctx, q)
		if err != nil || len(l.Requests) != 1 || l.Requests[0].Name != "short" || l.Requests[0].Labels.Tenant != 0x5f0c1a2b3c4d5e6f {
			t.Errorf("%+v: %+v, %v", q, l, err)
		}
	}
	if l, err := c.Requests(ctx, api.RequestsQuery{Tenant: "18f6e5d4"}); err != nil || l.Matched != 0 {
		t.Errorf("a tenant that is a route: %+v, %v", l, err)
	}
	d, err := c.Iteration(ctx, api.IterationQuery{Number: 62})
	if want := (api.ExecutionRow{Ranks: 1, Host: 9e6, Device: 7e6, Graph: ledger.GraphFull, Padded: 8, Peak: 1024}); err != nil || d.Execution == nil || *d.Execution != want {
		t.Errorf("iteration 62: %+v, %v; want %+v", d.Execution, err, want)
	}
	d, err = c.Iteration(ctx, api.IterationQuery{Number: 112})
	if err != nil || len(d.Evictions) != 2 || d.Evictions[0] != (api.EvictionRow{LastUser: "big-2", Blocks: 6}) || d.Evictions[1] != (api.EvictionRow{Blocks: 1}) {
		t.Errorf("iteration 112: %+v, %v", d.Evictions, err)
	}
}
