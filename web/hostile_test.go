package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/web"
)

// Whatever is in an address: an answer with a status of the 4xx, as JSON that names the remedy, without control characters; and the
// server goes on.
func TestHostileAddresses(t *testing.T) {
	srv := serve(t, newLive(crowdBook(t)), web.Options{})
	long := strings.Repeat("a", 5000)
	for address, status := range map[string]int{
		"/api/v1/requests/" + long:                             400,
		"/api/v1/requests/" + strings.Repeat("a", web.Longest): 404,
		"/api/v1/requests/..%2f..%2fetc%2fpasswd":              404,
		"/api/v1/requests/%2e%2e":                              404,
		"/api/v1/requests/%00":                                 400,
		"/api/v1/requests/%1b%5b31m":                           400,
		"/api/v1/requests/%0d%0aSet-Cookie:%20x=1":             400,
		"/api/v1/requests/%ff%fe":                              400,
		"/api/v1/requests/%c2%85":                              400, // a control character beyond ASCII
		"/api/v1/requests/short/../../../etc/passwd":           404,
		"/api/v1/requests/'%20OR%201=1--":                      404,
		"/api/v1/requests/<script>":                            404,
		"/api/v1/requests/":                                    404,
		"/api/v1/requests?limit=-1":                            400,
		"/api/v1/requests?limit=0":                             400,
		"/api/v1/requests?limit=1e3":                           400,
		"/api/v1/requests?limit=99999999999999999999":          400,
		"/api/v1/requests?limit=10001":                         400,
		"/api/v1/requests?page=-1":                             400,
		"/api/v1/requests?page=%00":                            400,
		"/api/v1/requests?page=999999999":                      200,
		"/api/v1/requests?at=yesterday":                        400,
		"/api/v1/requests?at=9999-01-01T00:00:00Z":             400,
		"/api/v1/requests?at=0001-01-01T00:00:00Z":             400,
		"/api/v1/requests?from=-5":                             400,
		"/api/v1/requests?from=99999999999999999999999":        400,
		"/api/v1/requests?over=-2s":                            400,
		"/api/v1/requests?over=2":                              400,
		"/api/v1/requests?over=NaN":                            400,
		"/api/v1/requests?sort=" + long:                        400,
		"/api/v1/requests?sort=ttft%00":                        400,
		"/api/v1/requests?%zz=1":                               400,
		"/api/v1/requests?a;b":                                 400,
		"/api/v1/requests?sort=ttft&sort=ttft":                 400,
		"/api/v1/requests?" + strings.Repeat("x=1&", 2000):     400,
		"/api/v1/explain?id=short&slowest=ttft":                400,
		"/api/v1/explain?id=%2F":                               404,
		"/api/v1/iterations/0":                                 400,
		"/api/v1/iterations/-1":                                400,
		"/api/v1/iterations/18446744073709551615":              400,
		"/api/v1/iterations/18446744073709551616":              400,
		"/api/v1/iterations/1.5":                               400,
		"/api/v1/iterations/0x10":                              400,
		"/api/v1/iterations?first=18446744073709551615":        200,
		"/api/v1/iterations?last=18446744073709551615&limit=2": 200,
		"/api/v1/iterations?first=5&last=2":                    200,
		"/api/v1/iterations?engine=" + long:                    400,
		"/api/v1/iterations?request=..":                        404,
		"/api/v1/events?since=%0a%0adata:%20x":                 400,
		"/api/v1/events?since=x":                               400,
		"/api/v2/requests":                                     404,
		"/":                                                    404,
		"/etc/passwd":                                          404,
		"/debug/pprof/":                                        404,
		"/api/v1/openapi.json/x":                               404,
	} {
		resp, body := fetch(t, "GET", srv.URL+address, nil)
		if resp.StatusCode == 301 || resp.StatusCode == 307 { // a path with .. in it is sent on to the path without
			resp, body = fetch(t, "GET", srv.URL+resp.Header.Get("Location"), nil)
		}
		if resp.StatusCode != status {
			t.Errorf("%.80s: %s %.300s, want %d", address, resp.Status, body, status)
			continue
		}
		if status == 200 {
			continue
		}
		var p api.ProblemBody
		if err := json.Unmarshal(body, &p); err != nil || p.Error.Code == "" || p.Error.Message == "" || p.Error.Hint == "" {
			t.Errorf("%.80s: %s", address, body)
		}
		if len(body) > 4000 || bytes.ContainsAny(body, "\x00\x1b\r") {
			t.Errorf("%.80s: the answer repeats what was sent: %.300q", address, body)
		}
		if resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("%.80s sets a header", address)
		}
	}
}

func TestEveryAnswerHasTheSafeHeaders(t *testing.T) {
	srv := serve(t, newLive(crowdBook(t)), web.Options{})
	for _, address := range []string{"/api/v1/engines", "/api/v1/none", "/healthz", "/metrics", "/api/v1/requests?x=1"} {
		resp, _ := fetch(t, "GET", srv.URL+address, nil)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
			if resp.Header.Get(name) != want {
				t.Errorf("%s: %s is %q", address, name, resp.Header.Get(name))
			}
		}
		if resp.Header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v", address, resp.Header)
		}
	}
}

// conversation is a bare connection: what a client of net/http would not send.
func conversation(t *testing.T, address string, lines ...string) (*bufio.Reader, net.Conn) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	for _, l := range lines {
		if _, err := io.WriteString(c, l); err != nil {
			break // the server has hung up already
		}
	}
	return bufio.NewReader(c), c
}

func statusLine(r *bufio.Reader) string {
	line, err := r.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

func TestHostileConnections(t *testing.T) {
	srv := serve(t, newLive(crowdBook(t)), web.Options{ReadTimeout: 50 * time.Millisecond, MaxImport: 1000})
	for name, c := range map[string]struct{ send, answer string }{
		"a body that stops coming":        {"POST /api/v1/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc", "408"},
		"a chunked body that stops":       {"POST /api/v1/import HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "408"},
		"a body that is too long":         {"POST /api/v1/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n", "413"},
		"a lying length":                  {"POST /api/v1/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n", "400"},
		"a chunked body that is too long": {"POST /api/v1/import HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + strings.Repeat("x", 0x800) + "\r\n0\r\n\r\n", "413"},
		"a GET with a body":               {"GET /api/v1/engines HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc", "400"},
		"no host":                         {"GET /api/v1/engines HTTP/1.1\r\n\r\n", "400"},
		"two lengths":                     {"POST /api/v1/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "400"},
		"no HTTP":                         {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
		"huge headers":                    {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 200_000) + "\r\n\r\n", "431"},
		"an odd method":                   {"BREW /api/v1/engines HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"},
		"CONNECT":                         {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "421"},
		"an absolute address":             {"GET http://evil.example/api/v1/engines HTTP/1.1\r\nHost: localhost\r\n\r\n", "421"},
		"HEAD":                            {"HEAD /api/v1/engines HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"},
		"nothing wrong":                   {"GET /healthz HTTP/1.0\r\n\r\n", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := conversation(t, srv.URL, c.send)
			if line := statusLine(r); !strings.Contains(line, " "+c.answer) && !(c.answer == "431" && strings.Contains(line, "reset")) {
				t.Errorf("answered %q, want %s", line, c.answer)
			}
		})
	}
	if resp, _ := fetch(t, "GET", srv.URL+"/healthz", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %s", resp.Status)
	}
}

// stalled answers only when it is told to, or when its time is up.
type stalled struct {
	api.Service
	asked, go_ chan struct{}
}

func (s *stalled) Engines(ctx context.Context) (*api.EngineList, error) {
	s.asked <- struct{}{}
	select {
	case <-s.go_:
		return &api.EngineList{}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the engines: %w", ctx.Err())
	}
}

func TestOverloadIsToldAtOnce(t *testing.T) {
	s := &stalled{server.NewLocal(crowdBook(t)), make(chan struct{}), make(chan struct{})}
	srv := serve(t, s, web.Options{Concurrent: 2})
	done := make(chan int, 2)
	for range 2 {
		go func() {
			resp, err := http.Get(srv.URL + "/api/v1/engines")
			if err != nil {
				done <- 0
				return
			}
			resp.Body.Close()
			done <- resp.StatusCode
		}()
	}
	<-s.asked
	<-s.asked
	resp, body := fetch(t, "GET", srv.URL+"/api/v1/odd", nil)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), "2 questions") {
		t.Errorf("the third of two: %s %s", resp.Status, body)
	}
	if resp, _ := fetch(t, "GET", srv.URL+"/healthz", nil); resp.StatusCode != 200 {
		t.Errorf("health under overload: %s", resp.Status)
	}
	close(s.go_)
	for range 2 {
		if status := <-done; status != 200 {
			t.Errorf("one of the first two: %d", status)
		}
	}
	if resp, _ := fetch(t, "GET", srv.URL+"/api/v1/odd", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %s", resp.Status)
	}
}

func TestAQuestionHasATimeLimit(t *testing.T) {
	s := &stalled{server.NewLocal(crowdBook(t)), make(chan struct{}, 1), nil}
	srv := serve(t, s, web.Options{Timeout: 20 * time.Millisecond})
	resp, body := fetch(t, "GET", srv.URL+"/api/v1/engines", nil)
	if resp.StatusCode != 504 || !strings.Contains(string(body), "ask for less") {
		t.Errorf("%s %s", resp.Status, body)
	}
}
