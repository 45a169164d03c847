package incident

import (
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/wire"
)

// ofCache are incidents of the KV cache.
var ofCache = []Incident{
	{
		Name: "kv-pressure", Mechanism: "M04",
		What:  "Long answers fill the pool: running sequences lose their blocks, wait, and are computed again.",
		Needs: "preemptions with victim and preemptor (L2)",
		Moves: up(Preemptions, Usage, Queue, TTFT), Keeps: []string{Clock, HeldHeat, Residual},
		Cure: &Intervention{"setting", "num_gpu_blocks", "400", "The pool is twice as large: nobody is preempted."},
		stage: func(s *stage) {
			s.add(ordinary(3))
			s.growing("grow", s.between(3, 6))
			s.blame("class", "grow")
		},
	},
	{
		Name: "preempted-batch", TwinOf: "kv-pressure",
		What:  "A job is preempted again and again, on a replica of its own; nobody waits for it.",
		Moves: up(Preemptions, Usage), Keeps: []string{TTFT, ITL, TPOT, Goodput, Clock},
		stage: func(s *stage) {
			s.apart(3)
			s.growing(batch, s.between(1, 1.5))
			s.blame("class", batch)
		},
	},
	{
		Name: "eviction-storm", Mechanism: "M05",
		What:  "More different documents are asked about than the cache holds: what was found is computed again.",
		Needs: "cache hits and evictions",
		Moves: append(down(Hits), up(Computed, Evictions, TTFTTail)...), Keeps: []string{Arrivals, PromptTokens, Residual, Clock, HeldHeat},
		Cure: &Intervention{"route", "class retrieval", "by document", "Each replica keeps a part of the documents."},
		stage: func(s *stage) {
			s.add(ordinary(2))
			s.documents(int(s.between(16, 64)), "retrieval")
		},
	},
	{
		Name: "evictions-of-leftovers", TwinOf: "eviction-storm",
		What:  "A job's prompts push each other out of the cache; nobody would have asked for them again.",
		Moves: up(Evictions, Computed), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.add(ordinary(2))
			s.documents(3, "retrieval")
			s.surge(load{class: batch, rate: s.between(0.5, 0.8), prompt: [2]int{400, 500}, output: [2]int{2, 4}})
			s.culprits = nil
			s.blame("class", batch)
		},
	},
	{
		Name: "slow-reclaim", Mechanism: "M06",
		What:  "Giving up a cached block costs the scheduler's thread time, in each iteration from when the cache is full.",
		Needs: "device times, or a profile of the scheduler's thread",
		Moves: up(HostTime, Step), Keeps: []string{Arrivals, Preemptions, Residual, Clock},
		Cure:  &Intervention{"setting", "enable_prefix_caching", "false", "Without a cache nothing is reclaimed."},
		stage: func(s *stage) { s.reclaims(s.between(1.5, 4)); s.blameEngine() },
	},
	{
		Name: "quick-reclaim", TwinOf: "slow-reclaim",
		What:  "As many blocks are given up, at next to no cost.",
		Moves: up(Evictions), Keeps: []string{TTFT, ITL, TPOT, HostTime, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.reclaims(0.01)
			s.surge(load{class: batch, rate: s.between(0.8, 1.2), prompt: [2]int{400, 500}, output: [2]int{2, 4}})
			s.blame("class", batch)
		},
	},
}

// growing are requests whose prompts fit into the pool together and whose answers do not.
func (s *stage) growing(class string, rate float64) {
	n := int(0.85 * float64(s.tokens) / 14 / s.engine.Tokens)
	l := load{class: class, rate: rate, prompt: [2]int{n, n}, output: [2]int{350, 450}}
	if class == batch {
		l = s.job(l)
	}
	s.surge(l)
}

// documents are prompts about one of four documents; of so many with the fault.
func (s *stage) documents(many int, class string) {
	s.blame("class", class)
	s.add(load{class: class, rate: 3, prompt: [2]int{1, 1}, output: [2]int{20, 40}, each: func(n int, r *experiment.Request) {
		of := 3
		if s.faulty(r.At) {
			of = many
		}
		k := int(mixed(s.Seed, uint64(n)) % uint64(of))
		begin(r, s.long(40), document("document", k, s.long(512)))
	}})
}

// mixed makes one well-mixed number of two (the finaliser of SplitMix64).
func mixed(a, b uint64) uint64 {
	x := a + b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// reclaims lets each block that is evicted while the fault is on cost the next iteration's host so many milliseconds.
func (s *stage) reclaims(each float64) {
	s.add(ordinary(5))
	evicted := 0
	s.tap.hears = func(h *wire.Hello, m wire.Message) {
		if m, ok := m.(*wire.Cache); ok && m.Kind == wire.CacheEvicted && h.Engine.Replica == s.name() {
			evicted += int(m.Blocks)
		}
	}
	s.alter(func(at time.Duration, _ *timing.Shape, t *timing.Took) {
		if s.faulty(at) {
			t.Host += time.Duration(each * float64(evicted) * float64(time.Millisecond))
		}
		evicted = 0
	})
}
