package timing

import (
	"bytes"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
)

// demo is a recorded run of a real engine: vLLM 0.32.0 on a CPU.
var demo = sync.OnceValues(func() (*ledger.Engine, error) {
	raw, err := os.ReadFile("../../../cli/demo.wlc")
	if err != nil {
		return nil, err
	}
	a := ingest.New()
	if err := ingest.ReadCapture(bytes.NewReader(raw), "demo.wlc", a); err != nil {
		return nil, err
	}
	return a.Book().Engines[0], nil
})

func demoEngine(t testing.TB) *ledger.Engine {
	t.Helper()
	e, err := demo()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// made is a ledger whose iterations took what the model says, with so many decisions in flight. Who was in them, and what they
// computed, a small scheduler decided at random.
func made(t testing.TB, seed uint64, n, depth int, m Model, device bool) *ledger.Engine {
	t.Helper()
	run, _, err := scenario.Random(seed, n, scenario.PlainCost)
	if err != nil {
		t.Fatal(err)
	}
	book, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	e := book.Engines[0]
	e.Depth = depth
	retime(e, m, device)
	return e
}

// retime gives the iterations of e the times of a model, as an engine's loop would: decide and launch; with as many in flight as may
// be, wait for the oldest and take up its output.
func retime(e *ledger.Engine, m Model, device bool) {
	prefills := prefillsOf(e)
	began := e.Iterations[0].Decided
	now, free := began, int64(0) // of the host; when the device is
	took := make([]Took, len(e.Iterations))
	ready := make([]int64, len(e.Iterations))
	complete := func(k int) {
		it := &e.Iterations[k]
		now = max(now, ready[k])
		it.Completed, it.Start = now, it.Decided
		if k > 0 {
			it.Start = max(it.Start, e.Iterations[k-1].End)
		}
		now += int64(took[k].Tail)
		it.End = now
		now += int64(took[k].Gap)
	}
	for k := range e.Iterations {
		it := &e.Iterations[k]
		s := shapeOf(e, it, prefills[k])
		took[k] = m.Iteration(time.Duration(now-began), &s)
		it.Decided = now
		now += int64(took[k].Host)
		it.Launched = now
		free = max(free, now) + int64(took[k].Device)
		ready[k] = free
		it.Execution = &ledger.Execution{Ranks: 1, Graph: took[k].Mode, Padded: uint32(took[k].Padded)}
		if device {
			it.Execution.Device = int64(took[k].Device)
		}
		if done := k - e.Depth + 1; done >= 0 {
			complete(done)
		}
	}
	for k := max(0, len(e.Iterations)-e.Depth+1); k < len(e.Iterations); k++ {
		complete(k)
	}
}

func everything(uint64) bool { return true }

func calibrate(t testing.TB, e *ledger.Engine) *Calibration {
	t.Helper()
	c, err := Calibrate(e, everything)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// small is a synthetic engine with graphs of the sizes that the small scheduler makes.
func small() Synthetic {
	y := MadeUp()
	y.Graphs, y.Eager = []int{1, 2, 4, 8, 16, 32}, 4*time.Millisecond
	return y
}

// still is an engine without chance: no jitter, no drift, no collections.
func still(y Synthetic) Synthetic {
	y.DeviceJitter, y.HostJitter, y.Drift, y.Collection = 0, 0, Drift{}, Collection{}
	return y
}

// shape of a batch: so many sequences in decode, each with a context, and chunks of prompts on top of that context.
func shape(decodes, context int, chunks ...int) *Shape {
	s := &Shape{}
	q := &ledger.Sequence{Logprobs: -1, PromptLogprobs: -1}
	for range decodes {
		s.Work = s.Work.Add(ledger.IterationWork(q, ledger.Decode, 1, uint64(context), false))
		s.Tokens++
	}
	for _, n := range chunks {
		s.Work = s.Work.Add(ledger.IterationWork(q, ledger.Prefill, uint32(n), uint64(context), false))
		s.Tokens += n
	}
	s.Sequences, s.Prefills = decodes+len(chunks), len(chunks)
	if s.Tokens > 0 {
		s.Work[ledger.WorkIterations] = 1
	}
	return s
}

// anyShape is a batch of a random size.
func anyShape(rng *rand.Rand) *Shape {
	chunks := make([]int, rng.IntN(4))
	for i := range chunks {
		chunks[i] = 1 + rng.IntN(200)
	}
	return shape(rng.IntN(40), rng.IntN(3000), chunks...)
}

// more is s with something more to compute.
func more(rng *rand.Rand, s *Shape) *Shape {
	extra := anyShape(rng)
	extra.Work[ledger.WorkIterations] = 0
	if s.Tokens == 0 && extra.Tokens > 0 {
		extra.Work[ledger.WorkIterations] = 1
	}
	return &Shape{s.Work.Add(extra.Work), s.Sequences + extra.Sequences, s.Tokens + extra.Tokens, s.Prefills + extra.Prefills}
}
