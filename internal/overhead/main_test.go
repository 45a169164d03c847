package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/experiment/overhead"
	"github.com/whylate/whylate/internal/figure"
)

func TestPublishReplacesOneSection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const text = "before\n<!-- begin: sham -->\nold\n<!-- end: sham -->\nafter\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := publish(path, "sham", "new\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := os.ReadFile(path)
	if want := strings.Replace(text, "old", "new", 1); string(got) != want {
		t.Errorf("%s", got)
	}
	if err := publish(path, "on against off", "x"); err == nil {
		t.Error("a section that is not there was written")
	}
}

// The page has every section that is written.
func TestPageHasItsSections(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, sham := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := publish(path, section(&overhead.Report{Sham: sham}), "x\n"); err != nil {
			t.Error(err)
		}
	}
}

func TestFiguresNameWhatIsCompared(t *testing.T) {
	on := 3.5
	var out bytes.Buffer
	figures(figure.New(&out, "test"), &overhead.Report{Pairs: 6, Measures: []overhead.Comparison{
		{Name: "itl_p50", Unit: "ms", On: &on, Percent: &overhead.Interval{Mean: 1, Low: 0.5, High: 1.5}, Difference: &overhead.Interval{Mean: 2}},
		{Name: "reader_core", Unit: "%", On: &on},
		{Name: "host_gap", Unit: "µs", Verdict: overhead.Absent},
	}})
	const want = "figure overhead/pairs 6 count report - -\nfigure overhead/itl_p50_difference 1 % report - -\nfigure overhead/itl_p50_half_width 0.5000 % report - -\nfigure overhead/reader_core 3.50 % report - -\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
