package diagnose_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

var update = flag.Bool("update", false, "accept the present answers")

func init() { time.Local = time.UTC }

// Each file is a scenario and the accepted explanations of requests in it: who is guilty, who is innocent, and what cannot be told.
func TestExplain(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			run, err := scenario.Parse(string(archive.Files[0].Data))
			if err != nil {
				t.Fatal(err)
			}
			b, err := run.Book()
			if err != nil {
				t.Fatal(err)
			}
			l := query.Open(b)
			for i := 1; i < len(archive.Files); i++ {
				f := &archive.Files[i]
				name, ok := strings.CutPrefix(f.Name, "explain ")
				if !ok {
					t.Fatalf("section %q: want 'explain ID'", f.Name)
				}
				r, err := l.Find(name)
				if err != nil {
					t.Fatal(err)
				}
				got := print(diagnose.Explain(l, r))
				if *update {
					f.Data = []byte(got)
				} else if d := cmp.Diff(string(f.Data), got); d != "" {
					t.Errorf("%s (-accepted +got):\n%s", f.Name, d)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// print writes an explanation in the shortest form that holds all its claims.
func print(x *diagnose.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", x.Headline)
	if l := x.Request.Labels; l != (ledger.Labels{}) {
		fmt.Fprintf(&b, "labels %+v\n", l)
	}
	if s := x.Request.Speculation; s != nil {
		fmt.Fprintf(&b, "drafted %d, accepted %d, rejected %d, rate %.2f\n", s.Drafted, s.Accepted, s.Rejected, s.Rate)
	}
	for _, l := range x.Account.Lines {
		if l.NS == 0 && len(l.Splits) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-11s %9.1f ms", l.Part, float64(l.NS)/1e6)
		for _, s := range l.Splits {
			mark := ""
			if s.WithinError {
				mark = " (within model error)"
			}
			fmt.Fprintf(&b, " · %s %.1f%s", s.Name, float64(s.NS)/1e6, mark)
		}
		fmt.Fprintln(&b)
	}
	for _, f := range x.Findings {
		fmt.Fprintf(&b, "[%s] %.1f ms of %s: %s\n", f.ID, float64(f.NS)/1e6, f.Part, f.Text)
		for _, c := range f.Culprits {
			fmt.Fprintf(&b, "    %s %s: %s", c.Kind, c.ID, c.Role)
			if c.NS != 0 {
				fmt.Fprintf(&b, " %.1f ms", float64(c.NS)/1e6)
			}
			if c.Detail != "" {
				fmt.Fprintf(&b, " (%s)", c.Detail)
			}
			fmt.Fprintln(&b)
		}
	}
	if f := x.InFlight; f != nil {
		fmt.Fprintf(&b, "in flight: iteration %d for %.1f ms, members %v\n", f.Iteration, float64(f.For)/1e6, f.Members)
	}
	for _, n := range x.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, g := range x.Basis.Gaps {
		fmt.Fprintf(&b, "gap: %s\n", g)
	}
	return b.String()
}
