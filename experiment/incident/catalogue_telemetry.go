package incident

import (
	"time"

	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/wire"
)

// ofTelemetry are faults of the evidence: the service is healthy.
var ofTelemetry = []Incident{
	{
		Name: "missing-source",
		What: "Nobody recorded the front end; above severity 0.5, nor the clients; above 0.8, nor the GPUs.",
		Cure: &Intervention{"telemetry", "sources", "all", "What is missing is recorded."},
		stage: func(s *stage) {
			s.add(ordinary(4))
			s.tap.mute = func(h *wire.Hello) bool { return !s.Sham && s.muted(h.Role) }
			for _, role := range []string{"frontend", "client", "gpu"} {
				if s.muted(role) {
					s.blame("source", role)
				}
			}
		},
	},
	{
		Name:  "lost-records",
		What:  "The scheduler's records have holes: an agent was too slow, a ring was overwritten.",
		Cure:  &Intervention{"telemetry", "ring size", "twice as large", "Nothing is overwritten."},
		Keeps: []string{Preemptions, Clock},
		stage: func(s *stage) {
			s.add(ordinary(4))
			n := uint64(0)
			s.during(func(w *world.World) {
				w.Lose(func(h *wire.Hello, m wire.Message) bool {
					if h.Role != "engine" || h.Engine.Replica != s.name() {
						return false
					}
					n++
					return float64(mixed(s.Seed, n)%1000) < s.between(5, 100)
				})
			}, func(w *world.World) { w.Lose(nil) })
			s.blameEngine()
		},
	},
	{
		Name: "skewed-clock",
		What: "The wall clock of a replica's host is ahead all the time; its own durations are right, what is compared across hosts is not.",
		Cure: &Intervention{"telemetry", "clock", "synchronised", "The host asks a time server again."},
		stage: func(s *stage) {
			s.add(ordinary(4))
			s.Onset, s.Duration = 0, s.Length
			if !s.Sham {
				s.config.Replicas[s.Scope].Skew = time.Duration(s.between(0.05, 3) * float64(time.Second))
			}
			s.blameReplica()
		},
	},
	{
		Name:  "stale-scrape",
		What:  "The metrics pages do not change while the service goes on: something in between answers from memory.",
		Cure:  &Intervention{"telemetry", "scrape", "past the cache", "The page is read where it is made."},
		stage: func(s *stage) { s.add(ordinary(4)); s.blameReplica() },
		after: []spoil{stale},
	},
	{
		Name:  "counter-reset",
		What:  "The counters on the metrics pages begin at zero again, though the engine was not restarted.",
		Cure:  &Intervention{"telemetry", "counters", "differences between pages", "A fall is read as a new beginning."},
		stage: func(s *stage) { s.add(ordinary(4)); s.blameReplica() },
		after: []spoil{reset},
	},
}

// muted reports whether nobody recorded a role.
func (s *stage) muted(role string) bool {
	switch role {
	case "frontend":
		return true
	case "client":
		return s.Severity > 0.5
	case "gpu":
		return s.Severity > 0.8
	}
	return false
}
