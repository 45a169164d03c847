package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
)

// repeats of the load in each arm, with other prompts of the same lengths: an even number, since one half is predicted from the other.
const repeats = 4

// load is a mixture that feels a smaller token budget (long prompts beside streams) and a small pool (answers that grow together).
func load(repeat int) []experiment.Request {
	var l engineproof.Load
	every, second := engineproof.Every, time.Second
	every(0, 20*second, 400*time.Millisecond, func(at time.Duration) { l.Add("mix", at, 64, 40, nil) })
	every(second, 20*second, 4*second, func(at time.Duration) { l.Add("long", at, 1500, 8, nil) })
	every(second/2, 20*second, 5*second, func(at time.Duration) { l.Add("steady", at, 100, 200, nil) })
	for i := range 12 {
		l.Add("grow", 10*second+time.Duration(i)*10*time.Millisecond, 200, 600, nil)
	}
	all := l.Requests()
	for i := range all {
		all[i].ID += fmt.Sprintf("@%d", repeat)
	}
	return all
}

// warm lets an engine do everything once: its first of anything compiles.
func warm() []experiment.Request {
	var l engineproof.Load
	l.Add("warm", 0, 1500, 60, nil)
	for i := range 12 {
		l.Add("warm", time.Second+time.Duration(i)*10*time.Millisecond, 200, 100, nil)
	}
	return l.Requests()
}

// play runs one arm on a fresh engine.
func play(ctx context.Context, version, dir string, a *arm) error {
	binary, err := engineenv.Build(ctx, dir)
	if err != nil {
		return err
	}
	python, err := engineenv.Python(ctx, version)
	if err != nil {
		return err
	}
	if err := engineenv.Prepare(ctx, python, dir); err != nil {
		return err
	}
	out := filepath.Join(dir, a.name)
	rings := filepath.Join(out, "rings")
	if err := os.MkdirAll(rings, 0o700); err != nil {
		return err
	}
	e, err := engineenv.Start(ctx, engineenv.Options{Python: python, Dir: dir, Rings: rings, Log: filepath.Join(out, "engine.log"), Args: a.args,
		Env: []string{"WHYLATE_DEPLOYMENT=whatif", "WHYLATE_REPLICA=" + a.name}})
	if err != nil {
		return err
	}
	defer e.Stop()
	fmt.Printf("%s: vLLM %s is healthy after %.0f s\n", a.name, version, time.Since(e.Started).Seconds())
	recording := filepath.Join(out, "recording.wlc")
	capture, err := engineenv.Record(binary, rings, recording)
	if err != nil {
		return err
	}
	if err := replays(ctx, e, out); err != nil {
		capture.Kill()
		return err
	}
	if err := capture.Stop(); err != nil {
		return err
	}
	return os.Rename(recording, filepath.Join(out, "capture.wlc"))
}

func replays(ctx context.Context, e *engineenv.Engine, out string) error {
	if _, err := e.Play(ctx, filepath.Join(out, "client-warm.wlc"), "whatif", "warm", 100, warm(), nil); err != nil {
		return err
	}
	for i := range repeats {
		begun := time.Now()
		results, err := e.Play(ctx, filepath.Join(out, fmt.Sprintf("client-%d.wlc", i)), "whatif", fmt.Sprintf("repeat-%d", i), uint64(i), load(i), nil)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Outcome != replay.Complete {
				return fmt.Errorf("repeat %d: request %s: %v %s", i, r.RequestID, r.Outcome, r.Error)
			}
		}
		fmt.Printf("%s: repeat %d: %d requests in %.0f s\n", filepath.Base(out), i, len(results), time.Since(begun).Seconds())
	}
	return nil
}
