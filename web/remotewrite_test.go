package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/whylate/whylate/web"
)

// Whoever sends samples needs the right to change what there is; asking in PromQL beside it needs none of that.
func TestRemoteWriteNeedsAnOperator(t *testing.T) {
	taken := 0
	srv := serve(t, newLive(crowdBook(t)), web.Options{Tokens: tokens(t), PromQL: http.NotFoundHandler(),
		RemoteWrite: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { taken++; w.WriteHeader(http.StatusNoContent) })})
	for _, c := range []struct {
		method, token string
		code          int
	}{{"POST", "", 401}, {"POST", viewer, 403}, {"POST", operator, 204}, {"GET", operator, 405}} {
		r, err := http.NewRequest(c.method, srv.URL+"/prometheus/api/v1/write", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.code {
			t.Errorf("%s with %q: %d, want %d", c.method, c.token, resp.StatusCode, c.code)
		}
	}
	if taken != 1 {
		t.Errorf("%d requests were handed on", taken)
	}
}
