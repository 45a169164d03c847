package cli

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/store/storetest"
	"github.com/whylate/whylate/wire"
)

var update = flag.Bool("update", false, "accept the present output")

func init() { time.Local = time.UTC }

// run runs the command line and returns its exit status and outputs.
func run(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	status = Main(args, strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

// The commands' output on a recorded run of a real engine.
func TestGolden(t *testing.T) {
	for name, args := range map[string][]string{
		"demo":             {"demo", "--once"},
		"requests":         {"requests", "--from", "demo", "--sort", "ttft", "-n", "5"},
		"explain-stall":    {"explain", "--slowest", "inbox", "--from", "demo"},
		"explain-long":     {"explain", "steady-1", "--from", "demo"},
		"explain-queue":    {"explain", "--slowest", "queue", "--from", "demo"},
		"explain-tpot":     {"explain", "--slowest", "tpot", "--from", "demo"},
		"explain-unhurt":   {"explain", "alone-2", "--from", "demo"},
		"explain-hangup":   {"explain", "hangup-1", "--from", "demo"},
		"iterations-odd":   {"iterations", "--odd", "--from", "demo"},
		"iterations-first": {"iterations", "1", "--from", "demo"},
		"iterations-list":  {"iterations", "--first", "200", "--last", "210", "--from", "demo"},
		"iterations-long":  {"iterations", "--request", "long-1", "-n", "12", "--from", "demo"},
		"calibrate":        {"calibrate", "--from", "demo"},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name, args...)
		})
	}
}

// golden holds a command's output against the accepted one.
func golden(t *testing.T, name string, args ...string) {
	t.Helper()
	status, out, errOut := run(t, args...)
	if status != ExitOK {
		t.Fatalf("exit %d: %s", status, errOut)
	}
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out); d != "" {
		t.Errorf("whylate %s (-accepted +got):\n%s", strings.Join(args, " "), d)
	}
}

// What the recorded run has not: drafts, ranks, evictions and labels, from their frames to the text.
func TestGoldenOfEveryKindOfRecord(t *testing.T) {
	path := scenarioCapture(t, storetest.Everything, func(b []byte) []byte { return b })
	for name, args := range map[string][]string{
		"every-explain":    {"explain", "one"},
		"every-requests":   {"requests", "--labels", "--tenant", "5f0c1a2b"},
		"every-iterations": {"iterations"},
		"every-execution":  {"iterations", "1"},
		"every-drafts":     {"iterations", "2"},
		"every-evictions":  {"iterations", "4"},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, append(args, "--from", path)...) })
	}
	if status, _, errOut := run(t, "requests", "--tenant", "acme", "--from", path); status == ExitOK || !strings.Contains(errOut, "hexadecimal digits") {
		t.Errorf("a tenant's name: exit %d: %s", status, errOut)
	}
}

// The README shows what the first command prints; it must not fall behind.
func TestReadmeShowsTheDemo(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, out, _ := run(t, "demo", "--once")
	shown := 0
	for _, line := range strings.Split(out, "\n") {
		if line != "" && strings.Contains(string(readme), line) {
			shown++
		}
	}
	if shown < 25 {
		t.Errorf("only %d lines of the demo's output stand in README.md", shown)
	}
}

func TestJSONIsWhole(t *testing.T) {
	for _, args := range [][]string{{"demo", "--once"}, {"requests", "--from", "demo"}, {"explain", "--slowest", "e2e", "--from", "demo"}, {"iterations", "--from", "demo"},
		{"iterations", "1", "--from", "demo"}, {"iterations", "--odd", "--from", "demo"}, {"calibrate", "--from", "demo"}, {"version"}} {
		status, out, errOut := run(t, append(args, "-o", "json")...)
		var v map[string]any
		if err := json.Unmarshal([]byte(out), &v); status != ExitOK || err != nil || len(v) == 0 {
			t.Errorf("whylate %s: exit %d, %v %s", strings.Join(args, " "), status, err, errOut)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("WHYLATE_DATA_DIR", empty)
	notCapture := filepath.Join(empty, "x.wlc")
	if err := os.WriteFile(notCapture, []byte("this is no capture at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"explain", "no-such-id", "--from", "demo"}, ExitNotFound, "whylate requests"},
		{[]string{"explain", "grow", "--from", "demo"}, ExitNotFound, "may mean any of"},
		{[]string{"explain", "--from", "demo"}, ExitUsage, "--slowest"},
		{[]string{"explain", "a", "b"}, ExitUsage, "--help"},
		{[]string{"explain", "a", "--slowest", "ttft", "--from", "demo"}, ExitUsage, "not both"},
		{[]string{"explain", "--slowest", "beauty", "--from", "demo"}, ExitUsage, "ttft, tpot, e2e"},
		{[]string{"explain", "--at", "quarter past two", "--from", "demo"}, ExitUsage, "14:05"},
		{[]string{"requests", "--from", "demo", "-o", "yaml"}, ExitUsage, "table or json"},
		{[]string{"iterations", "0", "--from", "demo"}, ExitUsage, "number from 1"},
		{[]string{"iterations", "99999999", "--from", "demo"}, ExitUsage, "recorded iterations are"},
		{[]string{"iterations", "--engine", "other", "--from", "demo"}, ExitUsage, "there are smoke/"},
		{[]string{"calibrate", "--from", "demo", "--last", "100"}, ExitFailed, "needs 200 in all"},
		{[]string{"calibrate", "--engine", "other", "--from", "demo"}, ExitUsage, "there are smoke/"},
		{[]string{"requests"}, ExitNoSource, "whylate capture"},
		{[]string{"requests", "--from", "/no/such/file"}, ExitNoSource, "/no/such/file"},
		{[]string{"requests", "--from", notCapture}, ExitFailed, "no capture"},
		{[]string{"capture", "--from-ring", empty, filepath.Join(empty, "y.wlc")}, ExitNoSource, "whylate-vllm"},
		{[]string{"capture", "--for", "1ms", "--every", "0s"}, ExitUsage, "above 0"},
		{[]string{"replay", "/no/such/workload", "--url", "http://127.0.0.1:1"}, ExitFailed, "/no/such/workload"},
		{[]string{"teach"}, ExitUsage, "--help"},
		{[]string{"requests", "--wrong"}, ExitUsage, "--help"},
	} {
		status, _, errOut := run(t, c.args...)
		if status != c.status || !strings.Contains(errOut, c.says) {
			t.Errorf("whylate %s: exit %d, want %d; it must say %q, says: %s", strings.Join(c.args, " "), status, c.status, c.says, errOut)
		}
	}
}

// What comes from outside never reaches the terminal as control characters.
func TestHostileIDsAreHarmless(t *testing.T) {
	evil := "\x1b[31mred\x07\ttab"
	path := scenarioCapture(t, `
engine vllm depth=1
0ms     http EVIL
0ms     submit EVIL prompt=16
0ms     arrive EVIL
1ms     queue EVIL prompt=16 max=2
1..11ms iter EVIL:16
11..20ms iter EVIL end=EVIL:length
21ms    last EVIL
`, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("EVIL"), []byte(evil)[:4]) })
	for _, args := range [][]string{{"requests"}, {"explain", "--slowest", "e2e"}, {"iterations", "1"}} {
		_, out, _ := run(t, append(args, "--from", path)...)
		if strings.ContainsAny(out, "\x1b\x07") {
			t.Errorf("whylate %s lets control characters through: %q", args[0], out)
		}
	}
}

// scenarioCapture writes a scenario as a capture file, bodies changed by edit.
func scenarioCapture(t *testing.T, text string, edit func([]byte) []byte) string {
	t.Helper()
	run, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.wlc")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := wire.NewCaptureWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Sources() {
		hello, err := json.Marshal(s.Hello)
		if err != nil {
			t.Fatal(err)
		}
		id, err := w.Source(wire.Source{Name: s.Name, Hello: hello})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range s.Frames {
			frame, _, err := wire.ParseFrame(b)
			if err != nil {
				t.Fatal(err)
			}
			frame.Body = edit(frame.Body)
			if err := w.Frame(id, frame); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

const small = `
engine vllm depth=1
0ms     http one
0ms     submit one prompt=16
0ms     arrive one
1ms     queue one prompt=16 max=2
1..11ms iter one:16
11..20ms iter one end=one:length
21ms    last one
`

// Whatever form the records come in, the answer is the same.
func TestEverySourceGivesTheSameAnswer(t *testing.T) {
	file := scenarioCapture(t, small, func(b []byte) []byte { return b })
	dir := filepath.Dir(file)
	data := t.TempDir()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "capture-20261129-120000.wlc"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "capture-20261128-120000.wlc"), []byte("an older one, and no capture"), 0o644); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), "run.zip")
	f, err := os.Create(bundle)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for name, body := range map[string][]byte{"run/manifest.json": []byte("{}"), "run/engine.wlc": raw} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	_, want, _ := run(t, "explain", "one", "--from", file)
	if !strings.Contains(want, "one took 21.0 ms") {
		t.Fatalf("explanation: %s", want)
	}
	for _, from := range []string{dir, bundle, data} {
		if status, got, errOut := run(t, "explain", "one", "--from", from); got != want {
			t.Errorf("--from %s: exit %d %s\n%s", from, status, errOut, got)
		}
	}
	t.Setenv("WHYLATE_DATA_DIR", data)
	if _, got, errOut := run(t, "explain", "one"); got != want {
		t.Errorf("without --from: %s%s", errOut, got)
	}
}

// A capture that is still being written is read up to its last whole block.
func TestGrowingCapture(t *testing.T) {
	file := scenarioCapture(t, small, func(b []byte) []byte { return b })
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(raw, raw[16:40]...), 0o644); err != nil { // the beginning of a next block
		t.Fatal(err)
	}
	if status, out, errOut := run(t, "explain", "one", "--from", file); status != ExitOK || !strings.Contains(out, "one took 21.0 ms") {
		t.Errorf("exit %d: %s%s", status, out, errOut)
	}
}

func TestTimesOfDay(t *testing.T) {
	last := time.Date(2026, 11, 29, 14, 30, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"14:05":                "2026-11-29T14:05:00Z",
		"14:05:09.25":          "2026-11-29T14:05:09.25Z",
		"23:50":                "2026-11-28T23:50:00Z",
		"13:00Z":               "2026-11-29T13:00:00Z",
		"2026-11-01T00:00:00Z": "2026-11-01T00:00:00Z",
	} {
		got, err := timeOf(in, last)
		if err != nil || got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%s: %v %v, want %s", in, got, err, want)
		}
	}
}
