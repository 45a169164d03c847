package web_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/web"
)

const (
	viewer   = "viewer-token-0123456789abcdef"
	operator = "operator-token-0123456789abcdef"
)

func tokens(t testing.TB) func() *web.Tokens {
	t.Helper()
	tk, err := web.ParseTokens("tokens", []byte("# who may ask\n\n  viewer "+viewer+"  \r\noperator\t"+operator+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return func() *web.Tokens { return tk }
}

// An event stream ends when its token is taken away, and others go on; so does one whose token may no longer ask, and nothing else is
// asked under it.
func TestATokenThatIsTakenAwayEndsItsStreams(t *testing.T) {
	var now atomic.Pointer[web.Tokens]
	set := func(text string) {
		t.Helper()
		tk, err := web.ParseTokens("tokens", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		now.Store(tk)
	}
	set("viewer " + viewer + "\noperator " + operator)
	l := newLive(crowdBook(t))
	srv := serve(t, l, web.Options{Tokens: now.Load, Recheck: time.Millisecond})
	watch := func(token string) *http.Response {
		t.Helper()
		r, err := http.NewRequest("GET", srv.URL+"/api/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	of, other := watch(viewer), watch(operator)
	set("operator " + operator)
	if _, err := io.Copy(io.Discard, of.Body); err != nil { // comes to its end
		t.Error(err)
	}
	l.feed.Publish(api.Event{Kind: api.EventGap, Text: "still there"})
	lines := bufio.NewScanner(other.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "still there") {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the other stream: %v", err)
	}
	if resp, body := fetch(t, "GET", srv.URL+"/api/v1/engines", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+viewer) }); resp.StatusCode != 401 {
		t.Errorf("%s %s", resp.Status, body)
	}
}

func TestTokensDecideWhoMayAskWhat(t *testing.T) {
	srv := serve(t, newLive(crowdBook(t)), web.Options{Tokens: tokens(t)})
	for _, c := range []struct {
		method, path, header string
		status               int
	}{
		{"GET", "/api/v1/engines", "", 401},
		{"GET", "/api/v1/engines", "Bearer " + viewer, 200},
		{"GET", "/api/v1/engines", "bearer " + viewer, 200},
		{"GET", "/api/v1/engines", "Bearer  " + viewer + " ", 200},
		{"GET", "/api/v1/engines", "Bearer " + operator, 200},
		{"GET", "/api/v1/engines", "Bearer " + viewer + "x", 401},
		{"GET", "/api/v1/engines", "Bearer " + viewer[:20], 401},
		{"GET", "/api/v1/engines", "Bearer", 401},
		{"GET", "/api/v1/engines", "Basic " + viewer, 401},
		{"GET", "/api/v1/engines?token=" + viewer, "", 401},
		{"GET", "/api/v1/openapi.json", "", 401},
		{"GET", "/metrics", "", 401},
		{"GET", "/metrics", "Bearer " + viewer, 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
		{"POST", "/api/v1/import", "", 401},
		{"POST", "/api/v1/import", "Bearer " + viewer, 403},
		{"POST", "/api/v1/import", "Bearer " + operator, 200},
	} {
		resp, body := fetch(t, c.method, srv.URL+c.path, func(r *http.Request) {
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
		})
		if resp.StatusCode != c.status {
			t.Errorf("%s %s with %q: %s %s, want %d", c.method, c.path, c.header, resp.Status, body, c.status)
		}
		if c.status == 401 && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s %s: no WWW-Authenticate", c.method, c.path)
		}
		if strings.Contains(string(body), viewer) || strings.Contains(string(body), operator) {
			t.Errorf("%s %s shows a token: %s", c.method, c.path, body)
		}
	}
	ctx := context.Background()
	for token, want := range map[string]any{"": new(*api.Unauthorised), "wrong-wrong-wrong-wrong": new(*api.Unauthorised), viewer: new(*api.Forbidden)} {
		c, err := client.New(srv.URL, client.Options{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Import(ctx, api.ImportQuery{}, strings.NewReader("x")); !errors.As(err, want) {
			t.Errorf("import with token %q: %v", token, err)
		}
	}
}

func TestTokenFilesAreRefusedWithTheLine(t *testing.T) {
	for text, says := range map[string]string{
		"":                                      "holds no token",
		"# only words\n":                        "holds no token",
		"viewer":                                "line 1 has 1 words",
		"viewer a b":                            "line 1 has 3 words",
		"\nadmin " + viewer:                     "line 2: role \"admin\"",
		"viewer short":                          "too few",
		"viewer " + viewer + "\u00e9":           "no HTTP header",
		"viewer " + strings.Repeat("x", 70_000): "token too long",
		"viewer " + viewer + "\noperator " + viewer + "\n": "line 2: the token stands there twice",
	} {
		_, err := web.ParseTokens("tokens.txt", []byte(text))
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "tokens.txt") {
			t.Errorf("%.40q: %v, must say %q", text, err, says)
		}
		if err != nil && strings.Contains(err.Error(), viewer) {
			t.Errorf("%.40q: the error shows a token: %v", text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if _, _, err := web.LoadTokens(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is not there: %v", err)
	}
	for mode, warns := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o644: true} {
		if err := os.WriteFile(path, []byte("viewer "+viewer), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		tk, warning, err := web.LoadTokens(path)
		if err != nil || tk.Role(viewer) != web.Viewer || (warning != "") != warns || warns && !strings.Contains(warning, "chmod 600") {
			t.Errorf("mode %04o: %v, warning %q", mode, err, warning)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Without tokens a page of the web, opened in a browser on this host, must get nothing: neither by a name that it lets point here, nor
// by sending something here.
func TestABrowserCannotBeTrickedIntoAsking(t *testing.T) {
	open := serve(t, newLive(crowdBook(t)), web.Options{Hosts: []string{"whylate.example"}})
	locked := serve(t, newLive(crowdBook(t)), web.Options{Tokens: tokens(t)})
	for host, status := range map[string]int{"evil.example": 421, "evil.example:80": 421, "localhost": 200, "localhost:7411": 200, "127.0.0.1:7411": 200, "[::1]:7411": 200, "WhyLate.example": 200, "127.0.0.1.evil.example": 421} {
		resp, body := fetch(t, "GET", open.URL+"/api/v1/engines", func(r *http.Request) { r.Host = host })
		if resp.StatusCode != status {
			t.Errorf("Host %s: %s %s, want %d", host, resp.Status, body, status)
		}
	}
	if resp, body := fetch(t, "GET", locked.URL+"/healthz", func(r *http.Request) { r.Host = "any.example" }); resp.StatusCode != 200 {
		t.Errorf("with tokens any name is right: %s %s", resp.Status, body)
	}
	for _, head := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Origin": {"https://evil.example"}}} {
		resp, body := fetch(t, "POST", open.URL+"/api/v1/import", func(r *http.Request) {
			for k := range head {
				r.Header.Set(k, head.Get(k))
			}
		})
		if resp.StatusCode != 403 {
			t.Errorf("import from a page of another site (%v): %s %s", head, resp.Status, body)
		}
	}
}
