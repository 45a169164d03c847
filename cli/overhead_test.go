package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/experiment/overhead"
)

func TestBenchOverheadRefusesWhatMakesNoSense(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte(`{"at_ns":0,"prompt_tokens":-5,"output_tokens":1}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(t.TempDir(), "started")
	command := []string{"--", "touch", marker, "{port}"}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, ExitUsage, "nothing to compare"},
		{[]string{"--on", "http://127.0.0.1:1"}, ExitUsage, "give both"},
		{[]string{"--off", "http://127.0.0.1:1"}, ExitUsage, "give both"},
		{append([]string{"--on", "http://a", "--off", "http://b"}, command...), ExitUsage, "not both"},
		{[]string{"--on", "http://a", "--off", "http://b", "--sham"}, ExitUsage, "--sham"},
		{[]string{"--", "touch", marker}, ExitUsage, "{port}"},
		{append([]string{"--pairs", "2"}, command...), ExitUsage, "give 3 to 1000"},
		{append([]string{"--pairs", "0"}, command...), ExitUsage, "give 3 to 1000"},
		{append([]string{"--pairs", "9223372036854775807"}, command...), ExitUsage, "give 3 to 1000"},
		{append([]string{"--rate", "0"}, command...), ExitUsage, "above 0"},
		{append([]string{"--rate", "-1"}, command...), ExitUsage, "above 0"},
		{append([]string{"--rate", "NaN"}, command...), ExitUsage, "above 0"},
		{append([]string{"--rate", "+Inf"}, command...), ExitUsage, "above 0"},
		{append([]string{"--rate", "1e6", "--for", "1000h"}, command...), ExitUsage, "1 to 1000000"},
		{append([]string{"--for", "0s"}, command...), ExitUsage, "above 0"},
		{append([]string{"--for", "100ms"}, command...), ExitUsage, "0.4 requests"},
		{append([]string{"--prompt-tokens", "0"}, command...), ExitUsage, "prompt_tokens: 0"},
		{append([]string{"--output-tokens", "99999999"}, command...), ExitUsage, "output_tokens: 99999999"},
		{append([]string{"--burst", "-1"}, command...), ExitUsage, "burst of -1"},
		{append([]string{"--burst", "1000000000"}, command...), ExitUsage, "burst of 1000000000"},
		{append([]string{"--warm-up", "-1s"}, command...), ExitUsage, "warm-up -1s"},
		{append([]string{"--max-errors", "-1"}, command...), ExitUsage, "-1 errors"},
		{append([]string{"--start-limit", "-1s"}, command...), ExitUsage, "above 0"},
		{append([]string{"--reader", "nobody"}, command...), ExitUsage, "agent, capture, none"},
		{append([]string{"-o", "yaml"}, command...), ExitUsage, "table or json"},
		{append([]string{"--workload", "/no/such/file"}, command...), ExitFailed, "/no/such/file"},
		{append([]string{"--workload", bad}, command...), ExitFailed, "workload line 1: prompt_tokens: -5"},
		{append([]string{"--workload", "-"}, command...), ExitUsage, "empty"},
		{append([]string{"--token-file", "/no/such/token"}, command...), ExitFailed, "/no/such/token"},
		{append([]string{"--wrong"}, command...), ExitUsage, "--help"},
		{[]string{"--on", "ftp://x", "--off", "ftp://x"}, ExitFailed, `base URL "ftp://x"`},
	} {
		status, out, errOut := run(t, append([]string{"bench", "overhead"}, c.args...)...)
		if status != c.status || !strings.Contains(errOut, c.says) || out != "" {
			t.Errorf("%v: exit %d, want %d; it must say %q, says: %s%s", c.args, status, c.status, c.says, out, errOut)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a command was started although its flags make no sense")
	}
	if status, _, errOut := run(t, "bench", "speed"); status != ExitUsage {
		t.Errorf("exit %d: %s", status, errOut)
	}
}

// Two running endpoints, compared as a table and as JSON.
func TestBenchOverheadOfEndpoints(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 2 {
			fmt.Fprint(w, `data: {"id":"x","choices":[{"index":0,"text":"x","finish_reason":null}]}`+"\n\n")
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	}))
	defer s.Close()
	args := []string{"bench", "overhead", "--on", s.URL, "--off", s.URL + "/v1", "--pairs", "4", "--rate", "1000", "--for", "20ms", "--warm-up", "0s", "--burst", "3"}
	status, out, errOut := run(t, args...)
	for _, want := range []string{"4 pairs of runs", "20 requests", "then 3 at once", "output tokens/s, burst", "Two servers were compared", "not measured: gap between iterations"} {
		if status != ExitOK || !strings.Contains(out, want) {
			t.Errorf("exit %d %s: no %q in\n%s", status, errOut, want, out)
		}
	}
	status, out, errOut = run(t, append(args, "-o", "json")...)
	var r overhead.Report
	if err := json.Unmarshal([]byte(out), &r); status != ExitOK || err != nil || r.Pairs != 4 || len(r.Runs) != 8 || len(r.Measures) == 0 || len(r.Notes) == 0 {
		t.Errorf("exit %d %s %v: %s", status, errOut, err, out)
	}
	s.Close()
	if status, out, errOut := run(t, args...); status != ExitFailed || out != "" || !strings.Contains(errOut, "did not complete") || !strings.Contains(errOut, "nothing can be said") {
		t.Errorf("a dead endpoint: exit %d %s%s", status, out, errOut)
	}
}
