package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
)

func dial(t *testing.T, address string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(address, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAddresses(t *testing.T) {
	for in, want := range map[string]string{"127.0.0.1:7411": "http://127.0.0.1:7411", "http://h:1/": "http://h:1", "https://whylate.example/api/v1": "https://whylate.example",
		"https://x.example/tools/whylate/": "https://x.example/tools/whylate", "localhost:1": "http://localhost:1"} {
		if c := dial(t, in, client.Options{}); c.Address() != want {
			t.Errorf("%s is %s, want %s", in, c.Address(), want)
		}
	}
	for _, wrong := range []string{"", "ftp://x", "http://", "http://u:secret@h", "http://h?x=1", "http://h#x", "http://[::1", "://"} {
		var bad *api.InvalidArgument
		if _, err := client.New(wrong, client.Options{}); !errors.As(err, &bad) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// What can go wrong on the way says which address, and what to do.
func TestFailuresOnTheWay(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	answers := func(f http.HandlerFunc) string {
		s := httptest.NewServer(f)
		t.Cleanup(s.Close)
		return s.URL
	}
	text := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + free.Addr().String()
	free.Close()
	for name, c := range map[string]struct {
		address string
		says    string
		as      any
	}{
		"nobody listens": {nobody, "whylate serve", new(*client.Unreachable)},
		"no such host":   {"http://no-such-host.invalid:7411", "no-such-host.invalid", new(*client.Unreachable)},
		"no answer": {answers(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}), "no answer within 50ms; ask for less", new(*client.Timeout)},
		"half an answer, then nothing": {answers(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"now_unix_ns": 5,`)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}), "no answer within 50ms; ask for less", new(*client.Timeout)},
		"half an answer": {answers(text(200, "application/json", `{"now_unix_ns": 5,`)), "broke off", nil},
		"an answer cut off": {answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"now_unix_ns": 5,`)
		}), "broke off", nil},
		"a page of HTML":       {answers(text(200, "text/html", "<html>welcome")), "no answer of whylate's: check the address", nil},
		"a proxy's error":      {answers(text(502, "text/html", "<html>bad \x1b[31m gateway")), "502 Bad Gateway", nil},
		"JSON of another kind": {answers(text(200, "application/json", `{"engines": "yes"}`)), "is that a whylate server", nil},
		"an unknown state":     {answers(text(200, "application/json", `[]`)), "is that a whylate server", nil},
		"somewhere else": {answers(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.example/", http.StatusFound)
		}), "sends on to \"https://evil.example/\"", nil},
		"an unknown problem":      {answers(text(418, "application/json", `{"error": {"code": "teapot", "message": "short and stout"}}`)), "short and stout", new(*client.Refused)},
		"TLS where there is none": {strings.Replace(answers(text(200, "application/json", "{}")), "http://", "https://", 1), "http or https", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cl := dial(t, c.address, client.Options{Timeout: 50 * time.Millisecond})
			if name != "no answer" && name != "half an answer, then nothing" {
				cl = dial(t, c.address, client.Options{})
			}
			_, err := cl.Engines(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("says %v, must say %q", err, c.says)
			}
			if c.as == nil || !errors.As(err, new(*client.Refused)) {
				if !strings.Contains(err.Error(), strings.TrimPrefix(c.address, "http://")) && !strings.Contains(err.Error(), c.address) {
					t.Errorf("does not name %s: %v", c.address, err)
				}
			}
			if strings.Contains(err.Error(), "\x1b") {
				t.Errorf("lets control characters through: %q", err)
			}
			if c.as != nil && !errors.As(err, c.as) {
				t.Errorf("%T is no %T", err, c.as)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := dial(t, nobody, client.Options{}).Engines(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller's own end: %v", err)
	}
}

// A newer server may say what this version has no word for: that is refused by name, not misread.
func TestANewerAnswerIsRefusedByName(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"iterations": [{"number": 1, "stop": "phase of the moon"}], "a field of tomorrow": 1}`)
	}))
	defer s.Close()
	_, err := dial(t, s.URL, client.Options{}).Iterations(context.Background(), api.IterationsQuery{})
	if err == nil || !strings.Contains(err.Error(), "phase of the moon") || !strings.Contains(err.Error(), "newer") {
		t.Errorf("%v", err)
	}
}

// Lists are fetched page by page, as long as the server has more and the caller wants more.
func TestLongListsAreFetchedInPages(t *testing.T) {
	const total = 10_400
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		v := r.URL.Query()
		var first, limit int
		fmt.Sscan(v.Get("limit"), &limit)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/requests") {
			fmt.Sscan(v.Get("page"), &first)
			l := api.RequestList{Matched: total}
			for i := first; i < min(first+limit, total); i++ {
				l.Requests = append(l.Requests, api.RequestRow{Name: fmt.Sprint(i)})
			}
			if first+limit < total {
				l.Next = fmt.Sprint(first + limit)
			}
			_ = api.WriteJSON(w, l)
			return
		}
		first = 1
		fmt.Sscan(v.Get("first"), &first)
		l := api.IterationList{Matched: total}
		for i := first; i < min(first+limit, total+1); i++ {
			l.Iterations = append(l.Iterations, api.IterationRow{Number: uint64(i)})
		}
		if first+limit <= total {
			l.Next = uint64(first + limit)
		}
		_ = api.WriteJSON(w, l)
	}))
	defer s.Close()
	c := dial(t, s.URL, client.Options{Token: "x"})
	for limit, pages := range map[int]int{0: 2, 5: 1, 10_000: 1, 10_001: 2} {
		asked = nil
		l, err := c.Requests(context.Background(), api.RequestsQuery{Limit: limit})
		want := total
		if limit > 0 {
			want = min(limit, total)
		}
		if err != nil || len(l.Requests) != want || l.Requests[want-1].Name != fmt.Sprint(want-1) || (l.Next == "") != (want == total) || len(asked) != pages {
			t.Errorf("requests, limit %d: %v, %d rows in %q", limit, err, len(l.Requests), asked)
		}
		asked = nil
		its, err := c.Iterations(context.Background(), api.IterationsQuery{Limit: limit})
		if err != nil || len(its.Iterations) != want || its.Iterations[want-1].Number != uint64(want) || (its.Next == 0) != (want == total) || len(asked) != pages {
			t.Errorf("iterations, limit %d: %v, %d rows in %q", limit, err, len(its.Iterations), asked)
		}
	}
}
