// Package figure prints what benchmarks and proofs measure, one line a figure (DESIGN §13), and keeps docs/figures.tsv.
package figure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Sheet collects the figures of one run of one command.
type Sheet struct {
	out     io.Writer
	command string // what gives these figures: "make engine-smoke"
	rows    []row
	Over    []string // names of the figures that missed their budget
}

type row struct{ name, value, unit, budget, verdict string }

// New begins a sheet; command is what a person runs to get these figures again.
func New(out io.Writer, command string) *Sheet { return &Sheet{out: out, command: command} }

// Report prints a figure that has no budget.
func (s *Sheet) Report(name string, value float64, unit string) {
	s.print(row{name, number(value), unit, "-", "-"}, "report -")
}

// AtMost prints a figure that must not exceed its budget.
func (s *Sheet) AtMost(name string, value float64, unit string, budget float64) bool {
	return s.judge(name, value, unit, "<=", budget, value <= budget)
}

// AtLeast prints a figure that must reach its budget.
func (s *Sheet) AtLeast(name string, value float64, unit string, budget float64) bool {
	return s.judge(name, value, unit, ">=", budget, value >= budget)
}

func (s *Sheet) judge(name string, value float64, unit, sign string, budget float64, ok bool) bool {
	verdict := "ok"
	if !ok {
		verdict = "over"
		s.Over = append(s.Over, name)
	}
	b := sign + " " + number(budget)
	s.print(row{name, number(value), unit, b, verdict}, b)
	return ok
}

func (s *Sheet) print(r row, budget string) {
	s.rows = append(s.rows, r)
	fmt.Fprintf(s.out, "figure %s %s %s %s %s\n", r.name, r.value, r.unit, budget, r.verdict)
}

func number(v float64) string {
	switch a := max(v, -v); {
	case v == float64(int64(v)) && a < 1e15:
		return fmt.Sprintf("%d", int64(v))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

const header = "area/name\tvalue\tunit\tbudget\tverdict\tdate\tcommit\tcommand"

// Save writes the figures into the table at path, replacing rows of the same name, if FIGURES=1 is set and CI is not.
func (s *Sheet) Save(path string) error {
	if os.Getenv("FIGURES") != "1" || os.Getenv("CI") != "" {
		return nil
	}
	rows := map[string]string{}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, line := range strings.Split(string(old), "\n") {
		if name, _, ok := strings.Cut(line, "\t"); ok && line != header {
			rows[name] = line
		}
	}
	commit := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	for _, r := range s.rows {
		rows[r.name] = strings.Join([]string{r.name, r.value, r.unit, r.budget, r.verdict, time.Now().UTC().Format("2006-01-02"), commit, s.command}, "\t")
	}
	lines := []string{header}
	for _, line := range rows {
		lines = append(lines, line)
	}
	slices.SortFunc(lines[1:], cmp.Compare[string])
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}
