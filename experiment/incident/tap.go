package incident

import (
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/wire"
	"time"
)

// tap stands between a world and who records it: it hears all, and can keep a source from being there.
type tap struct {
	to      world.Recorder
	mute    func(*wire.Hello) bool // sources that nobody recorded
	hears   func(*wire.Hello, wire.Message)
	sources []tapped
	tells   bool // of changes
	teller  int
	begin   int64 // Unix ns
	version string
}

// tapped is a source on its way.
type tapped struct {
	hello *wire.Hello
	to    int // −1 = it is muted
}

// Source implements [world.Recorder].
func (t *tap) Source(h *wire.Hello) (int, error) {
	s := tapped{h, -1}
	if t.mute == nil || !t.mute(h) {
		var err error
		if s.to, err = t.to.Source(h); err != nil {
			return 0, err
		}
	}
	t.sources = append(t.sources, s)
	return len(t.sources) - 1, nil
}

// Record implements [world.Recorder].
func (t *tap) Record(source int, m wire.Message) error {
	s := t.sources[source]
	if t.hears != nil {
		t.hears(s.hello, m)
	}
	if s.to < 0 {
		return nil
	}
	return t.to.Record(s.to, m)
}

// Lose implements [world.Loser].
func (t *tap) Lose(source int, m wire.Message) error {
	l, ok := t.to.(world.Loser)
	if s := t.sources[source]; ok && s.to >= 0 {
		return l.Lose(s.to, m)
	}
	return nil
}

// open makes the source that tells of changes: whoever changes a service.
func (t *tap) open() (err error) {
	if !t.tells {
		return nil
	}
	h := &wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Producer: wire.Producer{Name: world.Producer, Version: t.version}, Role: "operator", Thread: "changes", PID: 1, Depth: 1,
		Boot: "00000000-0000-4000-8000-000000000001", Host: "operator", Time: 1, Clock: [3]int64{1, t.begin, 1}, Settings: map[string]any{}, Capabilities: map[string]bool{}}
	t.teller, err = t.Source(h)
	return err
}

// change tells of a change.
func (t *tap) change(at time.Duration, m *wire.ChangeEvent) error {
	m.Time = 1 + int64(at)
	return t.Record(t.teller, m)
}
