package web_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/web"
)

// No address makes the server fail.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"requests?sort=ttft&limit=3&at=2027-01-15T08:00:01Z", "requests/short", "requests/%2e%2e%2f", "iterations?first=1&last=3&request=big-1", "iterations/7?engine=test", "explain?slowest=queue&over=1ms", "events?since=run:1", "gaps?limit=1"} {
		f.Add(seed)
	}
	h := web.New(server.NewLocal(crowdBook(f)), web.Options{Log: quiet})
	f.Fuzz(func(t *testing.T, address string) {
		if strings.ContainsAny(address, " \r\n\t") || strings.Contains(address, "\x00") {
			return // no request line holds these
		}
		defer func() {
			if p := recover(); p != nil && !strings.Contains(p.(string), "invalid NewRequest") {
				panic(p)
			}
		}()
		r := httptest.NewRequest("GET", "/api/v1/"+address, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != 501 {
			t.Errorf("%q: %d %s", address, w.Code, w.Body)
		}
	})
}

// A token file is read or refused, and never shows a token in an error.
func FuzzTokens(f *testing.F) {
	f.Add("viewer 0123456789abcdef\noperator fedcba9876543210\n")
	f.Add("# x\n\nviewer\t\x00")
	f.Fuzz(func(t *testing.T, text string) {
		tk, err := web.ParseTokens("f", []byte(text))
		if (tk == nil) == (err == nil) {
			t.Fatal(tk, err)
		}
		if tk != nil && tk.Role("") != web.Public {
			t.Error("no token is a token")
		}
	})
}
