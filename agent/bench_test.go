package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/wire"
)

// iteration writes what a scheduler with 64 members writes for one iteration: a decision and a completion.
func (e *engine) iteration(n uint64) {
	now := monotonic()
	s := &wire.Scheduled{Time: now, Iteration: n, Alias: n, Returned: now + 150_000, Digest: n * 0x9E3779B97F4A7C15, Tokens: 64, Members: 64, Running: 64,
		Free: uint32(20_000 - n%5_000), TokenBudget: 8_192, SeqBudget: 64}
	if n%64 == 1 {
		s.Full = true
		for h := range uint32(64) {
			s.Joins = append(s.Joins, wire.Join{Handle: h + 1, Tokens: 1, Before: uint32(n) + h, Total: uint32(n) + h + 1, Kind: wire.JoinContinued})
		}
	}
	e.put(s)
	e.put(&wire.Done{Time: now + 9_000_000, Iteration: n, Returned: now + 9_100_000, Key: float64(now) / 1e9, Tokens: 64})
}

func cpu(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkForward sends the frames of a full ring through agent and server over a Unix socket, both in this process: frames a second,
// and processor time a frame of both ends together.
func BenchmarkForward(b *testing.B) {
	var frames uint64
	var spent, took time.Duration
	for b.Loop() {
		b.StopTimer()
		h := newHost(b)
		h.startServer()
		e := h.startEngine(15 << 20)
		for n := uint64(1); n <= 60_000; n++ {
			e.iteration(n)
		}
		h.startAgent()
		b.StartTimer()
		began, before := time.Now(), cpu(unix.RUSAGE_SELF)
		for h.until("the server counts", func() bool { return h.server.Stats().Frames > 0 }); h.agent.sources.byName[e.name].acked < e.n; {
			h.step()
			select {
			case <-h.agent.Woken():
			case <-time.After(time.Millisecond):
			}
		}
		spent += cpu(unix.RUSAGE_SELF) - before
		took += time.Since(began)
		frames += h.server.Stats().Frames
	}
	b.ReportMetric(float64(frames)/took.Seconds(), "frames/s")
	b.ReportMetric(float64(spent.Nanoseconds())/float64(frames), "cpu-ns/frame")
}

// peak is the highest resident memory that a process has had, in MB. What wait4 tells of a child would count its parent's, from before exec.
func peak(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kB float64
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		b.Fatal(err)
	}
	return kB / 1024
}

// BenchmarkPaced runs the real agent program for 10 seconds on one engine that does 100 iterations a second: its share of a core and its
// resident memory (DESIGN §13: at most 1 % and 64 MB).
func BenchmarkPaced(b *testing.B) {
	h := newHost(b)
	program := filepath.Join(b.TempDir(), "whylate-agent")
	build := exec.Command("go", "build", "-o", program, "github.com/whylate/whylate/cmd/whylate-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	h.startServer()
	for b.Loop() {
		e := h.startEngine(15 << 20)
		agent := exec.Command(program, "--server", h.target.String(), "--rings-dir", h.rings, "--spool-dir", h.spool)
		agent.Stderr = os.Stderr
		if err := agent.Start(); err != nil {
			b.Fatal(err)
		}
		tick := time.NewTicker(10 * time.Millisecond)
		began := time.Now()
		n := uint64(0)
		for time.Since(began) < 10*time.Second {
			<-tick.C
			n++
			e.iteration(n)
		}
		took := time.Since(began)
		tick.Stop()
		b.ReportMetric(peak(b, agent.Process.Pid), "MB")
		agent.Process.Signal(syscall.SIGTERM)
		if err := agent.Wait(); err != nil {
			b.Fatal(err)
		}
		spent := agent.ProcessState.UserTime() + agent.ProcessState.SystemTime()
		b.ReportMetric(100*spent.Seconds()/took.Seconds(), "%core")
		b.ReportMetric(float64(n)/took.Seconds(), "iterations/s")
		if got := h.back.last(e.name); got != e.n {
			b.Errorf("%d of %d frames arrived", got, e.n)
		}
		e.Close()
		os.Remove(e.Path())
	}
}
