// Command enginesmoke proves the whole way on a real engine: it starts vLLM with the probe, plays a load with planted incidents, and
// checks the ledger, the account and the answers against independent sources: the engine's own log and counters, and the
// clients' clocks. It is what 'make engine-smoke' runs.
//
// With FIXTURE=path it also writes the run as one capture, the fixture of the demo and of the golden tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/figure"
)

const version = "0.32.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s := &smoke{sheet: figure.New(os.Stdout, "make engine-smoke")}
	err := s.run(ctx)
	switch {
	case errors.Is(err, engineenv.ErrNotInstallable):
		fmt.Println("engine-smoke: NOT RUN: vLLM could not be installed on this machine; nothing was proven on a real engine")
		s.sheet.AtLeast("smoke/engine_ran", 0, "count", 1)
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "engine-smoke:", err)
		os.Exit(1)
	}
	if err := s.sheet.Save("docs/figures.tsv"); err != nil {
		fmt.Fprintln(os.Stderr, "engine-smoke:", err)
	}
	if len(s.failed) > 0 {
		fmt.Printf("engine-smoke: %d of %d checks FAILED\n", len(s.failed), s.checks)
		for _, f := range s.failed {
			fmt.Println("  " + f)
		}
		os.Exit(1)
	}
	fmt.Printf("engine-smoke: all %d checks passed\n", s.checks)
}

// smoke is one run and what it found.
type smoke struct {
	sheet  *figure.Sheet
	dir    string // of this run
	binary string // whylate

	results []replay.Result // what the clients saw
	log     []logLine       // the engine's own iteration log
	metrics string          // its counters after the load

	checks int
	failed []string
}

func (s *smoke) check(ok bool, format string, args ...any) {
	s.checks++
	text := fmt.Sprintf(format, args...)
	if ok {
		fmt.Println("ok    " + text)
		return
	}
	fmt.Println("FAIL  " + text)
	s.failed = append(s.failed, text)
}

func (s *smoke) run(ctx context.Context) error {
	var err error
	if s.dir = os.Getenv("SMOKE_DIR"); s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "whylate-smoke-"); err != nil {
			return err
		}
		if os.Getenv("SMOKE_KEEP") == "" {
			defer os.RemoveAll(s.dir)
		}
	}
	if s.binary, err = engineenv.Build(ctx, s.dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.dir, "capture.wlc")); err != nil { // SMOKE_DIR of an earlier run: only check again
		if err := s.play(ctx); err != nil {
			return err
		}
	} else if err := s.reload(); err != nil {
		return err
	}
	return s.judge(ctx)
}

// play runs the engine under the load and keeps what each source said.
func (s *smoke) play(ctx context.Context) error {
	python, err := engineenv.Python(ctx, version)
	if err != nil {
		return err
	}
	if err := engineenv.Prepare(ctx, python, s.dir); err != nil {
		return err
	}
	rings := filepath.Join(s.dir, "rings")
	if err := os.MkdirAll(rings, 0o700); err != nil {
		return err
	}
	fmt.Printf("starting vLLM %s with empty compile caches\n", version)
	e, err := engineenv.Start(ctx, engineenv.Options{Python: python, Dir: s.dir, Rings: rings, Env: []string{"WHYLATE_DEPLOYMENT=smoke", "WHYLATE_REPLICA=vllm-0"}})
	if err != nil {
		return err
	}
	defer e.Stop()
	fmt.Printf("healthy after %.0f s\n", time.Since(e.Started).Seconds())

	capture, err := engineenv.Record(s.binary, rings, filepath.Join(s.dir, "capture.wlc"))
	if err != nil {
		return err
	}
	for i, load := range [][]experiment.Request{mainLoad(), quietLoad()} {
		begun := time.Now()
		results, err := e.Play(ctx, filepath.Join(s.dir, fmt.Sprintf("client-%d.wlc", i)), "smoke", fmt.Sprintf("smoke-%d", i), uint64(i), load)
		if err != nil {
			capture.Kill()
			return err
		}
		s.results = append(s.results, results...)
		fmt.Printf("%d requests played in %.0f s\n", len(load), time.Since(begun).Seconds())
		time.Sleep(2 * time.Second)
	}
	if s.metrics, err = e.Metrics(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "metrics.prom"), []byte(s.metrics), 0o644); err != nil {
		return err
	}
	if err := capture.Stop(); err != nil {
		return err
	}
	e.Stop()
	return s.readLog()
}

// reload takes up the results of an earlier run from its files.
func (s *smoke) reload() error {
	for i := range 2 {
		results, err := engineenv.ReadPlayed(filepath.Join(s.dir, fmt.Sprintf("client-%d.wlc", i)))
		if err != nil {
			return err
		}
		s.results = append(s.results, results...)
	}
	b, err := os.ReadFile(filepath.Join(s.dir, "metrics.prom"))
	if err != nil {
		return err
	}
	s.metrics = string(b)
	return s.readLog()
}

func sortByTime(rs []experiment.Request) {
	slices.SortStableFunc(rs, func(a, b experiment.Request) int { return int(a.At - b.At) })
}
