package world

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/wire"
)

// clockEvery is how often a source notes a pair of clock readings while it has something to say.
const clockEvery = 10 * time.Second

// clockRead is how long reading the clocks takes.
const clockRead = 200 * time.Nanosecond

// machine is a host: its boot, and its clocks.
type machine struct {
	name string
	boot string
	base int64         // CLOCK_MONOTONIC when virtual time is 0
	unix int64         // wall clock then, without skew
	skew time.Duration // of its wall clock
	pids uint32
}

func (w *World) newMachine(name string, skew time.Duration) *machine {
	r := w.random
	return &machine{name: name, boot: fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", r.Uint32(), r.Uint32N(1<<16), r.Uint32N(1<<12), r.Uint32N(1<<12), r.Uint64N(1<<48)),
		base: int64(time.Hour) + r.Int64N(int64(30*24*time.Hour)), unix: w.config.Begin.UnixNano(), skew: skew, pids: 1000}
}

// mono is a time on the host's monotonic clock, wall one on its wall clock in Unix seconds.
func (m *machine) mono(t time.Duration) int64   { return m.base + int64(t) }
func (m *machine) wall(t time.Duration) float64 { return float64(m.unix+int64(t+m.skew)) / 1e9 }

// process gives out the next process id.
func (m *machine) process() uint32 {
	m.pids += 7
	return m.pids
}

// source is a thread with a probe.
type source struct {
	world   *World
	machine *machine
	id      int
	hello   wire.Hello
	clocked time.Duration
	clock   wire.Clock
}

// open introduces a source. What the hello says of its host is filled in here.
func (w *World) open(m *machine, h wire.Hello) (*source, error) {
	h.Protocol = [2]uint16{wire.Major, wire.Minor}
	h.Producer = wire.Producer{Name: Producer, Version: w.config.Version}
	h.Time, h.Boot, h.Host, h.Start = m.mono(0), m.boot, m.name, uint64(m.base/10e6)
	h.Clock = [3]int64{m.mono(0) - int64(clockRead), m.unix + int64(m.skew), m.mono(0)}
	if h.Depth == 0 {
		h.Depth = 1
	}
	s := &source{world: w, machine: m, hello: h, clocked: -clockEvery}
	if w.config.Recorder == nil {
		return s, nil
	}
	var err error
	if s.id, err = w.config.Recorder.Source(&s.hello); err != nil {
		return nil, fmt.Errorf("world: open source %s/%s of %s: %w", h.Role, h.Thread, m.name, err)
	}
	return s, nil
}

// Producer is the producer's name in every hello of a simulation.
const Producer = "whylate-simulate"

// heard says whether anybody listens: what is dear to make need not be made else.
func (s *source) heard() bool { return s.world.config.Recorder != nil }

// record tells a message that was made at a time.
func (s *source) record(at time.Duration, m wire.Message) {
	if !s.heard() || s.world.err != nil {
		return
	}
	if at-s.clocked >= clockEvery {
		s.clocked = at
		c := s.machine
		s.clock = wire.Clock{Time: c.mono(at), MonoBefore: c.mono(at - clockRead), Realtime: c.unix + int64(at+c.skew-clockRead/2), MonoAfter: c.mono(at)}
		s.pass(&s.clock)
	}
	s.pass(m)
}

func (s *source) pass(m wire.Message) {
	w := s.world
	if w.lose != nil && w.lose(&s.hello, m) {
		if l, ok := w.config.Recorder.(Loser); ok {
			w.fail(l.Lose(s.id, m))
		}
		return
	}
	w.fail(w.config.Recorder.Record(s.id, m))
}
