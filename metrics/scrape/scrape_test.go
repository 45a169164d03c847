package scrape

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/model/labels"
	stale "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/renew"
)

// kept is a storage that tells of each commit.
type kept struct {
	db      *tsdb.DB
	commits chan struct{}

	mu     sync.Mutex
	labels []string
}

// name keeps which labels targets were given.
func (k *kept) name(names ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.labels = append(k.labels, names...)
}

type told struct {
	storage.AppenderV2
	commits chan struct{}
}

func (k *kept) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return told{k.db.AppenderV2(ctx), k.commits}
}

func (a told) Commit() error {
	err := a.AppenderV2.Commit()
	select {
	case a.commits <- struct{}{}:
	default:
	}
	return err
}

func open(t testing.TB) *kept {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &kept{db: db, commits: make(chan struct{}, 64)}
}

// last are the newest values by series, as text; native histograms by their count.
func (k *kept) last(t *testing.T) map[string]string {
	t.Helper()
	q, err := k.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	out := map[string]string{}
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			switch kind {
			case chunkenc.ValFloat:
				_, v := it.At()
				out[set.At().Labels().String()] = fmt.Sprint(v)
				if stale.IsStaleNaN(v) {
					out[set.At().Labels().String()] = "stale"
				}
			default:
				_, h := it.AtFloatHistogram(nil)
				out[set.At().Labels().String()] = fmt.Sprintf("histogram of %v", h.Count)
			}
		}
	}
	return out
}

// until waits, commit by commit, until what is there is as wished.
func (k *kept) until(t *testing.T, ok func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-k.commits:
		case <-limit:
			t.Errorf("it did not come so: %v", k.last(t))
			return
		}
	}
}

func start(t *testing.T, k *kept, set Settings) (*Scraper, *renew.Group) {
	t.Helper()
	files := renew.NewGroup(slog.New(slog.DiscardHandler), nil)
	s, err := New(set, k, files, slog.New(slog.DiscardHandler), Options{Settle: 5 * time.Millisecond, Labels: k.name})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, files
}

func text(pages map[string]string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.RequestURI()]
		if !ok {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, page)
	}))
}

func host(s *httptest.Server) string {
	u, _ := url.Parse(s.URL)
	return u.Host
}

// oneTarget is the only target's health, after it was scraped.
func oneTarget(t *testing.T, s *Scraper) api.Target {
	t.Helper()
	l := s.Targets()
	if len(l.Targets) != 1 {
		t.Fatalf("%+v", l)
	}
	return l.Targets[0]
}

func scraped(s *Scraper) func() bool {
	return func() bool {
		l := s.Targets().Targets
		for _, t := range l {
			if t.Health == api.TargetUnknown {
				return false
			}
		}
		return len(l) > 0
	}
}

// Params, labels, relabelling and Prometheus's own series are as a Prometheus would have them, in spite of the relay.
func TestAJobAsOfPrometheus(t *testing.T) {
	srv := text(map[string]string{"/a/metrics?x=1": "# TYPE a counter\na_total{instance=\"mine\"} 3\nb 4\n"})
	defer srv.Close()
	k := open(t)
	s, _ := start(t, k, Settings{Interval: 50 * time.Millisecond, Jobs: fmt.Sprintf(`
- job_name: "j ö"
  metrics_path: /a/metrics
  params: {x: ["1"]}
  static_configs: [{targets: [%q], labels: {env: prod, __meta_x: y}}]
  relabel_configs: [{source_labels: [__meta_x], target_label: from, replacement: "$1!"}]
  metric_relabel_configs: [{source_labels: [__name__], regex: b, action: drop}]
`, host(srv))})
	k.until(t, scraped(s))
	got := k.last(t)
	for series, want := range map[string]string{
		`{__name__="a_total", env="prod", exported_instance="mine", from="y!", instance=%q, job="j ö"}`: "3",
		`{__name__="up", env="prod", from="y!", instance=%q, job="j ö"}`:                                "1",
		`{__name__="scrape_samples_scraped", env="prod", from="y!", instance=%q, job="j ö"}`:            "2",
	} {
		if series = fmt.Sprintf(series, host(srv)); got[series] != want {
			t.Errorf("%s is %q of %v", series, got[series], got)
		}
	}
	k.mu.Lock()
	if !slices.Contains(k.labels, "env") || !slices.Contains(k.labels, "from") {
		t.Errorf("labels told: %v", k.labels)
	}
	k.mu.Unlock()
	tg := oneTarget(t, s)
	if tg.URL != srv.URL+"/a/metrics?x=1" || tg.Samples != 2 || tg.Health != api.TargetUp || tg.Interval != int64(50*time.Millisecond) || tg.LastAt == 0 || tg.Error != "" || tg.Discovered["__address__"] != host(srv) {
		t.Errorf("%+v", tg)
	}
}

// C28: one -nan costs one sample, not the page.
func TestABadLineCostsALine(t *testing.T) {
	b, err := os.ReadFile("../../testdata/cases/C28-llamacpp-minus-nan.prom")
	if err != nil {
		t.Fatal(err)
	}
	srv := text(map[string]string{"/metrics": string(b) + "broken{ 1\n"})
	defer srv.Close()
	k := open(t)
	s, _ := start(t, k, Settings{Interval: 50 * time.Millisecond, Jobs: fmt.Sprintf(`[{job_name: llama, static_configs: [{targets: [%q]}]}]`, host(srv))})
	k.until(t, scraped(s))
	got := k.last(t)
	if v := got[fmt.Sprintf(`{__name__="llamacpp:n_busy_slots_per_decode", instance=%q, job="llama"}`, host(srv))]; v != "NaN" {
		t.Errorf("%q of %v", v, got)
	}
	if v := got[fmt.Sprintf(`{__name__="up", instance=%q, job="llama"}`, host(srv))]; v != "1" {
		t.Errorf("up is %q", v)
	}
	tg := oneTarget(t, s)
	if tg.LeftOut < 2 || len(tg.Problems) != 2 || !strings.Contains(tg.Problems[0], "-nan") || len(s.Faults()) != 1 {
		t.Errorf("%+v, %v", tg, s.Faults())
	}
}

// What brings nothing is told by name, with what to do; nothing else suffers.
func TestTargetsThatBringNothing(t *testing.T) {
	mux := http.NewServeMux()
	say := func(path string, code int, kind, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			io.WriteString(w, body)
		})
	}
	say("/ok", 200, "text/plain", "a 1\n")
	say("/html", 200, "text/html; charset=utf-8", "<html><body>hello</body></html>")
	say("/plainhtml", 200, "text/plain", "\n<!DOCTYPE html><html></html>")
	say("/json", 200, "application/json", `{"status":"ok"}`)
	say("/401", 401, "text/plain", "")
	say("/403", 403, "text/plain", "")
	say("/500", 500, "text/plain", "")
	say("/many", 200, "text/plain", many(300))
	say("/long", 200, "text/plain", "a{x=\""+strings.Repeat("y", 200_000)+"\"} 1\n")
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 1 << 8 {
		z.Write(make([]byte, 1<<16))
	}
	z.Close()
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb.Bytes())
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, "a 1\n")
	})
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	plain := httptest.NewServer(mux)
	defer plain.Close()
	secure := httptest.NewTLSServer(mux)
	defer secure.Close()
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	gone := httptest.NewServer(mux)
	gone.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}

	var jobs strings.Builder
	want := map[string][2]string{} // job → part of the error, of the remedy
	job := func(name, settings, target, what, remedy string) {
		fmt.Fprintf(&jobs, "- {job_name: %q, %s static_configs: [{targets: [%q]}]}\n", name, settings, target)
		want[name] = [2]string{what, remedy}
	}
	for _, c := range [][3]string{
		{"/ok", "", ""},
		{"/html", "a web page", "metrics_path"}, {"/plainhtml", "a web page", "metrics_path"}, {"/json", "no line of its page is a metric", "metrics_path"},
		{"/401", "401", "credentials_file"}, {"/403", "403", "right to read"}, {"/404", "404", "metrics_path"}, {"/500", "500", "own log"},
		{"/many", "more samples than sample_limit", "metric_relabel_configs"}, {"/loop", "redirects in a circle", "metrics_path"},
		{"/bomb", "more than 1048576 bytes, unpacked", "body_size_limit"}, {"/cut", "broke off", "proxy"},
	} {
		job(c[0], "metrics_path: "+c[0]+",", host(plain), c[1], c[2])
	}
	job("long", "metrics_path: /long, label_value_length_limit: 1000,", host(plain), "label_value_length_limit", "raise that limit")
	job("hangs", "metrics_path: /hangs, scrape_interval: 300ms, scrape_timeout: 200ms,", host(plain), "no whole page within", "scrape_timeout")
	job("gone", "", host(gone), "nobody answers there", "address and port")
	job("unknown CA", "scheme: https, metrics_path: /ok,", host(secure), "signed by somebody unknown", "ca_file")
	job("other name", "scheme: https, metrics_path: /ok, tls_config: {ca_file: "+ca+", server_name: other.test},", host(secure), "for another name", "server_name")
	job("https", "scheme: https, metrics_path: /ok, tls_config: {ca_file: "+ca+"},", host(secure), "", "")
	job("no TLS there", "scheme: https,", host(plain), "does not speak TLS", "scheme: http")
	job("no token", "metrics_path: /ok, authorization: {credentials_file: "+filepath.Join(dir, "none")+"},", host(plain), "a file of the job cannot be read", "let the user")

	k := open(t)
	s, _ := start(t, k, Settings{Interval: 3 * time.Second, Samples: 200, Body: 1 << 20, Jobs: jobs.String()})
	wrong := func() (out []string) {
		for _, tg := range s.Targets().Targets {
			w := want[tg.Job]
			if (w[0] == "") != (tg.Health == api.TargetUp) || !strings.Contains(tg.Error, w[0]) || !strings.Contains(tg.Remedy, w[1]) {
				out = append(out, fmt.Sprintf("%s: %s: %q, %q", tg.Job, tg.Health, tg.Error, tg.Remedy))
			}
		}
		return out
	}
	k.until(t, func() bool { return len(s.Targets().Targets) == len(want) && len(wrong()) == 0 }) // a slow machine may time out at first
	if w := wrong(); len(w) > 0 {
		t.Error(strings.Join(w, "\n"))
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a{i=\"%d\"} 1\n", i)
	}
	return b.String()
}

// Credentials are read from their files for every scrape, and reach the target, not the relay's log or labels.
func TestCredentials(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if r.Header.Get("Authorization") != "Bearer s3cret" && (user != "u" || password != "p") || r.Header.Get(jobHeader) != "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		io.WriteString(w, "a 1\n")
	}))
	defer srv.Close()
	dir := t.TempDir()
	for name, secret := range map[string]string{"token": "s3cret", "password": "p"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := open(t)
	s, _ := start(t, k, Settings{Dir: dir, Interval: 50 * time.Millisecond, Jobs: fmt.Sprintf(`
- {job_name: bearer, authorization: {credentials_file: token}, static_configs: [{targets: [%[1]q]}]}
- {job_name: basic, basic_auth: {username: u, password_file: password}, static_configs: [{targets: [%[1]q]}]}`, host(srv))})
	k.until(t, scraped(s))
	for _, tg := range s.Targets().Targets {
		if tg.Health != api.TargetUp {
			t.Errorf("%+v", tg)
		}
	}
	b, _ := json.Marshal(s.Targets())
	if strings.Contains(string(b), "s3cret") {
		t.Errorf("a secret is told: %s", b)
	}
}

// Native histograms come by protobuf, if the job wants them.
func TestNativeHistograms(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", NativeHistogramBucketFactor: 1.1})
	registry.MustRegister(h)
	for i := range 7 {
		h.Observe(float64(i))
	}
	srv := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer srv.Close()
	k := open(t)
	s, _ := start(t, k, Settings{Interval: 50 * time.Millisecond, Jobs: fmt.Sprintf(`[{job_name: n, scrape_native_histograms: true, static_configs: [{targets: [%q]}]}]`, host(srv))})
	k.until(t, scraped(s))
	if got := k.last(t)[fmt.Sprintf(`{__name__="h", instance=%q, job="n"}`, host(srv))]; got != "histogram of 7" {
		t.Errorf("%q of %v", got, k.last(t))
	}
}

// Targets in a file, and jobs in a prometheus.yml, are taken up when the files change; what leaves is marked stale.
func TestFilesAreTakenUp(t *testing.T) {
	srv := text(map[string]string{"/metrics": "a 1\n"})
	defer srv.Close()
	dir := t.TempDir()
	write := func(name, contents string) {
		t.Helper()
		tmp := filepath.Join(dir, "tmp")
		if err := os.WriteFile(tmp, []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("targets.json", fmt.Sprintf(`[{"targets": [%q]}]`, host(srv)))
	head := "global: {scrape_interval: 50ms, external_labels: {cluster: x}}\nrule_files: [a.yml]\nalerting: {}\nscrape_configs:\n"
	job := "- {job_name: %s, file_sd_configs: [{files: [targets.json]}]}\n"
	write("prometheus.yml", head+fmt.Sprintf(job, "one")+"- {job_name: k, kubernetes_sd_configs: [{role: pod}]}\n- {job_name: wrong, scrape_interval: never}\n")
	k := open(t)
	s, files := start(t, k, Settings{PrometheusFile: filepath.Join(dir, "prometheus.yml")})
	k.until(t, scraped(s))
	l := s.Targets()
	if len(l.Targets) != 1 || l.Targets[0].Job != "one" || l.Targets[0].Interval != int64(50*time.Millisecond) {
		t.Errorf("%+v", l)
	}
	if len(l.NotTaken) != 2 || l.NotTaken[0].What != "kubernetes_sd_configs" || l.NotTaken[0].Job != "job k" || !strings.Contains(l.NotTaken[1].What, `"never"`) {
		t.Errorf("%+v", l.NotTaken)
	}

	write("prometheus.yml", head+fmt.Sprintf(job, "two"))
	for range 3 { // contents count when two looks find the same
		files.Look()
	}
	if err := s.Renew(); err != nil {
		t.Fatal(err)
	}
	series := func(job string) string {
		return fmt.Sprintf(`{__name__="a", instance=%q, job=%q}`, host(srv), job)
	}
	k.until(t, func() bool { return k.last(t)[series("two")] == "1" })
	if l := s.Targets(); len(l.Targets) != 1 || l.Targets[0].Job != "two" || len(l.NotTaken) != 0 {
		t.Errorf("%+v", l)
	}
	write("targets.json", `[]`)
	k.until(t, func() bool { return k.last(t)[series("two")] == "stale" })
}

func TestWrongJobsAreNamed(t *testing.T) {
	for jobs, want := range map[string]string{
		"{a: b}":                                "is no list of jobs",
		"[a]":                                   "job number 1: it is no job",
		"- {static_configs: []}":                "job number 1: job_name is empty",
		"- {job_name: a, ports: [], every: 1s}": "job a: there is no key ports in a job; there is no key every in a job",
		"- {job_name: a, ports: []}":            "job a: there is no key ports in a job",
		"- {job_name: a}\n- {job_name: a}":      "another job has this name",
		"- {job_name: a, scrape_interval: 1s, scrape_timeout: 2s}": "scrape timeout greater than scrape interval",
		"- {job_name: a, relabel_configs: [{action: nope}]}":       `"nope"`,
		"- {job_name: a, params: &x {}, http_headers: *x}":         "anchor or alias",
	} {
		_, err := Settings{Jobs: jobs}.Check(nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v, want %s", jobs, err, want)
		}
	}
	if not, err := (Settings{Jobs: "- {job_name: a, ec2_sd_configs: [{}], static_configs: [{targets: ['a:1']}]}"}).Check(nil); err != nil || len(not) != 1 || not[0].What != "ec2_sd_configs" {
		t.Errorf("%v, %v", not, err)
	}
}

// Nothing of a scraper stays when it ends.
func TestNothingStays(t *testing.T) {
	srv := text(map[string]string{"/metrics": "a 1\n"})
	defer srv.Close()
	k := open(t)
	before := runtime.NumGoroutine()
	s, err := New(Settings{Interval: 50 * time.Millisecond, Jobs: fmt.Sprintf(`[{job_name: a, static_configs: [{targets: [%q]}]}]`, host(srv))}, k, nil, slog.New(slog.DiscardHandler), Options{Settle: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	k.until(t, scraped(s))
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	srv.CloseClientConnections()
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
		time.Sleep(5 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before: %s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}
