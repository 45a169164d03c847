package incident

import (
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ledger"
)

// ofLoad are incidents that requests bring: how many, how long, and what they ask for.
var ofLoad = []Incident{
	{
		Name: "batch-growth", Mechanism: "M01",
		What:  "More requests run at once, each iteration has more to do, every token comes later.",
		Needs: "iterations with their members (L2)",
		Moves: up(Arrivals, Running, Step, TPOT), Keeps: []string{Preemptions, Residual, Clock, HeldHeat, HeldPower},
		Cure: &Intervention{"setting", "max_num_seqs", "8", "Fewer run at once: gaps shrink, the queue grows."},
		stage: func(s *stage) {
			s.add(ordinary(3))
			more := ordinary(s.between(7, 9.5))
			more.class = "visitors"
			s.surge(more)
			s.blame("class", "visitors")
		},
	},
	{
		Name: "batch-growth-unnoticed", TwinOf: "batch-growth",
		What:  "More requests run at once, but the step is bound by the weights: no token comes later.",
		Moves: up(Arrivals, Running), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.add(ordinary(3.5))
			more := ordinary(s.between(0.8, 1.2))
			more.class = "visitors"
			s.surge(more)
			s.blame("class", "visitors")
		},
	},
	{
		Name: "long-context", Mechanism: "M02",
		What:  "Sessions grow long: as many run, but each token reads more of the KV cache.",
		Needs: "iterations with their members (L2)",
		Moves: up(Context, PromptTokens, Step, TPOT), Keeps: []string{Arrivals, Preemptions, Residual, Clock, HeldHeat},
		Cure:  &Intervention{"route", "class sessions", "another replica", "Long sessions go elsewhere."},
		stage: func(s *stage) { s.add(ordinary(3)); s.sessions(3, s.between(1600, 2800)) },
	},
	{
		Name: "one-long-context", TwinOf: "long-context",
		What:  "A few long sessions: the mean context grows, and no token comes later by it.",
		Moves: up(Context), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) { s.add(ordinary(4)); s.sessions(0.5, s.between(600, 900)) },
	},
	{
		Name: "long-prefill", Mechanism: "M03",
		What:  "Long prompts are computed in chunks, and whoever decodes meanwhile waits for each chunk.",
		Needs: "iterations with their members (L2)",
		Moves: up(PromptTokens, Computed, ITLTail), Keeps: []string{Preemptions, Residual, Clock, HeldHeat, ITL},
		Cure: &Intervention{"setting", "long_prefill_token_threshold", "64", "A long prompt takes a part of each iteration only."},
		stage: func(s *stage) {
			s.add(ordinary(4))
			n := int(s.between(900, 2400))
			s.surge(load{class: "long", rate: 0.5, steady: true, prompt: [2]int{n, n}, output: [2]int{16, 16}})
			s.blame("class", "long")
		},
	},
	{
		Name: "long-prompts-cached", TwinOf: "long-prefill",
		What:  "Prompts as long, but the cache knows them: nothing is computed, nobody waits.",
		Moves: up(PromptTokens, Hits), Keeps: []string{TTFT, ITL, ITLTail, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.add(ordinary(4))
			known := document("manual", 0, s.long(s.between(900, 2400))/demoBlock*demoBlock)
			s.add(load{class: "long", rate: 2, steady: true, prompt: [2]int{40, 40}, output: [2]int{8, 8}, each: func(n int, r *experiment.Request) {
				if s.faulty(r.At) || n%4 == 0 { // before the onset it is asked about now and then, so the cache has it
					begin(r, 8, known)
				}
			}})
			s.blame("class", "long")
		},
	},
	{
		Name: "saturation", Mechanism: "M07",
		What:  "More arrives than is served: the queue grows as long as it does, and drains as slowly.",
		Needs: "queue and throughput",
		Moves: up(Arrivals, Queue, Running, TTFT), Keeps: []string{Residual, Clock, HeldHeat, HeldPower},
		Cure: &Intervention{"load", "arrivals", "−20 %", "Less is admitted, or there is one more replica."},
		stage: func(s *stage) {
			s.add(ordinary(5))
			more := ordinary(s.between(10, 20))
			more.class = "visitors"
			s.surge(more)
			s.blame("class", "visitors")
		},
	},
	{
		Name: "batch-queue", TwinOf: "saturation",
		What:  "A job queues for hours on a replica of its own: nobody waits for it.",
		Moves: up(Queue, Running), Keeps: []string{TTFT, ITL, TPOT, Goodput, Clock},
		stage: func(s *stage) {
			s.apart(3)
			s.surge(s.job(load{rate: s.between(4, 6), prompt: [2]int{40, 80}, output: [2]int{150, 250}}))
			s.blame("class", batch)
		},
	},
	{
		Name: "costly-sampling", Mechanism: "M31",
		What:  "A few requests ask for penalties, which the sampler computes slowly for the whole batch.",
		Needs: "iterations with their members, and what they ask for (L2)",
		Moves: up(Penalties, Step, HostTime, ITLTail), Keeps: []string{Preemptions, Clock, Residual},
		Cure: &Intervention{"load", "class careful", "without penalties", "The same requests without penalties."},
		stage: func(s *stage) {
			s.penalties(s.between(4, 14))
		},
	},
	{
		Name: "sampling-parameters", TwinOf: "costly-sampling",
		What:  "As many ask for penalties, and the sampler has a quick kernel for them.",
		Moves: up(Penalties), Keeps: []string{TTFT, ITL, TPOT, Step, Preemptions, Residual, Clock},
		stage: func(s *stage) { s.penalties(0) },
	},
	{
		Name: "head-of-line", Mechanism: "M32",
		What:  "Prompts that need most of the pool stand at the head of the line; the small ones behind them would fit.",
		Needs: "skips with their reason, and the head (L2)",
		Moves: up(Queue, BehindHead, TTFTTail), Keeps: []string{Residual, Clock, HeldHeat},
		Cure: &Intervention{"route", "class whole", "a replica of its own", "What needs most of a pool gets one."},
		stage: func(s *stage) {
			s.add(ordinary(3))
			s.add(load{class: "writers", rate: 2, prompt: [2]int{300, 400}, output: [2]int{250, 350}})
			n := int(s.between(3400, 3900))
			s.surge(load{class: "whole", rate: s.between(0.15, 0.25), steady: true, prompt: [2]int{n, n}, output: [2]int{4, 4}})
			s.blame("class", "whole")
		},
	},
	{
		Name: "batch-behind-its-head", TwinOf: "head-of-line",
		What:  "A job's large prompts hold up the job's small ones, on a replica of its own.",
		Moves: up(Queue, BehindHead), Keeps: []string{TTFT, ITL, TPOT, Goodput, Clock},
		stage: func(s *stage) {
			s.apart(3)
			s.surge(s.job(load{rate: s.between(2.5, 3.5), prompt: [2]int{40, 3000}, output: [2]int{60, 120}}))
			s.blame("class", batch)
		},
	},
	{
		Name: "longer-answers", Mechanism: "M33",
		What:  "Who is there asks for longer answers: nothing is slower, there is more of it.",
		Needs: "requests with their lengths (L1)",
		Moves: up(OutputTokens, Running), Keeps: []string{Arrivals, PromptTokens, Residual, Clock, HeldHeat},
		Cure: &Intervention{"load", "class chat", "max_tokens 120", "Answers are as long as they were."},
		stage: func(s *stage) {
			l := ordinary(3)
			l.each = func(_ int, r *experiment.Request) {
				if s.faulty(r.At) {
					r.OutputTokens = int(float64(r.OutputTokens) * s.between(1.6, 2.6))
				}
			}
			s.add(l)
			s.blame("class", chat)
		},
	},
	{
		Name: "shorter-prompts", TwinOf: "longer-answers",
		What:  "The mix changes to shorter prompts with slightly longer answers: the load stays what it was.",
		Moves: down(PromptTokens), Keeps: []string{Arrivals, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			l := ordinary(3)
			l.each = func(_ int, r *experiment.Request) {
				if s.faulty(r.At) {
					r.PromptTokens = int(float64(r.PromptTokens) * s.between(0.8, 0.6))
				}
			}
			s.add(l)
			s.blame("class", chat)
		},
	},
	{
		Name: "grammar-wait", Mechanism: "M28",
		What:  "Requests with a schema wait until its grammar is compiled; the others do not.",
		Needs: "skips with their reason (L2)",
		Moves: up(TTFTTail), Keeps: []string{Arrivals, Preemptions, Residual, Step, Clock},
		Cure: &Intervention{"host", "grammar cache", "warm", "Schemas are compiled before they are asked for."},
		stage: func(s *stage) {
			s.add(ordinary(3))
			s.schemas(time.Duration(s.between(0.5, 2.5) * float64(time.Second)))
		},
	},
	{
		Name: "grammar-known", TwinOf: "grammar-wait",
		What:  "More requests bring a schema, whose grammar is compiled already.",
		Moves: up(Grammars), Keeps: []string{TTFT, TTFTTail, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.add(ordinary(3))
			s.schemas(time.Millisecond)
			s.surge(load{class: "extract", rate: s.between(0.6, 1), prompt: [2]int{100, 200}, output: [2]int{30, 60}, traits: grammar(func(time.Duration) time.Duration { return time.Millisecond })})
		},
	},
}

// sessions are requests whose prompts become so many tokens with the fault, which the cache knows.
func (s *stage) sessions(rate, tokens float64) {
	s.blame("class", "sessions")
	known := document("session", 0, s.long(tokens)/demoBlock*demoBlock)
	s.add(load{class: "sessions", rate: rate, prompt: [2]int{60, 60}, output: [2]int{100, 100}, each: func(_ int, r *experiment.Request) {
		if s.faulty(r.At) {
			begin(r, 60, known)
		}
	}})
}

// penalties are requests with penalties, for each of whose rows the sampler takes so many milliseconds.
func (s *stage) penalties(each float64) {
	s.add(ordinary(3))
	s.alterFault(func(_ time.Duration, shape *timing.Shape, t *timing.Took) {
		t.Tail += time.Duration(each * shape.Work[ledger.WorkPenaltyRows] * float64(time.Millisecond))
	})
	s.surge(load{class: "careful", rate: 0.4, steady: true, prompt: [2]int{100, 200}, output: [2]int{60, 80},
		traits: func(*experiment.Request) world.Traits { return world.Traits{Features: ledger.FeaturePenalties} }})
	s.blame("class", "careful")
}

// schemas are requests with a grammar, which takes so long to compile while the fault is on.
func (s *stage) schemas(compile time.Duration) {
	s.blame("class", "extract")
	s.add(load{class: "extract", rate: 1, prompt: [2]int{100, 200}, output: [2]int{30, 60}, traits: grammar(func(at time.Duration) time.Duration {
		if s.faulty(at) {
			return compile
		}
		return time.Millisecond
	})})
}

func grammar(compile func(at time.Duration) time.Duration) func(*experiment.Request) world.Traits {
	return func(r *experiment.Request) world.Traits { return world.Traits{Grammar: compile(r.At)} }
}
