package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/wire"
)

// hurt is how long a client must have waited before its answer has to say what for.
const hurt = time.Second

// versions starts every version with empty compile caches and storms it at once, makes it compile, and plays a mixed load: a short
// form of engine-smoke. The newest one's server goes on.
func (b *bench) versions(ctx context.Context) error {
	for _, v := range b.all {
		switch err := b.version(ctx, v); {
		case errors.Is(err, engineenv.ErrNotInstallable):
			fmt.Printf("NOT RUN: %v; nothing was proven on it\n", err)
			b.Sheet.AtLeast("engine-test/"+v+"/engine_ran", 0, "count", 1)
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			b.Check(false, "vLLM %s: %v", v, err)
		}
	}
	return nil
}

func (b *bench) version(ctx context.Context, v string) error {
	_, dir, err := b.folder(ctx, v)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "cache")); err != nil {
		return err
	}
	name := v
	if v == b.newest() {
		name = "shared"
	}
	s, err := b.record(ctx, v, name, nil)
	if err != nil {
		return err
	}
	if v == b.newest() {
		b.shared = s
	} else {
		defer s.stop()
	}
	for _, load := range [][]experiment.Request{storm(), mixed()} {
		if _, err := s.Play(ctx, s.engine, load, nil); err != nil {
			return err
		}
	}
	if s.Metrics, err = s.engine.Metrics(); err != nil {
		return err
	}
	l, err := s.ledger()
	if err != nil {
		return err
	}
	if len(l.Book.Engines) != 1 {
		return fmt.Errorf("%d engines recorded, want 1", len(l.Book.Engines))
	}
	e := l.Book.Engines[0]
	b.Sheet.AtLeast("engine-test/"+v+"/engine_ran", 1, "count", 1)
	b.Check(e.Version == v, "vLLM %s: the engine says it is %s", v, e.Version)
	if err := s.ReadLog(s.engine.Log); err != nil {
		return err
	}
	c := engineproof.Checked{Report: b.Report, Run: s.Run, Name: "engine-test/" + v}
	c.Healthy(l)
	c.Complete(l, 120, 5)
	c.Counts(e, 600)
	if err := b.hooks(s, e); err != nil {
		return err
	}
	alone, err := s.Open(nil, engineproof.Capture)
	if err != nil {
		return err
	}
	c.Closure(alone)
	b.stalled(s, e, l)
	return nil
}

// storm is what meets a cold engine: a dozen at once, among them the first with logprobs, for which it compiles, and more that come
// meanwhile.
func storm() []experiment.Request {
	var l engineproof.Load
	engineproof.Every(0, 120*time.Millisecond, 10*time.Millisecond, func(at time.Duration) { l.Add("storm", at, 64, 16, nil) })
	l.Add("fan", 60*time.Millisecond, 64, 24, engineproof.Fan)
	engineproof.Every(400*time.Millisecond, 8*time.Second, 400*time.Millisecond, func(at time.Duration) { l.Add("stall", at, 48, 16, nil) })
	return l.Requests()
}

// mixed is an ordinary mixture with hang-ups, and then more than the KV pool holds.
func mixed() []experiment.Request {
	var l engineproof.Load
	every, until := engineproof.Every, 12*time.Second
	every(0, until, 250*time.Millisecond, func(at time.Duration) { l.Add("mix", at, 64, 40, nil) })
	every(100*time.Millisecond, until, time.Second, func(at time.Duration) { l.Add("shared", at, 700, 24, engineproof.Shared) })
	every(500*time.Millisecond, until, 2*time.Second, func(at time.Duration) { l.Add("hangup", at, 64, 400, engineproof.HangUp) })
	for range 16 {
		l.Add("fill", until+time.Second, 200, 320, nil)
	}
	every(until+2*time.Second, until+8*time.Second, 330*time.Millisecond, func(at time.Duration) { l.Add("beside", at, 64, 16, nil) })
	return l.Requests()
}

// unseen are the capabilities that a version's engine lacks on a CPU, whatever the probe does.
var unseen = []string{"step_device", "step_peak", "step_wait", "labels", "tenant", "class", "route"}

// hooks checks that every process of the engine was seen, and what each of them says that it can see.
func (b *bench) hooks(s *site, e *ledger.Engine) error {
	hellos, err := hellos(filepath.Join(s.Dir, engineproof.Capture))
	if err != nil {
		return err
	}
	for _, role := range []string{"engine/scheduler", "engine/input", "frontend/loop", "worker/main"} {
		i := slices.IndexFunc(hellos, func(h wire.Hello) bool { return h.Role+"/"+h.Thread == role })
		if i < 0 {
			b.Check(false, "vLLM %s: no ring of %s", s.version, role)
			continue
		}
		var blind []string
		for what, sees := range hellos[i].Capabilities {
			if !sees && !slices.Contains(unseen, what) {
				blind = append(blind, what)
			}
		}
		slices.Sort(blind)
		b.Check(len(blind) == 0, "vLLM %s: %s sees all that its hooks are for; not seen: %s", s.version, role, strings.Join(blind, ", "))
	}
	var steps, batches int
	for k := range e.Iterations {
		if it := &e.Iterations[k]; it.Tokens > 0 && it.End != 0 {
			batches++
			if it.Execution != nil && it.Execution.Host > 0 && it.Execution.Host <= it.Completed-it.Decided {
				steps++
			}
		}
	}
	b.Check(steps == batches, "vLLM %s: the worker's step of %d of %d batches, none longer than its iteration", s.version, steps, batches)
	return nil
}

// hellos are those of the sources in a capture, also of one that grows.
func hellos(path string) ([]wire.Hello, error) {
	c, err := wire.OpenCapture(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var out []wire.Hello
	for {
		record, err := c.Next()
		if err != nil { // its end, or where it is being written
			return out, nil
		}
		if record.Opened == nil {
			continue
		}
		h, err := wire.ParseHello(record.Opened.Hello)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
}

// stalled checks that each request of the storm that the compilation hurt shows the one iteration, and who brought what it compiled for.
func (b *bench) stalled(s *site, e *ledger.Engine, l *query.Ledger) {
	all := slices.Concat(answers(l, s.Results, "storm"), answers(l, s.Results, "stall"))
	it := longest(e, all)
	took := time.Duration(it.Duration())
	b.Sheet.Report("engine-test/"+s.version+"/compile_stall", took.Seconds(), "s")
	if took < hurt {
		b.Skip("vLLM %s, cold storm: its longest iteration took %v: there was no stall to be told of", s.version, took.Round(time.Millisecond))
		return
	}
	place := 0 // in the engine's own log
	for k := range e.Iterations {
		if e.Iterations[k].Number == it.Number {
			break
		}
		if e.Iterations[k].Tokens > 0 {
			place++
		}
	}
	if place < len(s.Log) {
		logged := time.Duration(s.Log[place].Elapsed * 1e6)
		b.Check(engineproof.Near(took, logged, 0.1), "vLLM %s, compile stall: iteration %d took %v, by the engine's log %v", s.version, it.Number, took, logged)
	}
	inside, behind, queued, blamed := 0, 0, 0, 0
	var text string
	for _, a := range all {
		own := time.Duration(a.Result.End - a.Result.Sent)
		if own < max(hurt, took/4) {
			continue
		}
		f := a.shows(it.Number)
		switch {
		case f == nil:
			b.Check(false, "vLLM %s, compile stall: %s took %v and does not show iteration %d: %s", s.version, a.id(), own.Round(time.Millisecond), it.Number, a.Headline)
			continue
		case f.ID == diagnose.OddIteration:
			inside++
		case f.ID == diagnose.InboxBehindIteration:
			behind++
		default:
			queued++
		}
		if names(f, "brought", "fan-") {
			blamed++
		}
		text = f.Text
	}
	shown, least := inside+behind+queued, 10
	if took < 5*time.Second { // few are there meanwhile
		least = 1
	}
	b.Check(shown >= least && blamed == shown, "vLLM %s, compile stall: %d requests show that they sat in iteration %d, %d that they waited behind it in the inbox, %d in the queue; %d of them that fan-0 brought the first logprobs (%s)",
		s.version, inside, it.Number, behind, queued, blamed, text)
}
