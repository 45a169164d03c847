package incident

import (
	"slices"
	"strconv"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ledger"
)

// ofFleets are incidents of replicas: new ones, changed ones, and which of them is asked.
var ofFleets = []Incident{
	{
		Name: "cold-start", Mechanism: "M20",
		What:  "A new replica is asked before it is warm: its cache is empty, and it compiles as it goes. It fades.",
		Needs: "engines' starts, and requests by replica",
		Moves: append(up(TTFTTail, Longest), down(Hits)...), Keeps: []string{Arrivals, Preemptions, HeldHeat, Clock},
		Cure:  &Intervention{"route", "replica-1", "after its warm-up", "It is asked once it has answered some requests of its own."},
		stage: func(s *stage) { s.scaleUp(s.between(0.1, 0.5), 30) },
	},
	{
		Name: "warm-start", TwinOf: "cold-start",
		What:  "A new replica is asked once it is warm.",
		Moves: down(Imbalance), Keeps: []string{TTFTTail, Goodput, Failures, Preemptions, Clock},
		stage: func(s *stage) { s.scaleUp(0, 0) },
	},
	{
		Name: "config-change", Mechanism: "M22",
		What:  "A release takes the place of the old one, with a setting that admits fewer at once. It stays.",
		Needs: "changes, or the engines' settings",
		Moves: up(Queue, TTFT, Changes), Keeps: []string{Arrivals, Preemptions, HeldHeat, Clock},
		Cure:  &Intervention{"setting", "max_num_seqs", "16", "The setting is what it was."},
		stage: func(s *stage) { s.release(int(s.between(5, 2.4))) },
	},
	{
		Name: "release-without-effect", TwinOf: "config-change",
		What:  "A release takes the place of the old one, with a limit that nobody reaches.",
		Moves: up(Changes), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Clock},
		stage: func(s *stage) { s.release(int(s.between(15, 12))) },
	},
	{
		Name: "hot-prefix", Mechanism: "M29",
		What:  "The router sends whoever shares a prefix to the replica that has it: one is full, the other has room.",
		Needs: "each replica by itself",
		Moves: up(Imbalance, Queue), Keeps: []string{Residual, HeldHeat, Clock},
		Cure:  &Intervention{"route", "class tenant", "least loaded", "The prefix is spread by hand."},
		stage: func(s *stage) { s.hot(s.between(6, 9), 1.5) },
	},
	{
		Name: "hot-prefix-with-room", TwinOf: "hot-prefix",
		What:  "The same, and the replica has room.",
		Moves: up(Imbalance), Keeps: []string{TTFT, ITL, TPOT, Preemptions, Residual, Clock},
		stage: func(s *stage) { s.hot(s.between(1.1, 1.4), 4.5) },
	},
}

// switched is a router that another takes the place of.
func (s *stage) switched(before, after world.Router) {
	s.config.Router = before
	s.at(s.Onset, func(w *world.World) { w.SetRouter(after) })
	s.at(s.end(), func(w *world.World) { w.SetRouter(before) })
}

// only sends everything to one replica.
type only int

// Pick implements [world.Router].
func (o only) Pick([]int, []uint64) int { return int(o) }

// canary sends every third attempt to the last replica, the others to the first.
type canary int

// Pick implements [world.Router].
func (c *canary) Pick(open []int, _ []uint64) int {
	if *c++; *c%3 == 0 {
		return len(open) - 1
	}
	return 0
}

// about are prompts about a document that the cache knows.
func (s *stage) about(rate float64) {
	s.add(load{class: chat, rate: rate, prompt: [2]int{1, 1}, output: [2]int{40, 120}, each: func(n int, r *experiment.Request) {
		begin(r, s.long(60), document("manual", n%8, s.long(512)))
	}})
}

// scaleUp asks a second replica from the onset on. Its first iterations each take so many seconds longer, less and less.
func (s *stage) scaleUp(stall float64, iterations int) {
	s.atLeast(2)
	s.about(2)
	s.Scope = 1
	n := 0
	s.alter(func(_ time.Duration, shape *timing.Shape, t *timing.Took) {
		if shape.Tokens > 0 && n < iterations {
			t.Host += time.Duration(stall * float64(iterations-n) / float64(iterations) * float64(time.Second))
			n++
		}
	})
	s.config.Router = only(0)
	if stall == 0 {
		s.config.Router = new(canary) // it was asked now and then before, and its cache is warm
	}
	s.at(s.Onset, func(w *world.World) { w.SetRouter(world.RoundRobin()) })
	s.blameReplica()
}

// release lets a second replica, which runs so many at once, take the place of the first.
func (s *stage) release(most int) {
	s.atLeast(2)
	s.add(ordinary(2.5))
	s.Scope = 1
	s.set("max_num_seqs", most, 1)
	s.set("max_num_active_seqs", most, 1)
	s.switched(only(0), only(1))
	s.tap.tells = true
	s.told(ledger.ChangeSetting, "max_num_seqs", "16", strconv.Itoa(most))
	s.blameReplica()
}

// apart is a router that sends whoever begins as somebody before did to the last replica.
type apart struct {
	others world.Router
	known  [256]uint64 // first blocks, the newest
	next   int
}

// Pick implements [world.Router].
func (a *apart) Pick(open []int, prefix []uint64) int {
	if len(prefix) == 0 {
		return a.others.Pick(open, prefix)
	}
	if slices.Contains(a.known[:], prefix[0]) {
		return len(open) - 1
	}
	a.known[a.next%len(a.known)] = prefix[0]
	a.next++
	return a.others.Pick(open, prefix)
}

// apart gives jobs a replica of their own; the others have an ordinary load.
func (s *stage) apart(rate float64) {
	s.atLeast(2)
	s.config.Router = &apart{others: only(0)}
	s.add(ordinary(rate / 2)) // a rate is that of each replica
}

// job is a load that nobody waits for. Its prompts begin alike, so that a router can tell it.
func (s *stage) job(l load) load {
	l.class = batch
	l.each = func(_ int, r *experiment.Request) { begin(r, r.PromptTokens, document("job", 0, s.long(2*demoBlock))) }
	return l
}

// hot lets a tenant that shares one prefix ask so often, beside the usual load.
func (s *stage) hot(rate, usual float64) {
	s.atLeast(2)
	s.config.Router = &apart{others: world.RoundRobin()}
	s.add(ordinary(usual))
	s.surge(load{class: "tenant", rate: rate, prompt: [2]int{1, 1}, output: [2]int{60, 120}, each: func(_ int, r *experiment.Request) {
		begin(r, s.long(60), document("tenant", 0, s.long(256)))
	}})
	s.blame("class", "tenant")
}
