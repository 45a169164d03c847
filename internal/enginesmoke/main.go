// Command enginesmoke proves the whole way on a real engine: it starts vLLM with the probe, plays a load with planted incidents, and
// checks the ledger, the account and the answers against independent sources: the engine's own log and counters, and the
// clients' clocks; and what a server beside it makes of what the engine sends without a probe, its metrics page and its spans. It is what
// 'make engine-smoke' runs.
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
	"syscall"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/internal/figure"
)

const version = "0.32.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	report := &engineproof.Report{Sheet: figure.New(os.Stdout, "make engine-smoke"), Out: os.Stdout}
	s := &smoke{Checked: engineproof.Checked{Report: report, Run: &engineproof.Run{}, Name: "smoke"}}
	err := s.run(ctx)
	switch {
	case errors.Is(err, engineenv.ErrNotInstallable):
		fmt.Println("engine-smoke: NOT RUN: vLLM could not be installed on this machine; nothing was proven on a real engine")
		s.Sheet.AtLeast("smoke/engine_ran", 0, "count", 1)
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "engine-smoke:", err)
		os.Exit(1)
	}
	if err := s.Sheet.Save("docs/figures.tsv"); err != nil {
		fmt.Fprintln(os.Stderr, "engine-smoke:", err)
	}
	if !report.Conclude("engine-smoke") {
		os.Exit(1)
	}
}

// smoke is one run and what it found.
type smoke struct {
	engineproof.Checked
	binary string // whylate
}

func (s *smoke) run(ctx context.Context) error {
	var err error
	if s.Dir = os.Getenv("SMOKE_DIR"); s.Dir == "" {
		if s.Dir, err = os.MkdirTemp("", "whylate-smoke-"); err != nil {
			return err
		}
		if os.Getenv("SMOKE_KEEP") == "" {
			defer os.RemoveAll(s.Dir)
		}
	}
	if s.binary, err = engineenv.Build(ctx, s.Dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.Dir, engineproof.Capture)); err != nil { // SMOKE_DIR of an earlier run: only check again
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
	if err := engineenv.Prepare(ctx, python, s.Dir); err != nil {
		return err
	}
	rings := filepath.Join(s.Dir, "rings")
	if err := os.MkdirAll(rings, 0o700); err != nil {
		return err
	}
	f, err := s.serve(ctx, python, rings)
	if err != nil {
		return err
	}
	defer f.server.Stop()
	fmt.Printf("starting vLLM %s with empty compile caches\n", version)
	e, err := engineenv.Start(ctx, engineenv.Options{Python: python, Dir: s.Dir, Rings: rings, Args: f.args(), Env: []string{"WHYLATE_DEPLOYMENT=smoke", "WHYLATE_REPLICA=vllm-0"}})
	if err != nil {
		return err
	}
	defer e.Stop()
	fmt.Printf("healthy after %.0f s\n", time.Since(e.Started).Seconds())

	capture, err := engineenv.Record(s.binary, rings, filepath.Join(s.Dir, engineproof.Capture))
	if err != nil {
		return err
	}
	if err := s.underLoad(ctx, e, f); err != nil {
		capture.Kill()
		return err
	}
	if s.Metrics, err = e.Metrics(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "metrics.prom"), []byte(s.Metrics), 0o644); err != nil {
		return err
	}
	if err := capture.Stop(); err != nil {
		return err
	}
	e.Stop()
	return s.ReadLog(filepath.Join(s.Dir, "engine.log"))
}

// underLoad plays both parts, and asks the server about them.
func (s *smoke) underLoad(ctx context.Context, e *engineenv.Engine, f *fleet) error {
	if err := f.follow(e); err != nil {
		return err
	}
	if err := s.part(ctx, e, mainLoad()); err != nil {
		return err
	}
	begun := time.Now()
	if err := f.before(ctx, e); err != nil {
		return err
	}
	fmt.Printf("%.1f s until the scrape that has it all\n", time.Since(begun).Seconds())
	seen := make(chan looked, 1)
	go func() { seen <- s.look(ctx, e.URL+"/metrics", "10s") }()
	err := s.part(ctx, e, quietLoad())
	f.said.Engine = <-seen
	if err != nil {
		return err
	}
	begun = time.Now()
	if err := s.ask(ctx, f, e); err != nil {
		return err
	}
	fmt.Printf("the server asked in %.0f s\n", time.Since(begun).Seconds())
	return nil
}

// part plays a load, and lets the engine come to rest.
func (s *smoke) part(ctx context.Context, e *engineenv.Engine, load []experiment.Request) error {
	begun := time.Now()
	if _, err := s.Play(ctx, e, load, nil); err != nil {
		return err
	}
	fmt.Printf("%d requests played in %.0f s\n", len(load), time.Since(begun).Seconds())
	time.Sleep(2 * time.Second)
	return nil
}

// reload takes up the results of an earlier run from its files.
func (s *smoke) reload() error {
	if err := s.Reload(2); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(s.Dir, "metrics.prom"))
	if err != nil {
		return err
	}
	s.Metrics = string(b)
	return s.ReadLog(filepath.Join(s.Dir, "engine.log"))
}
