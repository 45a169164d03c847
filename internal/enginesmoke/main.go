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
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/wire"
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
	s.binary = filepath.Join(s.dir, "whylate")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "./cmd/whylate").CombinedOutput(); err != nil {
		return fmt.Errorf("build whylate: %w\n%s", err, out)
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

	capture := exec.Command(s.binary, "capture", "--ring-dir", rings, filepath.Join(s.dir, "capture.wlc"))
	capture.Stderr = os.Stderr
	if err := capture.Start(); err != nil {
		return err
	}
	for i, load := range [][]experiment.Request{mainLoad(), quietLoad()} {
		begun := time.Now()
		if err := s.replay(ctx, e, i, load); err != nil {
			capture.Process.Kill()
			return err
		}
		fmt.Printf("%d requests played in %.0f s\n", len(load), time.Since(begun).Seconds())
		time.Sleep(2 * time.Second)
	}
	if s.metrics, err = e.Metrics(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "metrics.prom"), []byte(s.metrics), 0o644); err != nil {
		return err
	}
	capture.Process.Signal(syscall.SIGINT)
	if err := capture.Wait(); err != nil {
		return fmt.Errorf("whylate capture: %w", err)
	}
	e.Stop()
	return s.readLog()
}

// replay plays one load and records what its clients saw beside the capture.
func (s *smoke) replay(ctx context.Context, e *engineenv.Engine, i int, load []experiment.Request) (err error) {
	f, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("client-%d.wlc", i)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := wire.NewCaptureWriter(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	run := fmt.Sprintf("smoke-%d", i)
	hello, err := replay.Hello("smoke", run)
	if err != nil {
		return err
	}
	recorder, err := replay.NewRecorder(w, hello)
	if err != nil {
		return err
	}
	_, err = replay.Run(ctx, replay.Options{Base: e.URL, Model: engineenv.Model, Run: run, Seed: uint64(i), Prompt: experiment.PromptOptions{Seed: uint64(i)},
		Recorder: func(r replay.Result) { recorder.Record(r); s.results = append(s.results, r) }}, load)
	return errors.Join(err, recorder.Close())
}

// reload takes up the results of an earlier run from its files.
func (s *smoke) reload() error {
	for i := range 2 {
		r, err := wire.OpenCapture(filepath.Join(s.dir, fmt.Sprintf("client-%d.wlc", i)))
		if err != nil {
			return err
		}
		for {
			record, err := r.Next()
			if err != nil {
				break
			}
			var c wire.Client
			if record.Opened != nil || record.Gap != nil || record.Frame.Type != wire.TypeClient || wire.Decode(record.Frame, &c) != nil {
				continue
			}
			res := replay.Result{Planned: c.Planned, Sent: c.Time, First: c.First, End: c.End, Status: int(c.Status), Outcome: replay.Outcome(c.Outcome),
				OutputTokens: int(c.Output), RequestID: c.RequestID, Traceparent: c.Traceparent, Class: c.Class, Error: c.Error}
			at := c.Time
			for _, g := range c.Gaps {
				at += int64(g) * 1000
				res.Chunks = append(res.Chunks, replay.Chunk{At: at})
			}
			s.results = append(s.results, res)
		}
		r.Close()
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
