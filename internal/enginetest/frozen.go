package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineproof"
)

// frozen stops the engine's processes while a server looks on: it says so within two seconds, and afterwards each request that lived
// through it accounts for the time.
func (b *bench) frozen(ctx context.Context) error {
	s, err := b.common(ctx)
	if err != nil {
		return err
	}
	v, err := b.serve(ctx, filepath.Join(b.dir, "frozen-server"), s.rings)
	if err != nil {
		return err
	}
	defer v.Stop()
	var worst time.Duration
	for _, f := range []freeze{
		{"VLLM::EngineCore", "core3", 3 * time.Second}, {"VLLM::Worker", "worker3", 3 * time.Second},
		{"VLLM::EngineCore", "core30", 30 * time.Second}, {"VLLM::Worker", "worker30", 30 * time.Second},
	} {
		seen, err := b.freeze(ctx, s, v, f)
		if err != nil {
			return err
		}
		worst = max(worst, seen)
	}
	b.Check(b.Sheet.AtMost("engine-test/stuck_seen_within", worst.Seconds(), "s", 2), "frozen: 'whylate top' said so within %v", worst.Round(time.Millisecond))
	return nil
}

// freeze is which process stands still, and for how long.
type freeze struct {
	title, class string
	length       time.Duration
}

// freeze plays streams, stops the process while they run, and returns after how long the server said that the engine was stuck.
func (b *bench) freeze(ctx context.Context, s *site, v *served, f freeze) (seen time.Duration, err error) {
	var load engineproof.Load
	for range 4 {
		load.Add(f.class, 0, 64, 900, nil) // so long that they run when it is stopped, however fast the machine is
	}
	type played struct {
		results []replay.Result
		err     error
	}
	done := make(chan played)
	go func() {
		r, err := s.Play(ctx, s.engine, load.Requests(), nil)
		done <- played{r, err}
	}()
	time.Sleep(1500 * time.Millisecond)
	stopped := time.Now()
	_, err = s.engine.Signal(f.title, syscall.SIGSTOP)
	var e *api.EngineState
	if err == nil {
		e, seen = v.state(ctx, 5*time.Second, api.EngineStuck)
		time.Sleep(time.Until(stopped.Add(f.length)))
		_, err = s.engine.Signal(f.title, syscall.SIGCONT)
	}
	held := time.Since(stopped)
	p := <-done
	if err := errors.Join(err, p.err); err != nil {
		return seen, err
	}
	if e == nil {
		b.Check(false, "frozen: %s stood still for %v and 'whylate top' never said stuck", f.title, f.length)
	} else {
		since := time.Unix(0, e.Since).Sub(stopped)
		b.Check(e.Iteration > 0 && since.Abs() < 500*time.Millisecond, "frozen: %s stopped: stuck in iteration %d since %v of the signal, seen after %v", f.title, e.Iteration, since.Round(time.Millisecond), seen.Round(time.Millisecond))
	}
	again, _ := v.state(ctx, 5*time.Second, api.EngineWorking, api.EngineIdle)
	b.Check(again != nil, "frozen: and when it goes on, that is seen, too")

	l, err := s.ledger()
	if err != nil {
		return seen, err
	}
	all := answers(l, p.results, f.class)
	b.Check(len(all) == 4, "frozen: %d of 4 requests that lived through it are in the ledger", len(all))
	for _, a := range all {
		var told time.Duration
		for _, x := range a.Findings {
			if x.ID == diagnose.HostGap || x.ID == diagnose.OddIteration && e != nil && slices.Contains(x.Iterations, e.Iteration) {
				told += time.Duration(x.NS)
			}
		}
		unexplained := time.Duration(a.Account.Line(account.Unexplained).NS)
		b.Check(a.Outcome == replay.Complete && engineproof.Near(told, held, 0.1) && unexplained < held/10, "frozen: %s stood still for %v: %s tells of %v, %v unexplained (%s)",
			f.title, held.Round(time.Millisecond), a.id(), told.Round(time.Millisecond), unexplained.Round(time.Millisecond), a.Headline)
	}
	if e == nil {
		return f.length, nil
	}
	return seen, nil
}
