package incident

import (
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ledger"
)

// ofHosts are incidents of what runs on the CPU: the scheduler's thread, the front end, what launches kernels.
var ofHosts = []Incident{
	{
		Name: "host-bound", Mechanism: "M14",
		What:  "The engine's process gets too little CPU: between and in iterations the GPU waits for it.",
		Needs: "device times of iterations",
		Moves: up(HostTime, Deciding, Step, ITL), Keeps: []string{Arrivals, Preemptions, Residual, Clock},
		Cure:  &Intervention{"host", "CPU quota", "as it was", "The neighbour goes, or the engine has cores of its own."},
		stage: func(s *stage) { s.add(ordinary(4)); s.slowHost(s.between(4, 16)); s.blameEngine() },
	},
	{
		Name: "host-hidden", TwinOf: "host-bound",
		What:  "The host is slower, but with asynchronous scheduling it works while the GPU does.",
		Moves: up(Deciding), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.set("scheduler", "AsyncScheduler")
			s.set("async_scheduling", true)
			s.add(ordinary(4))
			s.slowHost(s.between(1.5, 2.5))
			s.blameEngine()
		},
	},
	{
		Name: "collection-pauses", Mechanism: "M14",
		What:  "The engine's process stands still for a fraction of a second again and again, as a garbage collector lets it.",
		Needs: "device times of iterations",
		Moves: up(Longest, ITLTail), Keeps: []string{ITL, Arrivals, Preemptions, Residual, Clock},
		Cure: &Intervention{"host", "garbage collector", "frozen", "What lives long is not looked at again."},
		stage: func(s *stage) {
			s.add(ordinary(4))
			s.pauses(s.between(0.1, 0.3), 800*time.Millisecond)
			s.blameEngine()
		},
	},
	{
		Name: "collection-brief", TwinOf: "collection-pauses",
		What:  "The collector runs now and then, and is done within some milliseconds.",
		Moves: up(HostTime), Keeps: []string{TTFT, ITL, TPOT, Goodput, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.add(ordinary(4))
			s.pauses(s.between(0.02, 0.04), 1600*time.Millisecond)
			s.blameEngine()
		},
	},
	{
		Name: "frontend-backlog", Mechanism: "M14",
		What:  "The front end turns tokens into chunks more slowly: they leave the engine in time and arrive late.",
		Needs: "the front end's records",
		Moves: up(Frontend, TTFT), Keeps: []string{Step, HostTime, Preemptions, Residual, Clock},
		Cure:  &Intervention{"setting", "api_server_count", "2", "Two processes share the work."},
		stage: func(s *stage) { s.add(ordinary(4)); s.slowFront(s.between(1.8, 2.5)); s.blameReplica() },
	},
	{
		Name: "frontend-busier", TwinOf: "frontend-backlog",
		What:  "The front end works some more for each chunk, and is done long before the next one.",
		Moves: up(Frontend), Keeps: []string{TTFT, ITL, ITLTail, TPOT, Step, Preemptions, Residual, Clock},
		stage: func(s *stage) { s.add(ordinary(4)); s.slowFront(s.between(0.3, 0.4)); s.blameReplica() },
	},
	{
		Name: "graph-miss", Mechanism: "M15",
		What:  "The batch outgrows the largest captured graph: each iteration is launched kernel by kernel, and the batch grows further.",
		Needs: "graph mode of iterations",
		Moves: append(up(Running, Step, ITL), down(Graphs)...), Keeps: []string{Preemptions, Clock, HeldHeat},
		Cure: &Intervention{"setting", "max_num_seqs", "6", "No batch is larger than the graphs."},
		stage: func(s *stage) {
			s.graphs(6, s.between(1.4, 2))
			s.blameEngine()
		},
	},
	{
		Name: "graph-miss-free", TwinOf: "graph-miss",
		What:  "As many iterations have no graph, and launching them costs no more.",
		Moves: append(up(Running), down(Graphs)...), Keeps: []string{Preemptions, Clock, Residual},
		stage: func(s *stage) { s.graphs(6, 1); s.blame("class", "visitors") },
	},
	{
		Name: "first-use-stall", Mechanism: "M16",
		What:  "The first request of a new shape lets the engine compile for seconds, and everybody waits.",
		Needs: "iterations with their members (L2)",
		Moves: up(Longest, TTFTTail, HostTime), Keeps: []string{Preemptions, Residual, Clock},
		Cure: &Intervention{"host", "warm-up", "with this shape", "It is compiled before requests are served."},
		stage: func(s *stage) {
			s.add(ordinary(4))
			s.newShape(time.Duration(s.between(0.8, 5)*float64(time.Second)), chat)
			s.blame("class", "careful")
		},
	},
	{
		Name: "stall-while-idle", TwinOf: "first-use-stall",
		What:  "The same, at an hour when nobody else is there.",
		Moves: up(Longest), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			before, after := ordinary(4), ordinary(4)
			before.to = max(s.Onset-2*time.Second, time.Millisecond)
			after.from = s.end() + 2*time.Second
			s.add(before)
			s.add(after)
			s.newShape(time.Duration(s.between(0.5, 2)*float64(time.Second)), batch)
			s.blame("class", batch)
		},
	},
	{
		Name: "hang", Mechanism: "M26",
		What:  "The GPU does not come back from an iteration: no token, no error, no line of log.",
		Needs: "the engine's liveness (L2), or a second source",
		Moves: append(up(Longest, TTFTTail), down(Throughput)...), Keeps: []string{Arrivals, Preemptions, Clock, HeldHeat},
		Cure: &Intervention{"host", "engine", "restarted", "The worker is shot and started again."},
		stage: func(s *stage) {
			s.add(ordinary(3))
			s.Duration = min(s.Duration, time.Duration(s.between(2, 6)*float64(time.Second)))
			s.during(func(w *world.World) { w.Engine(s.Scope, 0).Hang() }, func(w *world.World) { w.Engine(s.Scope, 0).Resume() })
			s.blameEngine()
		},
	},
	{
		Name: "nobody-asks", TwinOf: "hang",
		What:  "No token comes, since nobody asks for any.",
		Moves: down(Throughput, Arrivals), Keeps: []string{TTFT, Goodput, Failures, Preemptions, Clock},
		stage: func(s *stage) {
			l := ordinary(3)
			if !s.Sham {
				l.to = s.Onset
				after := ordinary(3)
				after.from = s.end() + 2*time.Second
				defer s.add(after)
			}
			s.add(l)
			s.blame("class", chat)
		},
	},
}

// slowHost stretches what the engine's host does.
func (s *stage) slowHost(factor float64) {
	s.during(func(w *world.World) { w.Engine(s.Scope, 0).Slow(factor) }, func(w *world.World) { w.Engine(s.Scope, 0).Slow(1) })
}

// pauses stops the engine's process for so many seconds at a time.
func (s *stage) pauses(seconds float64, interval time.Duration) {
	s.every(interval, func(w *world.World) { w.Engine(s.Scope, 0).Stall(time.Duration(seconds * float64(time.Second))) })
}

// slowFront lets the front end take so many milliseconds for each chunk.
func (s *stage) slowFront(each float64) {
	s.during(func(w *world.World) { w.Replica(s.Scope).Output = time.Duration(each * float64(time.Millisecond)) },
		func(w *world.World) { w.Replica(s.Scope).Output = world.DefaultFront.Output })
}

// graphs captures graphs up to a size, launching without one takes so many times as long, and lets a surge outgrow them.
func (s *stage) graphs(most int, factor float64) {
	s.alter(func(_ time.Duration, shape *timing.Shape, t *timing.Took) {
		switch {
		case shape.Tokens == 0:
		case shape.Prefills > 0 && shape.Sequences <= most:
			t.Mode = ledger.GraphPiecewise
		case shape.Sequences <= most:
			t.Mode, t.Padded = ledger.GraphFull, shape.Tokens
		default:
			t.Mode, t.Padded = ledger.GraphNone, 0
			t.Device = time.Duration(float64(t.Device) * factor)
		}
	})
	s.add(ordinary(2.5))
	more := ordinary(s.between(5, 7))
	more.class = "visitors"
	s.surge(more)
}

// newShape sends requests of a shape that is new with the fault: the first iteration with it takes so much longer on the host.
func (s *stage) newShape(stall time.Duration, class string) {
	compiled := false
	s.alter(func(_ time.Duration, shape *timing.Shape, t *timing.Took) {
		if shape.Work[ledger.WorkPenaltyRows] > 0 && !compiled {
			compiled = true
			t.Host += stall
		}
	})
	if class == chat {
		class = "careful"
	}
	s.surge(load{class: class, rate: 0.3, steady: true, prompt: [2]int{100, 100}, output: [2]int{20, 20},
		traits: func(*experiment.Request) world.Traits { return world.Traits{Features: ledger.FeaturePenalties} }})
}
