// Command whatifproof measures how far predictions of the simulator are from what a real engine does. It runs the same load on a real vLLM
// with three settings: as it is, with a smaller token budget, and with more blocks. From the first run alone it predicts
//
//   - the second half of that run, free running, with an iteration time learned from the first half;
//   - what each change makes different, which the other two runs then show.
//
// It is what 'make whatif-proof' runs; docs/fidelity.md says how to read what it prints. WHATIF_DIR=dir keeps the captures there; called
// again with the same folder it only judges again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/experiment/whatif"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/ledger"
)

// arm is one way in which the engine is run.
type arm struct {
	name string
	args []string // that the engine is started with
	set  []string // the same, as a question has it
}

var arms = []arm{
	{name: "base"},
	{"budget", []string{"--max-num-batched-tokens", "64"}, []string{"max_num_batched_tokens=64"}},
	{"blocks", []string{"--num-gpu-blocks-override", "400"}, []string{"num_gpu_blocks=400"}},
}

func main() {
	version := flag.String("version", "0.32.0", "of vLLM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	sheet := figure.New(os.Stdout, "make whatif-proof")
	err := run(ctx, sheet, *version)
	switch {
	case errors.Is(err, engineenv.ErrNotInstallable):
		fmt.Println("whatif-proof: NOT RUN: vLLM could not be installed on this machine; nothing was measured on a real engine")
		sheet.AtLeast("whatif/engine_ran", 0, "count", 1)
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "whatif-proof:", err)
		os.Exit(1)
	}
	if err := sheet.Save("docs/figures.tsv"); err != nil {
		fmt.Fprintln(os.Stderr, "whatif-proof:", err)
		os.Exit(1)
	}
	if len(sheet.Over) > 0 {
		fmt.Printf("whatif-proof: over: %s\n", strings.Join(sheet.Over, ", "))
	}
}

func run(ctx context.Context, sheet *figure.Sheet, version string) error {
	dir := os.Getenv("WHATIF_DIR")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "whylate-whatif-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	books := map[string]*ledger.Book{}
	for i := range arms {
		b, err := read(filepath.Join(dir, arms[i].name))
		if errors.Is(err, os.ErrNotExist) {
			if err = play(ctx, version, dir, &arms[i]); err == nil {
				b, err = read(filepath.Join(dir, arms[i].name))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", arms[i].name, err)
		}
		books[arms[i].name] = b
	}
	if err := half(ctx, sheet, books["base"]); err != nil {
		return err
	}
	for i := range arms[1:] {
		if err := change(ctx, sheet, &arms[1+i], books); err != nil {
			return err
		}
	}
	return nil
}

// read is what was recorded of one arm.
func read(dir string) (*ledger.Book, error) {
	capture := filepath.Join(dir, "capture.wlc")
	if _, err := os.Stat(capture); err != nil {
		return nil, err
	}
	clients, err := filepath.Glob(filepath.Join(dir, "client-*.wlc"))
	if err != nil {
		return nil, err
	}
	a := ingest.New()
	a.KeepHashes = true
	if err := a.Load(append([]string{capture}, clients...), time.Now().UnixNano(), nil); err != nil {
		return nil, err
	}
	b := a.Book()
	if len(b.Engines) != 1 {
		return nil, fmt.Errorf("%d engines in the capture", len(b.Engines))
	}
	return b, nil
}

// loaded says whether a request is of the repeats from (counted from 0) to (exclusive) of the load.
func loaded(from, to int) func(*ledger.Request) bool {
	return func(r *ledger.Request) bool {
		n, ok := repeatOf(r)
		return ok && n >= from && n < to
	}
}

// repeatOf is the repeat that a request belongs to, which its id ends with.
func repeatOf(r *ledger.Request) (n int, ok bool) {
	i := strings.LastIndexByte(r.Name(), '@')
	if i < 0 {
		return 0, false
	}
	_, err := fmt.Sscanf(r.Name()[i:], "@%d", &n)
	return n, err == nil
}

// budgets of half a run's prediction, by figure (issue: TPOT 3 %, E2E 5 and 10 %, TTFT 10 and 15 %).
var budgets = map[string]float64{"TPOT p50": 3, "TPOT p99": 3, "E2E p50": 5, "E2E p99": 10, "TTFT p50": 10, "TTFT p99": 15}

// half predicts the second half of the repeats from the first.
func half(ctx context.Context, sheet *figure.Sheet, b *ledger.Book) error {
	e := b.Engines[0]
	var cut uint64 // the first iteration of the second half
	for _, r := range b.Requests {
		if n, ok := repeatOf(r); ok && n == repeats/2 && len(r.Sequences) > 0 && r.Sequences[0].Join > 0 && (cut == 0 || r.Sequences[0].Join < cut) {
			cut = r.Sequences[0].Join
		}
	}
	a, err := whatif.Ask(ctx, whatif.Question{Book: b, Engine: e, Unchanged: true, Learn: func(n uint64) bool { return n < cut }, Take: loaded(repeats/2, repeats)})
	if err != nil {
		return fmt.Errorf("half: %w", err)
	}
	fmt.Printf("\nThe second half of the run from the first: %d requests, iterations from %d on, learned from %d before\n", a.Requests, cut, a.Time.Rows)
	for i := range a.Figures {
		f := &a.Figures[i]
		fmt.Printf("  %-18s observed %s, simulated %s\n", f.Name, value(f.Observed, f.Unit), value(f.Same, f.Unit))
		if budget, ok := budgets[f.Name]; ok {
			sheet.AtMost("simulate/half_"+key(f.Name), 100*math.Abs(f.Off()), "%", budget)
		}
	}
	for _, n := range a.Notes {
		fmt.Printf("  note: %s\n", n)
	}
	return nil
}

// change compares what was predicted of a change with what it did.
func change(ctx context.Context, sheet *figure.Sheet, c *arm, books map[string]*ledger.Book) error {
	base, real := books["base"], books[c.name]
	all := loaded(0, repeats)
	a, err := whatif.Ask(ctx, whatif.Question{Book: base, Engine: base.Engines[0], Set: c.set, Take: all})
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	got := whatif.Observed(real, real.Engines[0], all)
	fmt.Printf("\n%s, predicted from the base run, and as it was\n", strings.Join(c.set, " "))
	inside := 0
	for i := range a.Figures {
		f := &a.Figures[i]
		did := got[f.Name] - f.Observed
		off := f.Difference - did
		verdict := "OUTSIDE of the error that was said"
		if math.Abs(off) <= max(f.Error, f.Sham)+1e-9 {
			verdict = "within the error that was said"
			inside++
		}
		fmt.Printf("  %-18s %s → %s; difference predicted %s ± %s, real %s: %s\n", f.Name, value(f.Observed, f.Unit), value(got[f.Name], f.Unit), value(f.Difference, f.Unit), value(max(f.Error, f.Sham), f.Unit), value(did, f.Unit), verdict)
		if _, ok := budgets[f.Name]; ok && f.Observed > 0 {
			sheet.Report("whatif/"+c.name+"_"+key(f.Name)+"_error", 100*math.Abs(off)/f.Observed, "%")
		}
	}
	sheet.Report("whatif/"+c.name+"_within_error", 100*float64(inside)/float64(len(a.Figures)), "%")
	return nil
}

func key(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "_")) }

func value(v float64, unit string) string {
	switch unit {
	case "ns":
		return fmt.Sprintf("%.2f ms", v/1e6)
	case "share":
		return fmt.Sprintf("%.1f %%", 100*v)
	case "":
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
