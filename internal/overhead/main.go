// Command overhead measures on a real engine what whylate costs it: it runs 'whylate bench overhead' on vLLM with the tiny model, prints
// the comparison and its figures, and with FIGURES=1 writes both where they are published. It is what 'make overhead' runs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/experiment/overhead"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/figure"
)

const page = "docs/overhead.md"

func main() {
	version := flag.String("vllm", "0.32.0", "version of vLLM")
	length := flag.Duration("for", 25*time.Second, "length of a run's load")
	pairs := flag.Int("pairs", 6, "pairs of runs")
	sham := flag.Bool("sham", false, "off against off")
	keep := flag.String("json", "", "`file` for the whole report, with the values of each run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *version, *keep, *length, *pairs, *sham); err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, version, keep string, length time.Duration, pairs int, sham bool) error {
	python, err := engineenv.Python(ctx, version)
	if errors.Is(err, engineenv.ErrNotInstallable) {
		fmt.Println("overhead: NOT RUN: vLLM could not be installed on this machine; nothing was measured")
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "whylate-overhead-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	whylate := filepath.Join(dir, "whylate")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", whylate, "./cmd/whylate").CombinedOutput(); err != nil {
		return fmt.Errorf("build whylate: %w\n%s", err, out)
	}
	if err := engineenv.Prepare(ctx, python, dir); err != nil {
		return err
	}
	out, err := bench(ctx, whylate, engineenv.Options{Python: python, Dir: dir}, length, pairs, sham)
	if err != nil {
		return err
	}
	if keep != "" {
		if err := os.WriteFile(keep, out, 0o644); err != nil {
			return err
		}
	}
	report := &overhead.Report{}
	if err := json.Unmarshal(out, report); err != nil {
		return fmt.Errorf("whylate bench overhead -o json: %w", err)
	}
	report.Servers = fmt.Sprintf("vLLM %s on a CPU, a fresh one a run, a model of four small layers, 16 sequences, 256 tokens an iteration; rings read by whylate agent", version)
	var table bytes.Buffer
	if err := report.Write(&table); err != nil {
		return err
	}
	fmt.Print(table.String())
	sheet := figure.New(os.Stdout, "make overhead")
	figures(sheet, report)
	if err := sheet.Save("docs/figures.tsv"); err != nil {
		return err
	}
	if os.Getenv("FIGURES") != "1" || os.Getenv("CI") != "" {
		return nil
	}
	return publish(page, section(report), conditions(pairs, length)+"\n\n```\n"+table.String()+"```\n")
}

// bench runs the command line as a person would, and returns its JSON.
func bench(ctx context.Context, whylate string, o engineenv.Options, length time.Duration, pairs int, sham bool) ([]byte, error) {
	argv, env := o.Command(0)
	argv[slices.Index(argv, "--port")+1] = overhead.PortMark
	args := append([]string{"bench", "overhead", "-o", "json", "--pairs", fmt.Sprint(pairs), "--for", length.String(), "--rate", "10", "--prompt-tokens", "64",
		"--output-tokens", "32", "--burst", "96", fmt.Sprintf("--sham=%v", sham), "--"}, argv...)
	cmd := exec.CommandContext(ctx, whylate, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // so that it stops its servers
	cmd.WaitDelay = time.Minute
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("whylate bench overhead: %w", err)
	}
	return out, nil
}

// figures are, of each measure, the mean difference and half its interval; of what is there only with the probe, its mean.
func figures(s *figure.Sheet, r *overhead.Report) {
	area := "overhead/"
	if r.Sham {
		area = "overhead_sham/"
	}
	s.Report(area+"pairs", float64(r.Pairs), "count")
	for _, c := range r.Measures {
		unit := strings.NewReplacer("µ", "u").Replace(c.Unit)
		i := c.Difference
		if c.Percent != nil {
			i, unit = c.Percent, "%"
		}
		switch {
		case i != nil:
			s.Report(area+c.Name+"_difference", i.Mean, unit)
			s.Report(area+c.Name+"_half_width", i.Half(), unit)
		case c.On != nil:
			s.Report(area+c.Name, *c.On, unit)
		}
	}
}

// conditions is under what the numbers hold.
func conditions(pairs int, length time.Duration) string {
	commit := "unknown"
	if out, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Measured on %s at commit %s, %s, %d cores: `make overhead PAIRS=%d LOAD=%v`.",
		time.Now().UTC().Format(time.DateOnly), commit, processor(), runtime.NumCPU(), pairs, length)
}

func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, ok := strings.Cut(string(b), "model name\t: ")
	if !ok {
		return runtime.GOARCH
	}
	name, _, _ := strings.Cut(rest, "\n")
	return name
}

// section is which part of the page a report belongs to.
func section(r *overhead.Report) string {
	if r.Sham {
		return "sham"
	}
	return "on against off"
}

// publish replaces what stands between the marks of a section.
func publish(path, section, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- begin: "+section+" -->\n", "<!-- end: "+section+" -->"
	before, rest, ok1 := strings.Cut(string(b), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s: there are no lines %q and %q to write between", path, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(path, []byte(before+begin+text+end+after), 0o644)
}
