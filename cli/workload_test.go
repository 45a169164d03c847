package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// fixture is the first rows of a published trace.
func fixture(name string) string { return filepath.Join("../experiment/workload/testdata", name) }

func TestGoldenOfWorkloads(t *testing.T) {
	for name, args := range map[string][]string{
		"workload-azure":    {"workload", "show", fixture("azure-conv.csv")},
		"workload-burstgpt": {"workload", "show", fixture("burstgpt.csv")},
		"workload-mooncake": {"workload", "show", fixture("mooncake.jsonl")},
		"workload-convert":  {"workload", "convert", fixture("azure-conv.csv"), "--begin", "1s", "--first", "2", "--speed", "2", "--shorten", "0.5", "--class", "chat"},
		"workload-make":     {"workload", "make", "poisson", "--rate", "5", "--prompt", "100-200", "--output", "p50=20,p99=90", "--for", "2s", "--seed", "7"},
		"workload-talk":     {"workload", "make", "conversations", "--rate", "0.5", "--turns", "3", "--instructions", "100", "--prompt", "20", "--output", "30", "--count", "5", "--seed", "3"},
		"workload-mix":      {"workload", "mix", fixture("mooncake.jsonl"), fixture("azure-code.csv") + "=0.5", "--fit", "6000"},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, args...) })
	}
}

// TestWorkloadFromLedger holds the built-in run against the load that was played for it.
func TestWorkloadFromLedger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.jsonl")
	if status, _, errOut := run(t, "workload", "from-ledger", "--from", "demo", "-o", file); status != ExitOK {
		t.Fatal(status, errOut)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{
		`"prompt_tokens":700,"output_tokens":24,"prefix":[[1,640]],"class":"shared"`: 22,
		`"prompt_tokens":64,"output_tokens":24,"n":8,"logprobs":20,"class":"fan"`:    2,
		`"prompt_tokens":64,"output_tokens":400,"cancel_after_ns":`:                  8,
		`"prompt_tokens":2400,"output_tokens":8,"class":"long"`:                      3,
		`"prompt_tokens":200,"output_tokens":900,"class":"grow"`:                     14,
		`{"at_ns":400000000,"prompt_tokens":48,"output_tokens":16,"class":"short"}`:  1,
		"\n": 232, `"prefix"`: 22, `"id"`: 0, `"traceparent"`: 0,
	} {
		if n := strings.Count(string(text), line); n != want {
			t.Errorf("%q occurs %d times, want %d", line, n, want)
		}
	}
	status, out, errOut := run(t, "workload", "show", file, "-o", "json")
	var s workloadSummary
	if err := json.Unmarshal([]byte(out), &s); status != ExitOK || err != nil || s.Requests != 232 || s.Shared != 21*640 || s.Format != "whylate" || s.Sequences != 246 {
		t.Errorf("%d %v %+v %s", status, err, s, errOut)
	}
}

func TestWorkloadRefuses(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.csv")
	os.WriteFile(bad, []byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,3180,8\n2023-11-16 18:17:03,-5,8\n2023-11-16 18:17:03,5,8\n"), 0o600)
	f := func(status int, want string, args ...string) {
		t.Helper()
		got, _, errOut := run(t, append([]string{"workload"}, args...)...)
		if got != status || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit %d: %s\nwant %d and %q", args, got, errOut, status, want)
		}
	}
	f(ExitFailed, "bad.csv: workload line 3: ContextTokens: -5: give a whole number", "show", bad)
	f(ExitOK, "2 lines left out: 1 × ContextTokens, 1 × out of order; the first: workload line 3", "show", bad, "--skip-bad")
	f(ExitOK, "1 lines left out", "show", bad, "--skip-bad", "--sort")
	f(ExitFailed, "no such file", "show", filepath.Join(dir, "absent"))
	f(ExitFailed, "it is empty", "show", "-")
	f(ExitUsage, "one workload", "show")
	f(ExitUsage, "is what is read", "convert", bad, "--skip-bad", "-o", bad)
	f(ExitUsage, "--speed 0", "convert", fixture("azure-conv.csv"), "--speed", "0")
	f(ExitUsage, "an end after the beginning", "convert", fixture("azure-conv.csv"), "--begin", "2s", "--end", "1s")
	f(ExitUsage, "--rate", "make", "poisson", "--rate", "x")
	f(ExitUsage, "rate 0", "make", "poisson", "--rate", "0", "--for", "1s")
	f(ExitUsage, "how much?", "make", "poisson")
	f(ExitUsage, "give --count", "make", "batch", "--for", "1s")
	f(ExitUsage, "--prompt: lengths", "make", "poisson", "--prompt", "0", "--count", "1")
	f(ExitUsage, `"weibull" is no kind`, "make", "weibull")
	f(ExitUsage, "weight above 0", "mix", fixture("azure-conv.csv"), fixture("azure-code.csv")+"=0")
	f(ExitOK, "3 requests", "make", "batch", "--count", "3", "--lengths", fixture("azure-code.csv"))
	if status, _, errOut := run(t, "workload", "from-ledger", "--from", filepath.Join(dir, "absent.wlc")); status != ExitNoSource {
		t.Error(status, errOut)
	}
}

// answering is an engine that answers every request with one token, and counts them.
func answering(t *testing.T) (url string, asked *atomic.Int64) {
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"choices":[{"index":0,"text":"x","finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestReplayPlaysAnyFormat(t *testing.T) {
	url, asked := answering(t)
	dir := t.TempDir()
	f := func(status int, requests int64, want string, in string, args ...string) {
		t.Helper()
		asked.Store(0)
		var out, errOut bytes.Buffer
		got := Main(append([]string{"replay", "--url", url, "--out", filepath.Join(dir, "r.wlc")}, args...), strings.NewReader(in), &out, &errOut)
		if got != status || asked.Load() != requests || !strings.Contains(out.String()+errOut.String(), want) {
			t.Errorf("%v: exit %d, %d requests\n%s%s\nwant %d, %d, %q", args, got, asked.Load(), out.String(), errOut.String(), status, requests, want)
		}
	}
	azure, err := os.ReadFile(fixture("azure-conv.csv"))
	if err != nil {
		t.Fatal(err)
	}
	f(ExitOK, 5, "5 of 5 requests sent", "", fixture("azure-code.csv"))
	f(ExitOK, 3, "3 of 3 requests sent", "", fixture("burstgpt.csv"), "--speed", "1000")
	f(ExitOK, 6, "6 of 6 requests sent", "", fixture("mooncake.jsonl"), "--clients", "2", "--max-in-flight", "2")
	f(ExitOK, 5, "5 of 5 requests sent", string(azure), "-", "--speed", "1000")

	// A bad line of a file is told before anything is sent; what comes through a pipe is played up to it.
	bad := filepath.Join(dir, "bad.csv")
	text := string(azure) + "\r\nsoon,5,5\r\n"
	os.WriteFile(bad, []byte(text), 0o600)
	f(ExitFailed, 0, "line 8: TIMESTAMP: soon", "", bad)
	f(ExitFailed, 5, "line 8: TIMESTAMP: soon", text, "-", "--speed", "1000")
	f(ExitOK, 5, "1 lines left out", "", bad, "--skip-bad", "--speed", "1000")
	f(ExitFailed, 0, "it is empty", "", "-")
	f(ExitUsage, 0, "--think with --clients", "", fixture("azure-code.csv"), "--think", "1s")
}
