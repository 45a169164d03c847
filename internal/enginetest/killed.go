package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/ledger"
)

// killed kills one process after the other, each of an engine of its own. All of them are incarnations of one replica.
func (b *bench) killed(ctx context.Context) error {
	rings := filepath.Join(b.dir, "killed-rings")
	if err := os.MkdirAll(rings, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(rings)
	v, err := b.serve(ctx, filepath.Join(b.dir, "killed-server"), rings)
	if err != nil {
		return err
	}
	defer v.Stop()
	before := ""
	for _, victim := range []victim{{"VLLM::Worker", "worker"}, {"VLLM::EngineCore", "core"}, {apiServer, "api"}, {"", "after"}} {
		if before, err = b.kill(ctx, v, rings, victim, before); err != nil {
			return err
		}
	}
	return nil
}

// victim is who is killed ("" is nobody), and the class of the requests that meet it: rings of earlier incarnations tell of theirs.
type victim struct{ title, class string }

// apiServer is the process that was started, which has no title.
const apiServer = "API server"

// kill starts an engine, kills the victim while streams run and returns the engine's id. before is that of the incarnation before it.
func (b *bench) kill(ctx context.Context, v *served, rings string, victim victim, before string) (id string, err error) {
	s, err := b.launch(ctx, b.newest(), "killed", func(o *engineenv.Options) { o.Rings = rings })
	if err != nil {
		return "", err
	}
	defer s.engine.Stop()
	var load engineproof.Load
	for range 4 {
		load.Add(victim.class, 0, 64, 900, nil)
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
	var e *api.EngineState
	if !engineenv.Await(ctx, 20*time.Second, func() bool { e = v.top(ctx); return e != nil && e.ID != before && e.Status != api.EngineDead }) {
		return "", errors.Join(errors.New("the server never saw the engine live"), (<-done).err)
	}
	if before != "" {
		restart, end := false, false
		engineenv.Await(ctx, 10*time.Second, func() bool { // a restart is told with the first iteration after it
			var l api.ChangeList
			if v.Ask(ctx, &l, "changes") != nil {
				return false
			}
			for _, c := range l.Changes {
				restart = restart || c.Kind == api.ChangeRestart && c.Engine == e.ID
				end = end || c.Kind == api.ChangeEnd && c.Engine == before
			}
			return restart && end
		})
		b.Check(restart && end, "killed: %s joins as the next incarnation (%v) after %s, whose end is told (%v)", e.ID, restart, before, end)
	}
	if victim.title == "" {
		p := <-done
		whole := 0
		for _, r := range p.results {
			if r.Outcome == replay.Complete {
				whole++
			}
		}
		b.Check(whole == 4, "killed: and it serves: %d of 4 answers are whole", whole)
		return e.ID, p.err
	}
	time.Sleep(2 * time.Second)
	at := time.Now()
	if victim.title == apiServer {
		err = syscall.Kill(s.engine.PID(), syscall.SIGKILL)
	} else {
		_, err = s.engine.Signal(victim.title, syscall.SIGKILL)
	}
	p := <-done
	if err := errors.Join(err, p.err); err != nil {
		return e.ID, err
	}
	if victim.title == apiServer { // its engine lives on, and serves nobody
		idle, _ := v.state(ctx, 30*time.Second, api.EngineIdle)
		b.Check(idle != nil && idle.ID == e.ID, "killed: API server: its engine lives on, idle by 'whylate top'")
		if _, err := s.engine.Signal("VLLM::EngineCore", syscall.SIGKILL); err != nil {
			return e.ID, err
		}
	}
	dead, _ := v.state(ctx, 30*time.Second, api.EngineDead)
	b.Check(dead != nil && dead.ID == e.ID, "killed: %s: 'whylate top' says dead, %v after the signal", victim.title, time.Since(at).Round(100*time.Millisecond))
	return e.ID, b.recorded(ctx, s, victim, e.ID, p.results)
}

// recorded checks what the rings of a dead engine still tell.
func (b *bench) recorded(ctx context.Context, s *site, victim victim, id string, results []replay.Result) error {
	if err := exec.CommandContext(ctx, b.binary, "capture", "--from-ring", s.rings, filepath.Join(s.Dir, engineproof.Capture)).Run(); err != nil {
		return err
	}
	l, err := s.Open(nil, s.Files()...)
	if err != nil {
		return err
	}
	if err := s.ReadLog(s.engine.Log); err != nil {
		return err
	}
	var e *ledger.Engine
	for _, x := range l.Book.Engines {
		if x.ID.String() == id {
			e = x
		}
	}
	if e == nil {
		b.Check(false, "killed: %s: the rings tell nothing of %s", victim.title, id)
		return nil
	}
	n := 0
	for k := range e.Iterations {
		if e.Iterations[k].Tokens > 0 {
			n++
		}
	}
	more := n - len(s.Log)
	b.Check(n > 20 && more >= 0 && (more <= 1 || victim.title == apiServer), "killed: %s: the rings hold %d iterations, the engine had logged the end of %d", victim.title, n, len(s.Log))
	all := answers(l, results, victim.class)
	b.Check(len(all) == 4, "killed: %s: %d of 4 requests that met it are in the ledger", victim.title, len(all))
	for _, a := range all {
		failed := a.Outcome == replay.ConnectionError || a.Outcome == replay.HTTPError
		b.Check(failed && a.Client != nil && a.Client.Outcome != ledger.OutcomeComplete && a.Client.Error != "" && strings.Contains(a.Headline, "failed"),
			"killed: %s: %s: its client: %s, %s; the front end's end: %s; the engine's: %s (%s)", victim.title, a.id(), a.Outcome, a.Result.Error, a.Request.End, a.Request.Sequences[0].Reason, a.Headline)
	}
	return nil
}
