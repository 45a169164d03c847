package agent

import (
	"testing"
	"time"

	"github.com/whylate/whylate/wire"
)

func TestLiveness(t *testing.T) {
	const s, ms = int64(time.Second), int64(time.Millisecond)
	type reading struct {
		at     int64
		status wire.RingStatus
	}
	alive := func(launched, completed uint64, launchedAt, completedAt int64, running, waiting uint32) wire.RingStatus {
		return wire.RingStatus{Alive: true, Launched: launched, Completed: completed, LaunchedAt: launchedAt, CompletedAt: completedAt, Running: running, Waiting: waiting,
			Written: launched + completed}
	}
	dead := func(r wire.RingStatus) wire.RingStatus { r.Alive = false; return r }
	front := func(written uint64) wire.RingStatus { return wire.RingStatus{Alive: true, Written: written} }
	tests := map[string]struct {
		readings  []reading
		state     wire.Liveness
		iteration uint64
		since     int64
	}{
		"an iteration is open":               {[]reading{{100 * s, alive(5, 4, 99*s, 98*s, 1, 0)}}, wire.Working, 5, 100 * s},
		"between two iterations":             {[]reading{{100 * s, alive(5, 5, 99*s, 99*s+ms, 1, 0)}}, wire.Working, 5, 100 * s},
		"nothing to do":                      {[]reading{{100 * s, alive(5, 5, 10*s, 11*s, 0, 0)}}, wire.Idle, 5, 11 * s},
		"nothing to do, still":               {[]reading{{100 * s, alive(5, 5, 10*s, 11*s, 0, 0)}, {900 * s, alive(5, 5, 10*s, 11*s, 0, 0)}}, wire.Idle, 5, 11 * s},
		"an open iteration is not idle":      {[]reading{{100 * s, alive(5, 4, 99*s, 98*s, 0, 0)}}, wire.Working, 5, 100 * s},
		"stuck":                              {[]reading{{100 * s, alive(5, 4, 90*s, 89*s, 3, 0)}}, wire.Stuck, 5, 90 * s},
		"just not stuck":                     {[]reading{{91 * s, alive(5, 4, 90*s, 89*s, 3, 0)}}, wire.Working, 5, 91 * s},
		"stuck in the older of two":          {[]reading{{100 * s, alive(6, 4, 90*s, 89*s, 3, 0)}}, wire.Stuck, 5, 90 * s},
		"stuck since it was seen to be":      {[]reading{{93 * s, alive(5, 4, 90*s, 89*s, 3, 0)}, {94 * s, alive(6, 4, 93*s+ms, 89*s, 3, 0)}, {99 * s, alive(6, 4, 93*s+ms, 89*s, 3, 0)}}, wire.Stuck, 5, 93*s + ms},
		"stuck before the next one":          {[]reading{{100 * s, alive(5, 5, 90*s, 91*s, 3, 0)}}, wire.Stuck, 6, 91 * s},
		"waiting requests are work":          {[]reading{{100 * s, alive(5, 5, 90*s, 91*s, 0, 2)}}, wire.Stuck, 6, 91 * s},
		"stuck and then not":                 {[]reading{{100 * s, alive(5, 4, 90*s, 89*s, 3, 0)}, {101 * s, alive(6, 5, 101*s, 101*s, 3, 0)}}, wire.Working, 6, 101 * s},
		"slow iterations have longer":        {[]reading{{10 * s, alive(5, 5, 9*s, 9*s, 3, 0)}, {11 * s, alive(7, 6, 10*s, 10*s, 3, 0)}, {25 * s, alive(7, 6, 10*s, 10*s, 3, 0)}}, wire.Working, 7, 10 * s},
		"but not for ever":                   {[]reading{{10 * s, alive(5, 5, 9*s, 9*s, 3, 0)}, {11 * s, alive(7, 6, 10*s, 10*s, 3, 0)}, {31 * s, alive(7, 6, 10*s, 10*s, 3, 0)}}, wire.Stuck, 7, 10 * s},
		"dead at first sight":                {[]reading{{100 * s, dead(alive(5, 4, 90*s, 89*s, 3, 0))}}, wire.Dead, 5, 90 * s},
		"dead since it was seen":             {[]reading{{100 * s, alive(5, 4, 99*s, 89*s, 3, 0)}, {101 * s, dead(alive(5, 4, 99*s, 89*s, 3, 0))}, {150 * s, dead(alive(5, 4, 99*s, 89*s, 3, 0))}}, wire.Dead, 5, 101 * s},
		"a front end that writes":            {[]reading{{100 * s, front(5)}, {101 * s, front(6)}, {110 * s, front(7)}}, wire.Working, 0, 100 * s},
		"a front end that is quiet":          {[]reading{{100 * s, front(5)}, {101 * s, front(6)}, {103 * s, front(6)}}, wire.Idle, 0, 101 * s},
		"a ring opened in an iteration":      {[]reading{{100 * s, alive(0, 4, 0, 99*s, 0, 0)}}, wire.Working, 0, 100 * s},
		"completions of an earlier ring":     {[]reading{{100 * s, alive(3, 4, 99*s, 99*s, 2, 0)}}, wire.Working, 3, 100 * s},
		"a clock of another boot, far ahead": {[]reading{{100 * s, alive(5, 4, 900*s, 800*s, 3, 0)}}, wire.Working, 5, 100 * s},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var state State
			for _, r := range tt.readings {
				state = Liveness(r.status, state, r.at, LivenessSettings{})
			}
			if state.Liveness != tt.state || state.Iteration != tt.iteration || state.Since != tt.since {
				t.Errorf("state %d in iteration %d since %v, want %d in %d since %v", state.Liveness, state.Iteration, time.Duration(state.Since),
					tt.state, tt.iteration, time.Duration(tt.since))
			}
		})
	}
}

// TestTypicalIteration follows a steady pace, and is hardly moved by one odd reading.
func TestTypicalIteration(t *testing.T) {
	const ms = int64(time.Millisecond)
	var state State
	now, n := int64(0), uint64(0)
	read := func(iterations uint64, each int64) {
		n += iterations
		now += int64(iterations) * each
		state = Liveness(wire.RingStatus{Alive: true, Launched: n, Completed: n, LaunchedAt: now, CompletedAt: now, Running: 2}, state, now, LivenessSettings{})
	}
	for range 10 {
		read(100, 10*ms)
	}
	if state.Typical != 10*ms {
		t.Fatalf("typical %v", time.Duration(state.Typical))
	}
	read(1, 60_000*ms)
	if state.Typical > 14*ms {
		t.Errorf("after one odd iteration %v", time.Duration(state.Typical))
	}
	for range 60 {
		read(20, 50*ms)
	}
	if state.Typical < 45*ms || state.Typical > 50*ms {
		t.Errorf("after a while at another pace %v", time.Duration(state.Typical))
	}
}
