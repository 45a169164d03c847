package promapi_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/metrics/promapi"
)

// forward is a server that asks the one at address, with a token.
func forward(t *testing.T, address string, change func(*promapi.Remote)) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	to := promapi.Remote{URL: u, Token: func() string { return "theirs" }, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&to)
	}
	s := httptest.NewServer(promapi.Forward(to))
	t.Cleanup(s.Close)
	return s.URL + promapi.Prefix
}

// The parameters of a question go there, our token and cookies do not; the answer comes back as it is.
func TestForward(t *testing.T) {
	var asked *http.Request
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		asked = r
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "theirs=1")
		w.WriteHeader(http.StatusUnprocessableEntity)
		io.WriteString(w, `{"status":"error","errorType":"execution","error":"too much"}`)
	}))
	defer remote.Close()
	base := forward(t, remote.URL+"/prometheus/", nil)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		form := url.Values{"query": {"up"}, "time": {"1"}}
		var body io.Reader
		address := base + "/query"
		if method == http.MethodGet {
			address += "?" + form.Encode()
		} else {
			body = strings.NewReader(form.Encode())
		}
		req, _ := http.NewRequest(method, address, body)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Authorization", "Bearer ours")
		req.Header.Set("Cookie", "ours=1")
		req.Header.Set("X-Scope-OrgID", "ours")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if status, answer := read(t, resp); status != 422 || !strings.Contains(answer, "too much") || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("%d %s %v", status, answer, resp.Header)
		}
		if asked.Method != method || asked.URL.Path != "/prometheus/api/v1/query" || asked.Form.Encode() != form.Encode() || asked.Header.Get("Authorization") != "Bearer theirs" {
			t.Errorf("asked %s %s %v %v", asked.Method, asked.URL, asked.Form, asked.Header)
		}
		for name, values := range asked.Header {
			if strings.Contains(strings.Join(values, " "), "ours") {
				t.Errorf("%s of ours went there: %v", name, values)
			}
		}
	}
	status, _ := get(t, base+"/label/model_name/values?match[]=up")
	if status != 422 || asked.URL.Path != "/prometheus/api/v1/label/model_name/values" {
		t.Errorf("%d %s", status, asked.URL)
	}
}

func TestForwardsNothingElse(t *testing.T) {
	remote := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s went there", r.Method, r.URL) }))
	defer remote.Close()
	base := forward(t, remote.URL, nil)
	for _, path := range []string{"/admin/tsdb/delete_series", "/write", "/read", "/status/config", "/label/a%2Fb/values", "/label/../values", "/label/%2e%2e/values", "/query/../admin", "/querys", ""} {
		if status, body := get(t, base+path); status != 404 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Whatever goes wrong there, the answer names the setting to change.
func TestForwardErrors(t *testing.T) {
	answering := func(status int, kind, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Location", "https://elsewhere/")
			w.WriteHeader(status)
			io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer secure.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	system := func(r *promapi.Remote) { r.TLS = func() *tls.Config { return &tls.Config{ServerName: "127.0.0.1"} } }
	for name, c := range map[string]struct {
		address string
		change  func(*promapi.Remote)
		status  int
		says    string
	}{
		"401":               {answering(401, "text/plain", "no"), nil, 502, "metrics.remote.token_file"},
		"403":               {answering(403, "application/json", "{}"), nil, 502, "needs the right to read"},
		"redirect":          {answering(302, "text/html", ""), nil, 502, "set metrics.remote.url to where it answers"},
		"a page":            {answering(200, "text/html", "<html>"), nil, 502, "what stands before /api/v1"},
		"nobody":            {gone.URL, nil, 502, "is metrics.remote.url right"},
		"unknown authority": {secure.URL, system, 502, "metrics.remote.ca"},
		"no TLS":            {strings.Replace(answering(200, "", ""), "http:", "https:", 1), system, 502, "write http://"},
		"too slow":          {hangs.URL, func(r *promapi.Remote) { r.Timeout = 50 * time.Millisecond }, 503, "metrics.query.timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := get(t, forward(t, c.address, c.change)+"/query?query=up")
			if status != c.status || !strings.Contains(body, c.says) || !strings.Contains(body, `"status":"error"`) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// An answer that is too large is cut off so that nobody takes it for whole.
func TestForwardTooLarge(t *testing.T) {
	remote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `"`+strings.Repeat("x", 1<<20)+`"`)
	}))
	defer remote.Close()
	resp, err := http.Get(forward(t, remote.URL, func(r *promapi.Remote) { r.Most = 1000 }) + "/query?query=up")
	if err == nil {
		defer resp.Body.Close()
		var b []byte
		if b, err = io.ReadAll(resp.Body); err == nil {
			t.Errorf("%d bytes, and no error", len(b))
		}
	}
}
