package cli

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/metrics"
)

// promql is the answer of a server's PromQL API to an instant query, with the token where there is one.
func (s *serving) promql(t *testing.T, query, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+s.address+"/prometheus/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A server's own health can be asked for in PromQL, and what it was before a restart too.
func TestServeTimeSeries(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("viewer viewer-token-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, dir, "WHYLATE_TOKENS_FILE="+tokens)
	if status, body := s.promql(t, "1", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", status, body)
	}
	await := func(samples string) {
		t.Helper()
		for wait := time.After(metrics.OwnEvery * 2 / 3); ; {
			status, body := s.promql(t, `sum(count_over_time(whylate_log_bytes{job="whylate"}[1h]))`, "viewer-token-0123456789")
			if strings.HasSuffix(body, `,"`+samples+`"]}]}}`) {
				return
			}
			select {
			case <-wait:
				t.Fatalf("want %s samples: %d %s", samples, status, body)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	await("1")
	s.stop()
	s = startServe(t, dir, "WHYLATE_TOKENS_FILE="+tokens)
	await("2") // the first of this life, soon, and that of the life before
}
