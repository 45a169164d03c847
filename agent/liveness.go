package agent

import (
	"cmp"
	"time"

	"github.com/whylate/whylate/wire"
)

// LivenessSettings say when an engine is called stuck.
type LivenessSettings struct {
	// StuckAfter is how long an iteration may take at least. Default 1 s: who looks every half second knows within two.
	StuckAfter time.Duration
	// StuckTimes is how many times a typical iteration it may take at least; the longer of the two counts. Default 20.
	StuckTimes float64
}

// State is what is known of one writer.
type State struct {
	wire.Liveness
	Iteration uint64 // the last one launched; if stuck, the one that does not end or, if none is open, does not begin
	Since     int64  // ns of CLOCK_MONOTONIC: when this state began
	Typical   int64  // ns from one completion to the next while there was work; 0 = not known
	status    wire.RingStatus
	seen      int64 // when status was read
	wrote     int64 // when it was first read that the latest frame had been written
}

// Liveness says what a writer is doing, from the header of its ring, what was known before (the zero State for the first time), and the
// time now, ns of CLOCK_MONOTONIC. A writer that launches no iterations, such as a front end, works if it has written lately.
func Liveness(status wire.RingStatus, previous State, now int64, settings LivenessSettings) State {
	s := State{Iteration: status.Launched, Typical: typical(status, previous), status: status, seen: now, wrote: previous.wrote}
	if previous.seen == 0 || status.Written != previous.status.Written {
		s.wrote = now
	}
	s.Liveness, s.Since = judge(status, previous.seen != 0, s.wrote, now, settings.patience(s.Typical))
	if s.Liveness == wire.Stuck {
		s.Iteration = max(status.Launched, status.Completed+1)
		if status.Launched > status.Completed {
			s.Iteration = status.Completed + 1 // the oldest that is open
		}
	}
	if s.Liveness == previous.Liveness && (s.Liveness != wire.Stuck || s.Iteration == previous.Iteration) {
		s.Since = previous.Since
	}
	return s
}

// judge gives the state, and since when it is so if it was another before. known says that the writer was seen before, wrote when it
// last had written something new.
func judge(status wire.RingStatus, known bool, wrote, now, patience int64) (wire.Liveness, int64) {
	active := max(status.LaunchedAt, status.CompletedAt)
	switch {
	case !status.Alive && known:
		return wire.Dead, now
	case !status.Alive:
		return wire.Dead, max(active, status.Clock.MonoAfter)
	case status.Launched == 0 && now-wrote >= patience: // no scheduler's
		return wire.Idle, wrote
	case status.Launched > status.Completed && now-status.LaunchedAt > patience:
		return wire.Stuck, status.LaunchedAt
	case status.Launched > status.Completed || status.Launched == 0:
		return wire.Working, now
	case status.Running == 0 && status.Waiting == 0:
		return wire.Idle, active
	case now-active > patience: // there is work, and nobody launches it
		return wire.Stuck, active
	}
	return wire.Working, now
}

// patience is how long an iteration may take, in ns.
func (s LivenessSettings) patience(typical int64) int64 {
	return max(int64(cmp.Or(s.StuckAfter, time.Second)), int64(cmp.Or(s.StuckTimes, 20)*float64(typical)))
}

// typical follows the time from one completion to the next. One odd reading moves it little, whatever its size.
func typical(status wire.RingStatus, previous State) int64 {
	before := previous.status
	n := int64(status.Completed - before.Completed)
	span := status.CompletedAt - before.CompletedAt
	idle := before.Running == 0 && before.Waiting == 0
	if before.Completed == 0 || status.Completed <= before.Completed || n <= 0 || span <= 0 || idle {
		return previous.Typical
	}
	each := span / n
	if previous.Typical == 0 {
		return each
	}
	each = min(max(each, previous.Typical/4), 4*previous.Typical)
	return previous.Typical + (each-previous.Typical)/8
}
