package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/whylate/whylate/ledger"
)

// arrivals remember when iterations came. An iteration comes after it has ended, unless the clock it is told by is ahead of the server's:
// then only this says how long it has been here.
type arrivals struct {
	mu    sync.Mutex
	marks map[ledger.EngineID][]arrival // oldest first
}

// arrival is what had come of an engine at a time: its iterations up to completed.
type arrival struct {
	at        int64 // Unix ns
	completed uint64
}

// note takes down what is there now, and forgets what is older than what memory has of an engine.
func (a *arrivals) note(now int64, engines []*ledger.Engine) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.marks
	a.marks = make(map[ledger.EngineID][]arrival, len(engines))
	for _, e := range engines {
		marks := was[e.ID]
		for len(marks) > 1 && marks[1].completed+1 < e.First {
			marks = marks[1:]
		}
		if n := len(marks); n == 0 || marks[n-1].completed < e.Completed() {
			marks = append(marks, arrival{now, e.Completed()})
		}
		a.marks[e.ID] = marks
	}
}

// before is the last iteration of an engine that is known to have come before t (Unix ns), 0 if none is.
func (a *arrivals) before(id ledger.EngineID, t int64) (last uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.marks[id] {
		if m.at < t {
			last = m.completed
		}
	}
	return last
}

// of is a time (Unix ns) at which an iteration had not come yet, 0 if none is known.
func (a *arrivals) of(id ledger.EngineID, n uint64) (t int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.marks[id] {
		if m.completed < n {
			t = m.at
		}
	}
	return t
}

// aheadAfter is how far an engine's times may be ahead of the server's clock before it is told.
const aheadAfter = time.Minute

// noteArrivals takes down what has come of the engines, and tells whose clock is ahead.
func (s *Server) noteArrivals(engines []*ledger.Engine) {
	defer s.hot.lock()()
	now := s.set.Now()
	s.arrived.note(now.UnixNano(), engines)
	for _, e := range engines {
		if len(e.Iterations) == 0 {
			continue
		}
		if ahead := time.Duration(e.Iterations[len(e.Iterations)-1].Decided - now.UnixNano()); ahead > aheadAfter {
			s.faults.note("reading the clock of "+e.ID.String(), fmt.Errorf("its records are %v ahead of this server's clock; let a time service keep both hosts' clocks, and restart the engine", ahead.Round(time.Second)), now)
		}
	}
}
