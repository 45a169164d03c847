package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api/client"
)

// A bundle is made of files, listed, verified, looked at, asked with --from and put into a server.
func TestABundleFromMakingToImport(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	changes := filepath.Join(dir, "told")
	write(t, changes, fmt.Sprintf(`{"at_unix_ns":%d,"kind":"deployment","engine":"","subject":"chat","from":"v41","to":"v42","source":"pipeline","text":"chat is v42, was v41"}`+"\n"+
		`{"at_unix_ns":1000000000,"kind":"deployment","subject":"long ago","source":"x","text":"x"}`+"\n", now.Add(-time.Minute).UnixNano()))
	out := filepath.Join(dir, "run.zip")
	const at = "../testdata/cases/C31-vllm-renames-mixed-fleet.pod-new.prom"
	if status, text, errOut := run(t, "bundle", "make", out, "demo.wlc", at, "../testdata/cases/C55-sglang-log-zoo.server.log", "../testdata/cases/C39-otlp-sibling-server-and-engine.otlp.json", changes); status != ExitOK || !strings.Contains(text, "6 files") {
		t.Fatalf("%d: %s%s", status, text, errOut)
	}
	if status, _, errOut := run(t, "bundle", "make", out, "demo.wlc"); status != ExitFailed || !strings.Contains(errOut, "there already") {
		t.Errorf("%d: %s", status, errOut)
	}
	for _, what := range []string{"ls", "verify"} {
		status, text, errOut := run(t, "bundle", what, out)
		for _, want := range []string{"demo.wlc", "capture", "changes.jsonl", "log/C55-sglang-log-zoo.server.log", "otlp/C39-otlp-sibling-server-and-engine.otlp.json.jsonl", "scrape/C31-vllm-renames-mixed-fleet.pod-new/"} {
			if status != ExitOK || !strings.Contains(text, want) {
				t.Errorf("%s: %d: no %q in %s%s", what, status, want, text, errOut)
			}
		}
	}
	if _, text, _ := run(t, "bundle", "verify", out); !strings.Contains(text, "nothing is damaged") {
		t.Error(text)
	}
	_, want, _ := run(t, "requests", "--from", "demo")
	if status, got, errOut := run(t, "requests", "--from", out); status != ExitOK || got != want {
		t.Errorf("--from: %d: %s%s", status, got, errOut)
	}
	if status, text, errOut := run(t, "look", out); status != ExitOK || !strings.Contains(strings.Join(strings.Fields(text), " "), "1 × capture") || !strings.Contains(text, "chat is v42, was v41") {
		t.Errorf("look: %d: %s%s", status, text, errOut)
	}

	s := startServe(t, filepath.Join(dir, "data"))
	s.client(t, "http", client.Options{})
	s.address = "http://" + s.address
	for range 2 { // again, it changes nothing
		status, text, errOut := run(t, "import", out, "--server", s.address, "-o", "json")
		var a imported
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatalf("%d: %s%s", status, text, errOut)
		}
		reasons := fmt.Sprint(a.NotTaken)
		if status != ExitOK || len(a.Captures) != 2 || a.Captures[0].Frames == 0 || a.Captures[1].Spans == 0 || a.Changes != 1 || len(a.Series) != 2 || a.Series[0].Samples > 0 || !strings.Contains(a.Series[0].Note, "metrics.retention.detail") || a.Series[1].Samples == 0 || len(a.NotTaken) != 1 || !strings.Contains(reasons, "long ago") {
			t.Errorf("%d: %+v", status, a)
		}
	}
	if status, text, errOut := run(t, "changes", "--server", s.address); status != ExitOK || strings.Count(text, "chat is v42, was v41") != 1 {
		t.Errorf("%d: %s%s", status, text, errOut)
	}
}

func TestVerifySaysWhatIsDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if status, _, errOut := run(t, "bundle", "make", dir, "demo.wlc"); status != ExitOK {
		t.Fatal(errOut)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := run(t, "bundle", "verify", dir); status != ExitFailed || !strings.Contains(errOut, "1 of its files") {
		t.Errorf("%d: %s", status, errOut)
	}
	if status, _, errOut := run(t, "bundle", "verify", "testdata"); status != ExitFailed || !strings.Contains(errOut, "no manifest") {
		t.Errorf("%d: %s", status, errOut)
	}
	if status, _, errOut := run(t, "import", filepath.Join(dir, "link"), "--server", "http://127.0.0.1:1"); status == ExitOK {
		t.Errorf("%d: %s", status, errOut)
	}
}
