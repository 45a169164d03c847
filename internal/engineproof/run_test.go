package engineproof

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/figure"
)

func TestReadLogTakesIterationsWithTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.log")
	line := "(EngineCore pid=7) INFO [core.py:1] Iteration(%): 1 context requests, 64 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 12.50 ms\n"
	empty := "Iteration(1): 0 context requests, 0 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 0.10 ms\n"
	text := strings.Replace(line, "%", "0", 1) + empty + strings.Replace(line, "%", "2", 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var r Run
	if err := r.ReadLog(path); err != nil || len(r.Log) != 2 || r.Log[1] != (LogLine{2, 66, 12.5}) {
		t.Errorf("%v, %v", r.Log, err)
	}
	if err := os.WriteFile(path, []byte(text+"WARNING whylate disabled a hook after an error: Scheduler.schedule: …\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.ReadLog(path); err == nil {
		t.Error("a hook that disabled itself is no error")
	}
}

func TestCounterAddsUpItsSeries(t *testing.T) {
	r := Run{Metrics: "# TYPE a counter\na{e=\"0\"} 1\na{e=\"1\"} 2.5\na_total 100\nb 7\n"}
	if v, ok := r.Counter("a"); !ok || v != 3.5 {
		t.Errorf("%v, %v", v, ok)
	}
	if _, ok := r.Counter("c"); ok {
		t.Error("there is no c")
	}
}

func TestReportCountsWhatFailed(t *testing.T) {
	var out bytes.Buffer
	r := Report{Sheet: figure.New(&out, "make"), Out: &out}
	r.Check(true, "one")
	r.Skip("two")
	if !r.Conclude("proof") {
		t.Error("nothing failed")
	}
	if r.Check(false, "three"); r.Conclude("proof") {
		t.Error("one failed")
	}
	want := "ok    one\nskip  two\nproof: all 1 checks passed\nFAIL  three\nproof: 1 of 2 checks FAILED\n  three\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
