package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Load says what a [Steady] engine is busy with.
type Load struct {
	Seed      uint64
	Replica   string        // names the engine
	Batch     int           // sequences at once
	Output    int           // tokens of an answer in the mean; they are spread evenly from 1 to twice as many
	Iteration time.Duration // of an iteration that only decodes, in the mean
	Start     int64         // ns, monotonic; 0 = Boot
	Unix      int64         // Unix ns at Start; 0 = Epoch
}

// Steady is an engine in continuous decode and its front end, without end: whoever ends is followed by another, with ids of 36 random
// characters and a prompt of 300 to 700 tokens computed in one iteration. Iterations jitter by 2 %, gaps and the scheduler's own times by
// 10 %, arrivals are spread over an iteration: nothing in it repeats. It is not an engine's scheduler.
type Steady struct {
	Engine, Front *Source
	load          Load
	rng           *rand.Rand
	now           int64 // end of the last iteration
	front         int64 // time of the front end's last frame
	iteration     uint64
	handles       uint32
	running       []*steadySequence
	joining       []*steadySequence // that the next iteration admits
	prefilled     []*steadySequence // by the last iteration
	left          []uint32          // by the last iteration
	digest        uint64
	context       float64 // tokens of all that run
	delivered     []uint32
	into          *ingest.Assembler // that was fed last, and the numbers of the sources there
	numbers       [2]uint16
}

type steadySequence struct {
	handle         uint32 // and the number of its HTTP request
	prompt, output uint32
	last           uint32 // output at which it ends
	id, external   string
	arrived        int64
}

// NewSteady begins such an engine.
func NewSteady(l Load) *Steady {
	l.Start, l.Unix = cmp.Or(l.Start, Boot), cmp.Or(l.Unix, Epoch)
	s := &Steady{load: l, rng: rand.New(rand.NewPCG(l.Seed, 9)), now: l.Start, front: l.Start}
	hello := func(role, thread string) wire.Hello {
		return wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Producer: wire.Producer{Name: "scenario", Version: "1"},
			Engine: wire.Engine{Name: "vllm", Version: "0.32.0", Deployment: "steady", Replica: l.Replica, Incarnation: fmt.Sprintf("%016x", s.rng.Uint64())},
			Role:   role, Thread: thread, PID: uint32(1000 + l.Seed), Boot: "boot", Host: "host", Depth: 1, Clock: [3]int64{l.Start, l.Unix, l.Start},
			Settings: map[string]any{"max_num_seqs": json.Number(fmt.Sprint(l.Batch)), "block_size": json.Number("16"), "num_gpu_blocks": json.Number("200000")}}
	}
	s.Engine = &Source{Name: l.Replica + "-engine-scheduler", Hello: hello("engine", "scheduler")}
	s.Front = &Source{Name: l.Replica + "-frontend-main", Hello: hello("frontend", "main")}
	s.Front.Hello.Engine.Incarnation = s.Engine.Hello.Engine.Incarnation
	return s
}

// Now is the monotonic time, in ns, that has been played to.
func (s *Steady) Now() int64 { return s.now }

// Feed gives an assembler what has been played since the last call.
func (s *Steady) Feed(a *ingest.Assembler) error {
	for i, src := range []*Source{s.Front, s.Engine} {
		if s.into != a {
			var err error
			if s.numbers[i], err = a.Source(wire.Source{Name: src.Name, Hello: src.HelloJSON()}); err != nil {
				return err
			}
		}
		for _, b := range src.Frames {
			f, _, err := wire.ParseFrame(b)
			if err != nil {
				return err
			}
			if err := a.Frame(s.numbers[i], f); err != nil {
				return err
			}
		}
		src.Frames = src.Frames[:0]
	}
	s.into = a
	return nil
}

// Next plays one iteration: its frames are appended to those of both sources.
func (s *Steady) Next() error {
	s.iteration++
	m, ns := s.decide()
	if err := s.Engine.add(m); err != nil {
		return err
	}
	end := m.Returned + int64(ns)
	var finished []*steadySequence
	members := s.delivered[:0]
	kept := s.running[:0]
	for _, q := range s.running {
		q.output++
		members = append(members, q.handle)
		s.context++
		if q.output < q.last {
			kept = append(kept, q)
			continue
		}
		finished = append(finished, q)
		s.context -= float64(q.prompt + q.output)
		s.digest ^= wire.Digest(q.handle)
		s.left = append(s.left, q.handle)
	}
	same := s.same(members)
	s.running, s.delivered = kept, members

	// Who will take the places of those that end here comes while the iteration runs; while it starts up, two a time.
	n := len(finished)
	if s.iteration < uint64(s.load.Batch) {
		n = min(n+2, s.load.Batch-len(s.running))
	}
	fresh, err := s.arrive(n, m.Time, end)
	if err != nil {
		return err
	}
	d := &wire.Done{Time: end - s.jitter(200e3), Iteration: s.iteration, Returned: end, Key: float64(end) / 1e9, Tokens: uint32(len(members))}
	for _, q := range finished {
		d.Finishes = append(d.Finishes, wire.Finish{Handle: q.handle, Reason: ledger.FinishStop, Output: q.output})
	}
	if err := s.Engine.add(d); err != nil {
		return err
	}
	if err := s.tell(d.Key, end, members, same, finished); err != nil {
		return err
	}
	for i, q := range fresh {
		if err := s.Engine.add(&wire.Queued{Time: end + 20_000 + int64(i)*5_000 + s.rng.Int64N(5_000), Handle: q.handle, Prompt: q.prompt, Max: 4096, Arrived: q.arrived, N: 1,
			Logprobs: wire.LogprobsNone, PromptLogprobs: wire.LogprobsNone, ID: q.id, External: q.external}); err != nil {
			return err
		}
	}
	s.joining = fresh
	s.now = end
	return nil
}

// decide makes the decision of an iteration, and says how long it runs, in ns.
func (s *Steady) decide() (*wire.Scheduled, float64) {
	ns := float64(s.load.Iteration.Nanoseconds()) + 50*s.context
	m := &wire.Scheduled{Time: s.now + 250_000 + s.jitter(150e3), Iteration: s.iteration, Alias: s.iteration, Full: s.iteration%64 == 1, TokenBudget: 8192, SeqBudget: uint32(s.load.Batch)}
	m.Returned = m.Time + s.jitter(150e3)
	if !m.Full {
		m.Leaves = append(m.Leaves, s.left...)
		for _, q := range s.prefilled {
			if q.output < q.last {
				m.Changes = append(m.Changes, wire.Change{Handle: q.handle, Tokens: 1})
			}
		}
	} else {
		for _, q := range s.running {
			m.Joins = append(m.Joins, wire.Join{Handle: q.handle, Tokens: 1, Before: q.prompt + q.output - 1, Total: q.prompt + q.output, Kind: wire.JoinContinued})
		}
	}
	m.Tokens = uint32(len(s.running))
	for _, q := range s.joining {
		m.Joins = append(m.Joins, wire.Join{Handle: q.handle, Tokens: q.prompt, Total: q.prompt, Kind: wire.JoinNew})
		m.Tokens += q.prompt
		s.digest ^= wire.Digest(q.handle)
		s.context += float64(q.prompt)
		ns += 30e3 * float64(q.prompt)
	}
	s.running = append(s.running, s.joining...)
	s.prefilled, s.joining, s.left = s.joining, nil, s.left[:0]
	m.Digest, m.Members, m.Running = s.digest, uint32(len(s.running)), uint32(len(s.running))
	m.Free = 200_000 - uint32(s.context/16)
	return m, ns * (1 + 0.02*s.rng.NormFloat64())
}

// jitter is a time with 10 % of jitter, in ns.
func (s *Steady) jitter(ns float64) int64 { return int64(ns * (1 + 0.1*s.rng.NormFloat64())) }

// same reports whether the members are those of the iteration before.
func (s *Steady) same(members []uint32) bool {
	return len(s.prefilled) == 0 && len(members) == len(s.delivered) // who left made room for one that joined
}

// arrive makes n requests that the front end takes in between two times.
func (s *Steady) arrive(n int, from, to int64) (fresh []*steadySequence, err error) {
	at := make([]int64, n)
	for i := range at {
		at[i] = max(from, s.front) + s.rng.Int64N(max((to-max(from, s.front))*8/10, 1))
	}
	slices.Sort(at)
	for _, t := range at {
		s.handles++
		uuid := fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", s.rng.Uint32(), s.rng.Uint32N(1<<16), s.rng.Uint32N(1<<16), s.rng.Uint32N(1<<16), s.rng.Uint64N(1<<48))
		q := &steadySequence{handle: s.handles, prompt: 300 + s.rng.Uint32N(400), last: 1 + s.rng.Uint32N(uint32(2*s.load.Output)),
			id: fmt.Sprintf("cmpl-%s-0-%08x", uuid, s.rng.Uint32()), external: "cmpl-" + uuid + "-0"}
		t = max(t, s.front)
		submitted := t + s.rng.Int64N(max((to-t)/3, 1))
		q.arrived = submitted + s.rng.Int64N(max((to-submitted)/2, 1))
		s.front = submitted
		if err := s.Front.add(&wire.Received{Time: t, HTTP: q.handle, RequestID: uuid, Path: "/v1/completions",
			Traceparent: fmt.Sprintf("00-%016x%016x-%016x-01", s.rng.Uint64(), s.rng.Uint64(), s.rng.Uint64())}); err != nil {
			return nil, err
		}
		if err := s.Front.add(&wire.Submitted{Time: submitted, HTTP: q.handle, Handle: q.handle, Prompt: q.prompt, ID: q.id, External: q.external}); err != nil {
			return nil, err
		}
		fresh = append(fresh, q)
	}
	return fresh, nil
}

// tell writes what the front end does with an iteration's output.
func (s *Steady) tell(key float64, end int64, members []uint32, same bool, finished []*steadySequence) error {
	t := max(end, s.front) + 10_000 + s.rng.Int64N(40_000)
	d := &wire.Delivered{Time: t, Key: key, Returned: t + 1_000, Same: same}
	if !same {
		d.Handles = slices.Clone(members)
	}
	frames := []wire.Message{d}
	for _, q := range s.prefilled {
		t += 5_000 + s.rng.Int64N(20_000)
		frames = append(frames, &wire.FirstByte{Time: t, HTTP: q.handle, Status: 200})
	}
	for _, q := range finished {
		t += 5_000 + s.rng.Int64N(20_000)
		frames = append(frames, &wire.Answered{Time: t, Handle: q.handle, Reason: ledger.FinishStop, By: wire.ByToken, Output: q.output})
		t += 5_000 + s.rng.Int64N(20_000)
		frames = append(frames, &wire.LastByte{Time: t, HTTP: q.handle, Status: 200, End: wire.EndComplete, Chunks: q.output, Bytes: uint64(q.output) * 180, Wait: uint64(s.rng.Int64N(100_000))})
	}
	for _, m := range frames {
		if err := s.Front.add(m); err != nil {
			return err
		}
	}
	s.front = t
	return nil
}
