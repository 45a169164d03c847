package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// simulated plays a small workload and returns the capture's path and what was printed.
func simulated(t *testing.T, args ...string) (path, out string) {
	t.Helper()
	load := filepath.Join(t.TempDir(), "load.jsonl")
	text := `{"at_ns":0,"prompt_tokens":200,"output_tokens":20,"id":"first"}
{"at_ns":1000000,"prompt_tokens":100,"output_tokens":10,"n":2,"class":"fan"}
{"at_ns":2000000,"prompt_tokens":300,"output_tokens":5,"cancel_after_chunks":2}
`
	if err := os.WriteFile(load, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "out.wlc")
	status, out, errOut := run(t, append([]string{"simulate", load, "-o", path}, args...)...)
	if status != ExitOK {
		t.Fatalf("status %d: %s", status, errOut)
	}
	return path, out
}

func TestASimulatedRunIsReadAsAnyOther(t *testing.T) {
	path, out := simulated(t, "--seed", "3")
	if !strings.Contains(out, "3 requests in 3 attempts: 2 answered, 0 refused, 0 timed out, 1 hung up.") {
		t.Error(out)
	}
	status, out, errOut := run(t, "explain", "first", "--from", path)
	if status != ExitOK || !strings.Contains(out, "200 prompt tokens (0 from cache), 20 output tokens") || !strings.Contains(out, "unexplained") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
	status, out, _ = run(t, "simulate", "--check", path)
	if status != ExitOK || !strings.Contains(out, "100.00 %") || strings.Contains(out, "refused") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestOneSeedGivesOneFile(t *testing.T) {
	read := func(seed string) []byte {
		path, _ := simulated(t, "--like", "demo", "--replicas", "2", "--router", "prefix-aware", "--seed", seed)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !bytes.Equal(read("7"), read("7")) || bytes.Equal(read("7"), read("8")) {
		t.Error("a seed is not a capture")
	}
}

func TestTheDemoIsCheckedFreeRunning(t *testing.T) {
	status, out, errOut := run(t, "simulate", "--check", "demo")
	if status != ExitOK || !strings.Contains(out, "5966") || !strings.Contains(out, "100.00 %") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
	status, out, _ = run(t, "simulate", "--check", "demo", "--output", "json")
	if status != ExitOK || !strings.Contains(out, `"right_of_nontrivial": 1199`) {
		t.Errorf("status %d\n%s", status, out)
	}
}

// What a data sheet tells are ratios: no duration is printed.
func TestAPresetSaysThatItsTimesAreRatios(t *testing.T) {
	_, out := simulated(t, "--preset", "h100-8b", "--set", "num_gpu_blocks=4000", "--set", "max_num_batched_tokens=512")
	if !strings.Contains(out, "only quotients") || strings.Contains(out, "simulated time") {
		t.Error(out)
	}
}

func TestSimulateRefusesByName(t *testing.T) {
	load := filepath.Join(t.TempDir(), "load.jsonl")
	if err := os.WriteFile(load, []byte(`{"at_ns":0,"prompt_tokens":2,"output_tokens":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out.wlc")
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{ExitUsage, "one workload", nil},
		{ExitUsage, "captures to check", []string{"--check"}},
		{ExitUsage, "--router", []string{load, "--router", "random"}},
		{ExitUsage, "no_such", []string{load, "--set", "no_such=1"}},
		{ExitUsage, "name=value", []string{load, "--set", "block_size"}},
		{ExitUsage, "--preset", []string{load, "--preset", "h100-8b", "--like", "demo"}},
		{ExitUsage, "h100-8b", []string{load, "--preset", "b200"}},
		{ExitUsage, "--think", []string{load, "--think", "1s"}},
		{ExitFailed, "use at most", []string{load, "--preset", "h100-8b", "--set", "num_gpu_blocks=1000000"}},
		{ExitFailed, "0.1.0", []string{load, "--vllm", "0.1.0"}},
		{ExitFailed, "raise the one", []string{load, "--set", "num_gpu_blocks=10"}},
		{ExitFailed, "absent.jsonl", []string{"absent.jsonl"}},
		{ExitNoSource, "absent.wlc", []string{"--check", "absent.wlc"}},
		{ExitNoSource, "absent.wlc", []string{load, "--like", "absent.wlc"}},
		{ExitFailed, load, []string{"--check", load}},
	} {
		status, _, errOut := run(t, append([]string{"simulate", "-o", out}, c.args...)...)
		if status != c.status || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: status %d, want %d with %q: %s", c.args, status, c.status, c.want, errOut)
		}
	}
}
