package apptest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/agent"
	"github.com/whylate/whylate/ingest/stream"
)

// agentProcess starts 'whylate agent' on a ring directory.
func agentProcess(t testing.TB, dir, rings string, p *process, args ...string) (kill func()) {
	t.Helper()
	cmd := command(t, append([]string{"agent", "--server", p.target().String(), "--rings-dir", rings, "--spool-dir", filepath.Join(dir, "spool"), "--every", "5ms",
		"--log-format", "json"}, args...)...)
	out, err := os.Create(filepath.Join(t.TempDir(), "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() {
		kill()
		if b, err := os.ReadFile(out.Name()); err == nil && t.Failed() {
			t.Logf("the agent:\n%s", b)
		}
		out.Close()
	})
	return kill
}

// newAgent is an agent that works when it is told to: its Step is the test's.
func newAgent(t testing.TB, dir, rings string, p *process) *agent.Agent {
	t.Helper()
	a, err := agent.New(agent.Settings{RingDir: rings, SpoolDir: filepath.Join(dir, "spool"), Key: make([]byte, 32), PollEvery: time.Millisecond, MaxBackoff: 100 * time.Millisecond,
		Server: stream.Dialer{Target: p.target(), Agent: agent.Identify("test")}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestServerAndAgentFollowTheSameRings lets a server follow rings that an agent sends it too, another server follow them for itself, and each
// of them go and come while the engines write. Every frame is there once at both, also those that a small ring has lost by the time the
// server is back: they are in the agent's spool. A dead engine's rings are collected, and nobody misses anything of them.
func TestServerAndAgentFollowTheSameRings(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	rings := filepath.Join(dir, "rings")
	began := time.Now().Add(-time.Hour)
	large, small := randomFeed(t, "large", 31, 700, began), randomFeed(t, "small", 32, 700, began)
	small.number = 1 // of its process
	engines := []*engine{newEngine(t, rings, large, 8<<20), newEngine(t, rings, small, 48<<10)}
	written := func() int { return engines[0].done + engines[1].done + len(engines) } // with the rings' hellos
	write := func(n int) {
		for _, e := range engines {
			e.write(n)
		}
	}
	follow := []string{"--rings-follow=true", "--rings-dir", rings, "--store-seal-every", "1s", "--store-hot-period", "1s"}
	p, q := serve(t, dir, follow...), serve(t, other, follow...)
	step := func() {}
	all := func(what string, p *process) {
		t.Helper()
		c := p.client()
		await(t, what, func() bool { step(); return framesOf(t, c, large)+framesOf(t, c, small) >= written() })
	}
	write(100)
	all("what the server read alone", p)
	kill := agentProcess(t, dir, rings, p)
	for range 20 { // both are there
		write(5)
		time.Sleep(time.Millisecond)
	}
	all("what was written while both were there", p)
	write(50)
	kill()
	write(50)
	all("what was written when the agent had been killed", p)
	kill = agentProcess(t, dir, rings, p)
	all("what the agent found", p)
	write(20)
	kill()

	// The server is away while the small ring is written over more than once; the agent keeps what it reads.
	a := newAgent(t, dir, rings, p)
	step = func() { a.Step(agent.Now()) }
	all("what the next agent found", p)
	await(t, "the agent to be connected", func() bool { step(); return a.Counts().Connects > 0 })
	p.kill()
	before, lap, taken := a.Counts().Frames, engines[1].done, written()
	for engines[1].done-lap < 600 {
		write(10)
		await(t, "the agent to have read the rings", func() bool { step(); return int(a.Counts().Frames-before) >= written()-taken })
		if engines[1].done%100 == 0 {
			all("the same at the other server", q)
		}
	}
	p = serve(t, dir, follow...)
	all("what the agent kept meanwhile", p)
	step = func() {}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for engines[0].write(0) || engines[1].write(0) {
		write(100)
		all("what was written at last", p)
		all("the same at the other server", q)
	}

	file := fromFile(t, large, small)
	for _, s := range []*process{p, q} {
		c := s.client()
		for _, f := range []*feed{large, small} {
			n := sameAnswers(t, file, c, f, true)
			if got := framesOf(t, c, f); got != len(f.frames)+1 {
				t.Errorf("%s: %d frames, want %d", f.name, got, len(f.frames)+1)
			}
			t.Logf("%s: %+v", f.name, n)
		}
		healthy(t, c)
		noGaps(t, c)
	}

	// The engines end; an agent removes their rings when its server has all of them.
	for _, e := range engines {
		e.ring.Close()
	}
	agentProcess(t, dir, rings, p, "--keep-dead", "1s")
	await(t, "the rings to be collected", func() bool {
		left, err := filepath.Glob(filepath.Join(rings, "*.ring"))
		return err == nil && len(left) == 0
	})
	for _, s := range []*process{p, q} {
		all("all of it after the rings are gone", s)
		s.stop()
	}
}
