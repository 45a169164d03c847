package world

import (
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// steady is a load of requests that come evenly, all alike.
func steady(n int, every time.Duration, prompt, output int) []experiment.Request {
	var all []experiment.Request
	for i := range n {
		all = append(all, experiment.Request{At: time.Duration(i) * every, PromptTokens: prompt, OutputTokens: output})
	}
	return all
}

// atTime are the iterations of an engine that began between two times of the world.
func atTime(e *ledger.Engine, from, to time.Duration) (all []*ledger.Iteration) {
	for i := range e.Iterations {
		it := &e.Iterations[i]
		if at := time.Duration(it.Start - begin.UnixNano()); at >= from && at < to && it.Tokens > 0 {
			all = append(all, it)
		}
	}
	return all
}

func meanDuration(all []*ledger.Iteration) time.Duration {
	var sum int64
	for _, it := range all {
		sum += it.Duration()
	}
	return time.Duration(sum / int64(max(len(all), 1)))
}

// half is bound by memory for one half of its time.
type half struct{ linear }

func (h half) Iteration(at time.Duration, s *timing.Shape) timing.Took {
	t := h.linear.Iteration(at, s)
	t.Memory = 0.5
	return t
}

func withGPU(c Config, m timing.Model) Config {
	c.Replicas[0].Ranks[0].GPUs, c.Replicas[0].Ranks[0].Model = []GPU{DefaultGPU}, m
	c.Sampling = 500 * time.Millisecond
	return c
}

func TestALowerClockStretchesWhatComputes(t *testing.T) {
	c := withGPU(one(1, steady(40, 250*time.Millisecond, 64, 60), nil), half{linear{base: 8 * time.Millisecond}})
	b, _, _ := played(t, c, func(w *World) {
		w.At(4*time.Second, func(w *World) { w.Engine(0, 0).Devices()[0].Hold(DefaultGPU.Clock/2, HeldByHeat) })
		w.At(7*time.Second, func(w *World) { w.Engine(0, 0).Devices()[0].Hold(0, 0) })
	})
	e := b.Engines[0]
	before, during, after := meanDuration(atTime(e, time.Second, 4*time.Second)), meanDuration(atTime(e, 4100*time.Millisecond, 7*time.Second)), meanDuration(atTime(e, 7100*time.Millisecond, 9*time.Second))
	if d := during - before; d < 3900*time.Microsecond || d > 4100*time.Microsecond { // half of 8 ms takes twice as long
		t.Errorf("%v before, %v at half the clock", before, during)
	}
	if d := (after - before).Abs(); d > 50*time.Microsecond {
		t.Errorf("%v before, %v after", before, after)
	}
	d := b.Devices[0]
	clock, held := d.Signals["gpu.clock.sm"], d.Signals["gpu.throttled.thermal"]
	if clock.Least != DefaultGPU.Clock/2*1e6 || clock.Most != DefaultGPU.Clock*1e6 || held.Value < 2.9 || held.Value > 3.1 {
		t.Errorf("clock %+v, held %+v", clock, held)
	}
	if p := d.Signals["gpu.power"]; p.Most > DefaultGPU.Limit || p.Most < DefaultGPU.Idle+200 {
		t.Errorf("power %+v", p)
	}
	if h := d.Signals["gpu.temperature"]; h.Most <= h.Least {
		t.Errorf("temperature %+v", h)
	}
}

func TestSlowMemoryStretchesTheRest(t *testing.T) {
	c := withGPU(one(1, steady(10, 300*time.Millisecond, 64, 60), nil), half{linear{base: 8 * time.Millisecond}})
	b, _, _ := played(t, c, func(w *World) {
		w.At(1500*time.Millisecond, func(w *World) { w.Engine(0, 0).Devices()[0].SlowMemory(3) })
	})
	before, during := meanDuration(atTime(b.Engines[0], 0, 1500*time.Millisecond)), meanDuration(atTime(b.Engines[0], 1600*time.Millisecond, 3*time.Second))
	if d := during - before; d < 7900*time.Microsecond || d > 8100*time.Microsecond {
		t.Errorf("%v before, %v with memory three times as slow", before, during)
	}
}

func TestAStalledProcessDoesNothingMeanwhile(t *testing.T) {
	b, s, _ := played(t, one(1, steady(20, 100*time.Millisecond, 64, 60), nil), func(w *World) {
		w.At(time.Second, func(w *World) { w.Engine(0, 0).Stall(2 * time.Second) })
	})
	if n := len(atTime(b.Engines[0], 1001*time.Millisecond, 2999*time.Millisecond)); n != 0 || s.Complete != 20 {
		t.Errorf("%d iterations began while the process was stopped; %+v", n, s)
	}
}

func TestAHungDeviceEndsNothingUntilItGoesOn(t *testing.T) {
	b, s, _ := played(t, one(1, steady(20, 100*time.Millisecond, 64, 60), nil), func(w *World) {
		w.At(time.Second, func(w *World) { w.Engine(0, 0).Hang() })
		w.At(5*time.Second, func(w *World) { w.Engine(0, 0).Resume() })
	})
	longest := time.Duration(0)
	for _, it := range atTime(b.Engines[0], 0, time.Minute) {
		longest = max(longest, time.Duration(it.Duration()))
	}
	if longest < 3900*time.Millisecond || s.Complete != 20 {
		t.Errorf("the longest iteration took %v; %+v", longest, s)
	}
	if _, s, _ = played(t, cut(one(1, steady(20, 100*time.Millisecond, 64, 60), nil), time.Minute), func(w *World) {
		w.At(time.Second, func(w *World) { w.Engine(0, 0).Hang() })
	}); s.Unfinished == 0 {
		t.Errorf("a hung engine answered all: %+v", s)
	}
}

func cut(c Config, until time.Duration) Config {
	c.Until = until
	return c
}

// An engine that goes on deciding and gives nobody a token.
func TestAPausedEngineMakesNoTokens(t *testing.T) {
	b, s, _ := played(t, one(1, steady(20, 100*time.Millisecond, 64, 60), nil), func(w *World) {
		w.At(time.Second, func(w *World) { w.Engine(0, 0).Pause(simulate.PausedAll) })
		w.At(2*time.Second, func(w *World) { w.Engine(0, 0).Pause(simulate.Unpaused) })
	})
	empty := 0
	for _, it := range b.Engines[0].Iterations {
		if it.Tokens == 0 && it.Running > 0 {
			empty++
		}
	}
	if n := len(atTime(b.Engines[0], 1050*time.Millisecond, 2*time.Second)); n != 0 || empty < 100 || s.Complete != 20 {
		t.Errorf("%d iterations with tokens, %d without; %+v", n, empty, s)
	}
}

func TestAResetPreemptsAndForgets(t *testing.T) {
	b, s, _ := played(t, one(1, steady(20, 100*time.Millisecond, 64, 60), nil), func(w *World) {
		w.At(time.Second, func(w *World) { w.Engine(0, 0).ResetCache() })
	})
	if p := b.Engines[0].Preemptions; len(p) == 0 || !p[0].Reset || s.Complete != 20 {
		t.Errorf("%d preemptions; %+v", len(p), s)
	}
}

func TestASlowReaderIsSeenInTheSendWait(t *testing.T) {
	c := one(1, steady(4, 100*time.Millisecond, 64, 100), nil)
	c.Client.Read, c.Client.Buffer = 40*time.Millisecond, 4
	b, s, _ := played(t, c, nil)
	for _, r := range b.Requests {
		if r.SendWait < int64(400*time.Millisecond) || r.Chunks > 30 || r.Sequences[0].Finished > r.LastByte {
			t.Errorf("%d ns inside send, %d chunks of 100 tokens", r.SendWait, r.Chunks)
		}
		if c := r.Clients[0]; c.Output != 100 || len(c.Gaps) != int(r.Chunks) {
			t.Errorf("the client had %d tokens in %d chunks of %d", c.Output, len(c.Gaps), r.Chunks)
		}
	}
	if s.Complete != 4 {
		t.Errorf("%+v", s)
	}
}

func TestTimeoutsAreTriedAgainAndTheEngineAborts(t *testing.T) {
	c := one(1, steady(4, 100*time.Millisecond, 64, 400), nil)
	c.Client.Timeout, c.Client.Retries, c.Client.Backoff = 500*time.Millisecond, 2, 100*time.Millisecond
	b, s, _ := played(t, c, nil)
	if s.Attempts != 12 || s.TimedOut != 12 || s.Complete != 0 {
		t.Errorf("%+v", s)
	}
	for _, r := range b.Requests {
		if r.End != ledger.EndDisconnect || r.Sequences[0].Reason != ledger.FinishAbort || r.Clients[0].Outcome != ledger.OutcomeTimeout {
			t.Errorf("%v, %v, %v", r.End, r.Sequences[0].Reason, r.Clients[0].Outcome)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	c := one(1, append(steady(3, 100*time.Millisecond, 64, 10), experiment.Request{At: time.Second, PromptTokens: 1000, OutputTokens: 100}), nil)
	b, s, _ := played(t, c, func(w *World) {
		w.At(150*time.Millisecond, func(w *World) { w.Replica(0).Refuse(503) })
		w.At(900*time.Millisecond, func(w *World) { w.Replica(0).Refuse(0) })
	})
	if s.Complete != 2 || s.Refused != 2 {
		t.Errorf("%+v", s)
	}
	if status := []int{b.Requests[2].Status, b.Requests[3].Status}; status[0] != 503 || status[1] != 400 {
		t.Errorf("%v", status)
	}
}

func TestLostRecordsLeaveHoles(t *testing.T) {
	a := ingest.New()
	c := one(1, steady(20, 50*time.Millisecond, 64, 60), nil)
	c.Recorder = NewFrames(a)
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	w.Lose(func(h *wire.Hello, m wire.Message) bool {
		n++
		return h.Role == "engine" && m.Type() == wire.TypeDone && n%50 == 0
	})
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	b := a.Book()
	if len(b.AllGaps()) == 0 || b.Engines[0].Between(b.Engines[0].First, b.Engines[0].Completed()).Unknown == 0 {
		t.Error("nothing is told to be missing")
	}
}

func TestASkewedClockMovesOnlyTimesOfDay(t *testing.T) {
	times := func(skew time.Duration) (received, e2e int64) {
		c := one(1, steady(2, 100*time.Millisecond, 64, 20), nil)
		c.Replicas[0].Skew = skew
		b, _, _ := played(t, c, nil)
		return b.Requests[0].Received, b.Requests[0].LastByte - b.Requests[0].Received
	}
	r0, d0 := times(0)
	r1, d1 := times(3 * time.Second)
	if d0 != d1 || r1-r0 != int64(3*time.Second) {
		t.Errorf("moved by %v, took %d and %d", time.Duration(r1-r0), d0, d1)
	}
}

func TestStragglersAreWaitedFor(t *testing.T) {
	c := withGPU(one(1, steady(5, 100*time.Millisecond, 64, 60), nil), plain)
	c.Replicas[0].Ranks[0].GPUs = []GPU{DefaultGPU, DefaultGPU}
	b, _, _ := played(t, c, func(w *World) { w.Engine(0, 0).Devices()[1].Share(3) })
	for _, it := range b.Engines[0].Iterations {
		if x := it.Execution; it.Tokens > 0 && (x == nil || x.Ranks != 2 || x.Wait < x.Device/2 || x.Graph != ledger.GraphFull) {
			t.Fatalf("%+v", x)
		}
	}
}

func TestRouters(t *testing.T) {
	open := []int{3, 1, 2}
	rr := RoundRobin()
	if a, b, c, d := rr.Pick(open, nil), rr.Pick(open, nil), rr.Pick(open, nil), rr.Pick(open, nil); a != 0 || b != 1 || c != 2 || d != 0 {
		t.Error("round robin:", a, b, c, d)
	}
	if n := LeastLoaded().Pick(open, nil); n != 1 {
		t.Error("least loaded:", n)
	}
	p := PrefixAware(4, 2)
	if n := p.Pick(open, []uint64{1, 2}); n != 1 {
		t.Error("nothing is known:", n)
	}
	if n := p.Pick([]int{0, 2, 0}, []uint64{1, 2, 3}); n != 1 {
		t.Error("a longer prompt that begins alike:", n)
	}
	if n := p.Pick([]int{0, 3, 1}, []uint64{1, 2, 9}); n != 0 {
		t.Error("too busy:", n)
	}
	p.Pick(open, []uint64{20, 21, 22, 23}) // all that it remembers
	if n := p.Pick([]int{0, 1, 1}, []uint64{1, 2}); n != 0 {
		t.Error("forgotten:", n)
	}
}

// With a prefix-aware router each replica's cache serves its own prefixes.
func TestPrefixAwareRoutingFindsMore(t *testing.T) {
	hits := func(r func() Router) (tokens int) {
		var all []experiment.Request
		for i := range 120 {
			all = append(all, experiment.Request{At: time.Duration(i) * 150 * time.Millisecond, PromptTokens: 600, OutputTokens: 4, Prefix: []experiment.PrefixRun{{Hash: experiment.Hash(mix(uint64(i)) % 8), Tokens: 512}}})
		}
		c := one(1, all, nil)
		for _, name := range []string{"b", "c", "d"} {
			again := c.Replicas[0]
			again.Name = name
			c.Replicas = append(c.Replicas, again)
		}
		c.Router = r()
		b, _, _ := played(t, c, nil)
		for _, e := range b.Engines {
			for _, q := range e.Sequences {
				tokens += int(q.Cached)
			}
		}
		return tokens
	}
	turns, aware := hits(RoundRobin), hits(func() Router { return PrefixAware(10_000, 8) })
	if aware <= turns {
		t.Errorf("%d tokens from the cache in turns, %d by prefix", turns, aware)
	}
}

// bare takes no time on the host.
type bare struct{ linear }

func (b bare) Iteration(at time.Duration, s *timing.Shape) timing.Took {
	return timing.Took{Device: b.linear.Iteration(at, s).Device}
}

func TestHardwareTwiceAsFastHalvesIterations(t *testing.T) {
	busy := func(m timing.Model) int64 {
		c := one(1, steady(30, 0, 100, 50), nil)
		c.Replicas[0].Ranks[0].Model = m
		b, _, _ := played(t, c, nil)
		e := b.Engines[0]
		return e.Between(e.First, e.Completed()).Busy
	}
	slow, fast := busy(bare{plain}), busy(timing.Faster(bare{plain}, 2))
	if r := float64(slow) / float64(fast); r < 1.99 || r > 2.01 {
		t.Errorf("%d ns and %d ns: %.3f times as fast", slow, fast, r)
	}
}

func TestAnIdleReplicaNeverRaisesQueueTime(t *testing.T) {
	queued := func(seed uint64, replicas int) (sum int64) {
		c := one(seed, load(seed, 80, 15*time.Millisecond, false), map[string]any{"max_num_seqs": 4})
		for i := 1; i < replicas; i++ {
			again := c.Replicas[0]
			again.Name = strings.Repeat("x", i)
			c.Replicas = append(c.Replicas, again)
		}
		c.Router = LeastLoaded()
		b, _, _ := played(t, c, nil)
		for _, e := range b.Engines {
			for _, q := range e.Sequences {
				if row := e.Row(q.Join); row != nil {
					sum += row.Decided - q.Queued
				}
			}
		}
		return sum
	}
	for seed := range uint64(8) {
		if one, two, three := queued(seed, 1), queued(seed, 2), queued(seed, 3); two > one || three > two {
			t.Errorf("seed %d: %d ns in the queue of one replica, %d of two, %d of three", seed, one, two, three)
		}
	}
}

func TestAConfigurationThatCannotBeIsRefusedByName(t *testing.T) {
	for want, harm := range map[string]func(*Config){
		"no replica":      func(c *Config) { c.Replicas = nil },
		"no workload":     func(c *Config) { c.Workload = nil },
		"no engine":       func(c *Config) { c.Replicas[0].Ranks = nil },
		"no timing model": func(c *Config) { c.Replicas[0].Ranks[0].Model = nil },
		"a name of its":   func(c *Config) { c.Replicas = append(c.Replicas, c.Replicas[0]) },
		"accept: 2":       func(c *Config) { c.Replicas[0].Ranks[0].Accept = 2 },
		"timeout: -1":     func(c *Config) { c.Client.Timeout = -1 },
		"num_gpu_blocks":  func(c *Config) { _ = Set(c.Replicas[0].Ranks[0].Settings, "num_gpu_blocks", "20") },
		"chunked prefill": func(c *Config) { _ = Set(c.Replicas[0].Ranks[0].Settings, "enable_chunked_prefill", "false") },
		"vLLM \"0.9\"":    func(c *Config) { c.Replicas[0].Ranks[0].Version = "0.9" },
		"clock: 0":        func(c *Config) { c.Replicas[0].Ranks[0].GPUs = []GPU{{}} },
		"prompt_tokens: 0": func(c *Config) {
			c.Workload = experiment.Open(experiment.Requests([]experiment.Request{{OutputTokens: 1}}))
		},
	} {
		c := one(1, steady(1, 0, 10, 2), nil)
		harm(&c)
		w, err := New(c)
		if err == nil {
			_, err = w.Run()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestSettingsAreSetWithWhatFollows(t *testing.T) {
	s := DefaultSettings()
	for name, text := range map[string]string{"max_num_batched_tokens": "512", "async_scheduling": "true", "block_size": "32", "served_model": "7"} {
		if err := Set(s, name, text); err != nil {
			t.Error(err)
		}
	}
	if _, got, err := simulate.FromHello("0.32.0", s); err != nil || got.MaxTokens != 512 || !got.Asynchronous || got.BlockSize != 32 || s["served_model"] != "7" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{"max_num_batch": "512", "block_size": "big", "async_scheduling": "1"} {
		if err := Set(s, name, text); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, text, err)
		}
	}
}

func TestACrashBreaksConnectionsAndARestartIsANewIncarnation(t *testing.T) {
	c := withGPU(one(1, steady(40, 100*time.Millisecond, 64, 60), nil), plain)
	c.Client.Retries, c.Client.Backoff = 6, 200*time.Millisecond
	b, s, _ := played(t, c, func(w *World) {
		w.At(time.Second, func(w *World) {
			w.Engine(0, 0).Devices()[0].Error(w, 79)
			w.Replica(0).Crash()
			if err := Set(w.Replica(0).Config().Ranks[0].Settings, "max_num_seqs", "3"); err != nil {
				t.Error(err)
			}
		})
		w.At(3*time.Second, func(w *World) { w.Restart(0) })
	})
	if s.Complete != 40 || s.Broken == 0 || s.Unfinished != 0 {
		t.Errorf("%+v", s)
	}
	if len(b.Engines) != 2 || b.Engines[1].Setting("max_num_seqs") != 3 || len(b.Devices) != 1 || len(b.Devices[0].Errors) != 1 {
		t.Errorf("%d engines, %d devices", len(b.Engines), len(b.Devices))
	}
}
