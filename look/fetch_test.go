package look

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a time that goes on only when somebody sleeps.
type clock struct{ now time.Time }

func (c *clock) watching(history time.Duration) Watching {
	return Watching{For: 30 * time.Second, Every: 10 * time.Second, History: history, Now: func() time.Time { return c.now },
		Sleep: func(_ context.Context, d time.Duration) error { c.now = c.now.Add(d); return nil }}
}

func text(t *testing.T, inputs []Input) string {
	t.Helper()
	scene, err := Read(context.Background(), inputs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Judge(scene).Text(&b, 110); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// An engine whose requests run and from which nothing comes: the first thing that is said.
func TestWatchesAnEngine(t *testing.T) {
	scrapes := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		scrapes++
		fmt.Fprintf(w, "vllm:num_requests_running{model_name=\"m\"} 7\nvllm:generation_tokens_total{model_name=\"m\"} 100\nvllm:num_requests_waiting{model_name=\"m\"} %d\n", scrapes)
	}))
	defer srv.Close()
	c := &clock{time.Unix(1e9, 0)}
	inputs, err := Watch(context.Background(), []Address{{URL: strings.TrimPrefix(srv.URL, "http://")}}, c.watching(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if scrapes != 4 || c.now.Unix() != 1e9+30 {
		t.Errorf("%d scrapes until %v", scrapes, c.now)
	}
	if got := text(t, inputs); !strings.Contains(got, "BROKEN m on") || !strings.Contains(got, "7 requests run, and not one token came out in 30.0 s") {
		t.Error(got)
	}
}

// A Prometheus has the history already: its histograms come series by series.
func TestReadsAPrometheus(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(data any) { json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data}) }
		series := func(labels string, values ...string) map[string]any {
			m := map[string]string{"instance": "pod-1:8000", "model_name": "m"}
			for _, l := range strings.Fields(labels) {
				k, v, _ := strings.Cut(l, "=")
				m[k] = v
			}
			var vs [][2]any
			for i, v := range values {
				vs = append(vs, [2]any{float64(1e9 - 60 + 60*i), v})
			}
			return map[string]any{"metric": m, "values": vs}
		}
		switch r.URL.Path {
		case "/api/v1/label/__name__/values":
			answer([]string{"up", "go_info", "vllm:num_requests_running", "vllm:time_to_first_token_seconds_bucket", "vllm:time_to_first_token_seconds_count", "vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_created"})
		case "/api/v1/query_range":
			asked.Add(1)
			name := regexp.MustCompile(`"([^"]+)"`).FindStringSubmatch(r.FormValue("query"))[1]
			var result []map[string]any
			switch name {
			case "vllm:num_requests_running":
				result = append(result, series("__name__="+name, "3", "4"))
			case "vllm:time_to_first_token_seconds_bucket":
				result = append(result, series("__name__="+name+" le=0.5", "10", "10"), series("__name__="+name+" le=1", "10", "30"), series("__name__="+name+" le=+Inf", "10", "30"))
			case "vllm:time_to_first_token_seconds_count":
				result = append(result, series("__name__="+name, "10", "30"))
			case "vllm:time_to_first_token_seconds_sum":
				result = append(result, series("__name__="+name, "4", "20"))
			default:
				t.Errorf("asked for %s", name)
			}
			answer(map[string]any{"resultType": "matrix", "result": result})
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	inputs, err := Watch(context.Background(), []Address{{URL: srv.URL}}, c.watching(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	got := text(t, inputs)
	if asked.Load() != 4 || !strings.Contains(got, "4 running (m on pod-1:8000)") || !strings.Contains(got, "TTFT p99 500 ms to 1.00 s, mean 800 ms, n 20 in 60.0 s (m on pod-1:8000)") {
		t.Errorf("%d queries: %s", asked.Load(), got)
	}
}

func TestRefusalsNameTheSetting(t *testing.T) {
	code := func(n int) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }))
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = nil
	plain := code(200)
	gone := code(200)
	gone.Close()
	for _, c := range []struct{ address, want string }{
		{code(401).URL, "--token-file"}, {code(403).URL, "needs the right"}, {code(404).URL, "whole path"}, {secure.URL, "--ca-file"},
		{"https" + strings.TrimPrefix(plain.URL, "http"), "write http://"}, {gone.URL, "nobody answers"}, {"ftp://x", "give http://"}, {"http://[", "address"},
	} {
		cl := &clock{time.Unix(1e9, 0)}
		_, err := Watch(context.Background(), []Address{{URL: c.address}}, cl.watching(time.Hour))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; %q is wanted", c.address, err, c.want)
		}
	}
}

// A password in an address is in no error and no report.
func TestNoSecretIsPrinted(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	defer srv.Close()
	cl := &clock{time.Unix(1e9, 0)}
	_, err := Watch(context.Background(), []Address{{URL: strings.Replace(srv.URL, "http://", "http://me:hunter2@", 1)}}, cl.watching(time.Hour))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// A gateway has several engines, a Prometheus is unwell or asks for a tenant: each is told, and nothing is mixed.
func TestWhatAddressesAnswer(t *testing.T) {
	page := "vllm:num_requests_running{model_name=\"m\"} 7\n"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api := strings.Contains(r.URL.Path, "/api/v1/")
		switch first := strings.Split(r.URL.Path, "/")[1]; {
		case first == "unwell" && api:
			http.Error(w, `{"status":"error","errorType":"unavailable","error":"too many outstanding requests"}`, http.StatusServiceUnavailable)
		case first == "tenant" && r.Header.Get("X-Scope-OrgID") != "team-a":
			http.Error(w, "no org id", http.StatusUnauthorized)
		case first == "old" && strings.HasSuffix(r.URL.Path, "/values"):
			fmt.Fprint(w, `{"status":"success","data":["vllm:num_requests_running"]}`)
		case first == "old" && api:
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
		case first == "big" && strings.HasSuffix(r.URL.Path, "/values"):
			fmt.Fprint(w, `{"status":"success","data":["vllm:num_requests_running"]}`)
		case first == "big" && api:
			http.Error(w, `{"status":"error","error":"query processing would load too many samples into memory"}`, http.StatusUnprocessableEntity)
		case api:
			http.NotFound(w, r)
		default:
			fmt.Fprint(w, page)
		}
	}))
	defer srv.Close()
	c := &clock{time.Unix(1e9, 0)}
	watch := func(header http.Header, paths ...string) (string, error) {
		var as []Address
		for _, p := range paths {
			as = append(as, Address{URL: srv.URL + p, Header: header})
		}
		w := c.watching(24 * time.Hour)
		w.For = 0
		inputs, err := Watch(context.Background(), as, w)
		if err != nil {
			return "", err
		}
		return text(t, inputs), nil
	}
	for _, of := range []struct {
		header http.Header
		paths  []string
		says   string
	}{
		{nil, []string{"/a/metrics", "/b/metrics"}, `in all 14 running`},
		{nil, []string{"/unwell"}, `not read .*/unwell: .*/unwell/api/v1/label/__name__/values answers 503 Service Unavailable \(too many outstanding requests\): .*try again later; what follows is of a page of metrics`},
		{nil, []string{"/tenant"}, `401, no org id\): give its tenant with --header 'X-Scope-OrgID: TENANT'`},
		{http.Header{"X-Scope-Orgid": {"team-a"}}, []string{"/tenant/metrics"}, `7 running`},
		{nil, []string{"/old"}, `names 1 metrics that are known and has no sample of them in the last 24h`},
		{nil, []string{"/big"}, `answers 422 Unprocessable Entity \(query processing would load too many samples into memory\): ask for less \(--history 1h\)`},
	} {
		got, err := watch(of.header, of.paths...)
		if err != nil {
			got = err.Error()
		}
		if !regexp.MustCompile(of.says).MatchString(got) {
			t.Errorf("%v: %s", of.paths, got)
		}
	}
}

// What is meant for one host is not told to another.
func TestHeadersStayWithTheirHost(t *testing.T) {
	var got string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("X-Api-Key")
		fmt.Fprint(w, "vllm:num_requests_running 1\n")
	}))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/metrics", http.StatusFound)
	}))
	defer srv.Close()
	c := &clock{time.Unix(1e9, 0)}
	inputs, err := Watch(context.Background(), []Address{{URL: srv.URL + "/metrics", Header: http.Header{"X-Api-Key": {"k"}}}}, c.watching(0))
	if err != nil || len(inputs) == 0 || got != "" {
		t.Errorf("%d inputs, %v; the other host was told %q", len(inputs), err, got)
	}
}
