package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/wire"
)

// watched is one ring's writer, and what is said of it.
type watched struct {
	ring     *source
	beats    *source
	path     string
	state    State
	status   wire.RingStatus
	sequence uint64 // of the last heartbeat
	beaten   int64  // Mono ns, when it was said
	dead     int64  // Mono ns, when it was first seen dead; 0 = it lives
	unread   uint64
	size     int64
}

// beat judges all writers and says what has changed, and now and then what has not.
func (a *Agent) beat(now Instant) {
	there := map[uint16]bool{}
	for number, r := range a.follower.Rings() {
		there[number] = true
		status, err := r.Status()
		if err != nil {
			continue // the follower has said so
		}
		w := a.writers[number]
		if w == nil {
			w = &watched{ring: a.sources.byNumber[number], path: r.Path()}
			a.writers[number] = w
		}
		before := w.state
		w.state, w.status = Liveness(status, before, now.Mono, a.settings.Liveness), status
		unread, size := r.Unread()
		w.unread, w.size = unread, int64(size)
		if w.state.Liveness != wire.Dead {
			w.dead = 0
		} else if w.dead == 0 {
			w.dead = now.Mono
		}
		changed := before.Liveness != w.state.Liveness || w.state.Liveness == wire.Stuck && before.Iteration != w.state.Iteration
		again := a.forward.conn != nil && w.state.Liveness != wire.Dead && now.after(w.beaten, a.settings.HeartbeatEvery)
		if changed || again {
			a.heartbeat(w, now)
		}
		if changed {
			a.settings.Log.Info(stateWords(w.state, now), "ring", filepath.Base(w.path))
		}
	}
	for number, s := range a.sources.byNumber {
		if s.own || !s.followed || there[number] {
			continue
		}
		s.followed = false
		if w := a.writers[number]; w != nil && w.beats != nil {
			w.beats.followed = false
		}
		delete(a.writers, number)
	}
}

func stateWords(s State, now Instant) string {
	switch s.Liveness {
	case wire.Working:
		return "working"
	case wire.Idle:
		return "idle"
	case wire.Stuck:
		return fmt.Sprintf("stuck in iteration %d for %v", s.Iteration, time.Duration(now.Mono-s.Since).Round(time.Millisecond))
	}
	return "dead"
}

// heartbeat says what a writer is doing, in the source that the agent has for that.
func (a *Agent) heartbeat(w *watched, now Instant) {
	if w.beats == nil {
		source, err := a.sources.open(a.beatSource(w.ring, now))
		a.complain("heartbeats of "+w.ring.Name, err)
		if err != nil {
			return
		}
		source.followed, source.own = true, true
		w.beats = source
	}
	frame, err := wire.Append(nil, w.sequence+1, &wire.Heartbeat{Time: now.Mono, State: w.state.Liveness, Iteration: w.state.Iteration,
		Since: w.state.Since, Written: w.status.Written, Dropped: w.status.Dropped, Errors: w.status.Errors})
	if err != nil {
		return // the message has no lists and no text
	}
	w.sequence++
	w.beaten = now.Mono
	a.intake.now = now
	a.intake.add(w.beats, w.sequence, frame)
	a.intake.seal()
}

// beatSource is the source of the heartbeats of one ring. It is this agent process's own, since its sequences begin at 1; its hello is
// the ring's as far as it says whose state it is, and the agent's as far as it says who writes and by which clock.
func (a *Agent) beatSource(ring *source, now Instant) wire.Source {
	me := a.settings.Server.Agent
	h, err := wire.ParseHello(ring.Hello)
	if err != nil {
		h = wire.Hello{}
	}
	name := strings.TrimSuffix(ring.Name, ".ring")
	hello := wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Producer: wire.Producer{Name: "whylate-agent", Version: me.Version}, Engine: h.Engine,
		Role: "agent", Thread: h.Role + "-" + h.Thread, PID: uint32(me.PID), Start: me.Start, Boot: me.Boot, Host: me.Host, Clock: pair(),
		Settings: map[string]any{"ring": ring.Name}}
	b, err := json.Marshal(hello)
	if err != nil {
		b = nil
	}
	return wire.Source{Name: fmt.Sprintf("%s.beats-%d-%d", name, me.PID, me.Start), Hello: b, Opened: now.Unix}
}

// collect removes the rings of dead writers after their retention: those of which the server has everything, and if the others are too
// many, the oldest of them as soon as they have been read into memory or spool.
func (a *Agent) collect(now Instant) {
	var left []*watched
	for _, w := range a.writers {
		if w.dead == 0 || !now.after(w.dead, a.settings.Retention) || w.unread > 0 {
			continue
		}
		if w.ring.settled() && w.ring.acked >= w.status.Written {
			a.remove(w)
			continue
		}
		left = append(left, w)
	}
	slices.SortFunc(left, func(x, y *watched) int { return int(min(max(x.dead-y.dead, -1), 1)) })
	var bytes int64
	for _, w := range left {
		bytes += w.size
	}
	for _, w := range left {
		if bytes <= a.settings.DeadLimit {
			return
		}
		bytes -= w.size
		a.remove(w)
	}
}

func (a *Agent) remove(w *watched) {
	err := os.Remove(w.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	a.complain("remove "+w.path, err)
	if err == nil {
		a.counts.Collected++
		a.settings.Log.Info("removed the ring of a dead writer", "ring", filepath.Base(w.path))
	}
}
