package incident

import (
	"time"

	"github.com/whylate/whylate/experiment/simulate/world"
)

// ofDeaths are incidents in which an engine ends.
var ofDeaths = []Incident{
	{
		Name: "memory-error", Mechanism: "M11",
		What:  "The GPU's memory has an error that cannot be corrected: the engine goes with it, and is started again.",
		Needs: "errors of the driver (XID)",
		Moves: up(DriverErrors, Failures, Incarnations, TTFTTail), Keeps: []string{Arrivals, Clock, HeldHeat, Residual},
		Cure: &Intervention{"device", "GPU", "isolated", "The GPU is taken out and its memory tested."},
		stage: func(s *stage) {
			s.dies(func(w *world.World) { s.device(w, 0).Error(w, uncorrectable) })
			s.blameDevice(0)
		},
	},
	{
		Name: "error-contained", TwinOf: "memory-error",
		What:  "The driver reports a memory error that it has contained; the engine goes on.",
		Moves: up(DriverErrors), Keeps: []string{TTFT, ITL, TPOT, Failures, Incarnations, Residual, Clock},
		stage: func(s *stage) {
			s.add(ordinary(4))
			s.at(s.Onset, func(w *world.World) { s.device(w, 0).Error(w, remapped) })
			s.blameDevice(0)
		},
	},
	{
		Name: "engine-died", Mechanism: "M27",
		What:  "The engine's process is killed and started again: whoever was there is cut off, and comes again.",
		Needs: "incarnations, or the clients' records",
		Moves: up(Failures, Incarnations, TTFTTail), Keeps: []string{Arrivals, DriverErrors, Clock, HeldHeat, Residual},
		Cure:  &Intervention{"host", "memory limit", "higher", "Nobody kills it."},
		stage: func(s *stage) { s.dies(func(*world.World) {}); s.blameEngine() },
	},
	{
		Name: "restart-after-drain", TwinOf: "engine-died",
		What:  "A replica that nobody is sent to any more is started again.",
		Moves: up(Incarnations), Keeps: []string{TTFT, ITL, TPOT, Failures, Preemptions, Residual, Clock},
		stage: func(s *stage) {
			s.atLeast(2)
			s.Scope = 1
			s.config.Router = only(0)
			s.add(ordinary(2))
			s.restarts(2 * time.Second)
			s.blameEngine()
		},
	},
}

// Errors of the driver, as NVIDIA numbers them.
const (
	uncorrectable = 48 // double-bit error
	remapped      = 63 // a row of memory was replaced by another
)

// dies lets the engine end for some seconds, with what comes just before; its clients try again.
func (s *stage) dies(before func(*world.World)) {
	s.config.Client.Retries, s.config.Client.Backoff = 10, 200*time.Millisecond
	s.add(ordinary(4))
	s.at(s.Onset, before)
	s.restarts(time.Duration(s.between(2, 6) * float64(time.Second)))
}

// restarts ends the replica that has the fault, and starts it again after a time.
func (s *stage) restarts(after time.Duration) {
	s.Duration = min(s.Duration, after)
	s.during(func(w *world.World) { w.Replica(s.Scope).Crash() }, func(w *world.World) { w.Restart(s.Scope) })
}
