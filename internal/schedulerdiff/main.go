// Command schedulerdiff proves the ledger on the scheduler classes of installed vLLMs, without a model: their decisions are real,
// their tokens are made up. A driver (probes/vllm/tests/scheduler_diff.py) runs them under random configurations and loads, with
// the probe in them, and writes down what their own state says after each call; the ledger that is rebuilt from the probe's rings
// must say the same. Of the same runs it plays what came in to a simulated scheduler, whose decisions it holds against the real
// ones (docs/fidelity.md). It is what 'make scheduler-diff' runs.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

type options struct {
	iterations, seed, only int
	trace, states          float64
	keep, rules            string
}

func main() {
	var o options
	versions := flag.String("versions", "0.20.2 0.24.0 0.30.0 0.32.0", "vLLM versions, separated by spaces")
	flag.IntVar(&o.iterations, "iterations", 100_000, "iterations of each version")
	flag.IntVar(&o.seed, "seed", 1, "of the random configurations and loads")
	flag.IntVar(&o.only, "only", -1, "this run alone")
	flag.Float64Var(&o.trace, "trace", 0.15, "share of the iterations whose reasons are seen by a line tracer")
	flag.Float64Var(&o.states, "states", 0.2, "share of the iterations whose state is told before they are decided: one-step simulation begins there")
	flag.StringVar(&o.rules, "rules", "", "simulate by the rules of this version instead of the engine's own: how much a wrong rule shows")
	flag.StringVar(&o.keep, "keep", "", "folder in which rings and truth of all runs stay")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	sheet := figure.New(os.Stdout, "make scheduler-diff")
	failed := false
	for _, version := range strings.Fields(*versions) {
		ok, err := prove(ctx, sheet, version, o)
		switch {
		case errors.Is(err, engineenv.ErrNotInstallable):
			fmt.Printf("scheduler-diff: NOT RUN: vLLM %s could not be installed on this machine; nothing was proven on it\n", version)
			sheet.AtLeast("scheduler-diff/"+version+"_iterations", 0, "count", float64(o.iterations))
			continue
		case err != nil:
			fmt.Fprintf(os.Stderr, "scheduler-diff: vLLM %s: %v\n", version, err)
		}
		failed = failed || !ok
	}
	if err := sheet.Save("docs/figures.tsv"); err != nil {
		fmt.Fprintln(os.Stderr, "scheduler-diff:", err)
	}
	if failed {
		os.Exit(1)
	}
}

// excused are skip reasons that no run without a connector, images or a pipeline can show.
var excused = []ledger.SkipReason{ledger.SkipRemoteKV, ledger.SkipEncoder, ledger.SkipCadence}

// absent are skip reasons that a version's code does not know.
var absent = map[string][]ledger.SkipReason{
	"0.20.2": {ledger.SkipStaleOutput},
	"0.24.0": {ledger.SkipStaleOutput},
}

// messages are those that an engine's rings must have shown. Those of the front end and of the worker are of processes that do
// not run here: 'make engine-smoke' has them.
var messages = []wire.Type{wire.TypeHello, wire.TypeClock, wire.TypeArrived, wire.TypeQueued, wire.TypeHashes, wire.TypeScheduled, wire.TypeDone, wire.TypeFinished, wire.TypeCache, wire.TypeNotice}

// prove runs one version and prints its figures.
func prove(ctx context.Context, sheet *figure.Sheet, version string, o options) (bool, error) {
	python, err := engineenv.Python(ctx, version)
	if err != nil {
		return false, err
	}
	dir := filepath.Join(o.keep, version)
	if o.keep == "" {
		if dir, err = os.MkdirTemp("", "whylate-diff-"); err != nil {
			return false, err
		}
		defer os.RemoveAll(dir)
	}
	fmt.Printf("vLLM %s: %d iterations, seed %d\n", version, o.iterations, o.seed)
	t := total{reasons: map[ledger.SkipReason]int{}, messages: map[wire.Type]int{}}
	err = drive(ctx, python, dir, o, func(folder string) error {
		c, err := check(folder, o.rules, t.messages)
		if err != nil {
			return err
		}
		t.add(c, version, o)
		if o.keep == "" {
			return os.RemoveAll(folder)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	return t.figures(sheet, version, o), nil
}

// total is what all runs of one version showed.
type total struct {
	iterations, traced, differences, failures, evictions int
	reasons                                              map[ledger.SkipReason]int
	messages                                             map[wire.Type]int
	simulated                                            simulations
}

func (t *total) add(c *comparison, version string, o options) {
	t.iterations += c.iterations
	t.traced += c.traced
	t.differences += c.count
	t.evictions += c.evictions
	t.simulated.add(c)
	for r, n := range c.reasons {
		t.reasons[r] += n
	}
	if c.failure != "" {
		t.failures++
		fmt.Printf("run %d (%s): vLLM %s itself failed after %d iterations in %s\n", c.run.Number, c.run.Weather, version, c.iterations, c.failure)
	}
	if c.count == 0 {
		return
	}
	fmt.Printf("run %d (%s) of vLLM %s: %d differences; again: go run ./internal/schedulerdiff -versions %s -iterations %d -seed %d -trace %v -only %d\n  %s\n",
		c.run.Number, c.run.Weather, version, c.count, version, o.iterations, o.seed, o.trace, c.run.Number, c.run.Settings)
	for _, d := range c.differences {
		fmt.Println("  " + d)
	}
}

// figures prints what was proven, and what was not seen.
func (t *total) figures(sheet *figure.Sheet, version string, o options) bool {
	name := func(what string) string { return "scheduler-diff/" + version + "_" + what }
	ok := sheet.AtMost(name("differences"), float64(t.differences), "count", 0)
	if o.only >= 0 {
		return ok
	}
	unseen := t.unseen(version)
	ok = sheet.AtLeast(name("iterations"), float64(t.iterations), "count", float64(o.iterations)) && ok
	ok = sheet.AtLeast(name("skips_traced"), 100*float64(t.traced)/float64(max(t.iterations, 1)), "%", 10) && ok
	sheet.Report(name("engine_failures"), float64(t.failures), "count")
	ok = t.simulated.figures(sheet, version) && ok
	return sheet.AtMost(name("unseen"), float64(len(unseen)), "count", 0) && ok
}

// unseen names what did not occur in any run and should have.
func (t *total) unseen(version string) []string {
	var unseen []string
	for r := ledger.SkipSequenceLimit; r <= ledger.SkipOther; r++ {
		if t.reasons[r] == 0 {
			if slices.Contains(excused, r) || slices.Contains(absent[version], r) {
				fmt.Printf("not seen in vLLM %s, and not to be seen this way: %s\n", version, r)
			} else {
				unseen = append(unseen, "reason "+r.String())
			}
		}
	}
	for _, m := range messages {
		if t.messages[m] == 0 {
			unseen = append(unseen, "message "+m.String())
		}
	}
	if t.evictions == 0 {
		unseen = append(unseen, "an eviction from the prefix cache")
	}
	for _, u := range unseen {
		fmt.Printf("not seen in vLLM %s: %s\n", version, u)
	}
	return unseen
}

// drive runs the driver and hands over each run's folder as soon as it is complete.
func drive(ctx context.Context, python, dir string, o options, complete func(folder string) error) error {
	args := []string{"probes/vllm/tests/scheduler_diff.py", "--out", dir, "--seed", strconv.Itoa(o.seed), "--iterations", strconv.Itoa(o.iterations),
		"--trace", strconv.FormatFloat(o.trace, 'g', -1, 64), "--states", strconv.FormatFloat(o.states, 'g', -1, 64)}
	if o.only >= 0 {
		args = append(args, "--only", strconv.Itoa(o.only))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, args...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	var said tail
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for in := bufio.NewScanner(out); in.Scan(); {
		var run struct {
			Folder string `json:"folder"`
		}
		if json.Unmarshal(in.Bytes(), &run) != nil || run.Folder == "" {
			continue // the engine talks, too
		}
		if err := complete(run.Folder); err != nil {
			cancel()
			return errors.Join(err, cmd.Wait())
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the driver: %w\n%s", err, said.bytes)
	}
	return nil
}

// tail keeps the end of what a process says.
type tail struct{ bytes []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.bytes = append(t.bytes, p...)
	if n := len(t.bytes) - 1<<14; n > 0 {
		t.bytes = slices.Delete(t.bytes, 0, n)
	}
	return len(p), nil
}

// check rebuilds the ledger of one run from its rings and compares it with the truth, and then the simulated scheduler.
func check(folder, rules string, messages map[wire.Type]int) (*comparison, error) {
	rings, err := filepath.Glob(filepath.Join(folder, "rings", "*.ring"))
	if err != nil || len(rings) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s: no ring", folder))
	}
	a := ingest.New()
	if _, err := wire.CopyRings(rings, &counting{a, messages}, 0); err != nil {
		return nil, err
	}
	truth, err := lines(filepath.Join(folder, "truth.jsonl"))
	if err != nil {
		return nil, err
	}
	book := a.Book()
	if len(book.Engines) != 1 {
		return compare(book, truth), nil
	}
	s, err := simulated(cmp.Or(rules, book.Engines[0].Version), book.Engines[0].Settings, truth)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	c := compare(book, truth)
	c.simulation = s
	return c, nil
}

// counting passes frames on and counts them by type.
type counting struct {
	*ingest.Assembler
	types map[wire.Type]int
}

func (c *counting) Frame(source uint16, f wire.Frame) error {
	c.types[f.Type]++
	return c.Assembler.Frame(source, f)
}
