package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/whylate/whylate/wire"
)

// intake is the follower's sink: it leaves out what was taken over before, keys hashes, and makes items.
type intake struct {
	a     *Agent
	keyer *keyer
	open  *item // that is being filled
	now   Instant
}

// Source implements [wire.Sink].
func (t *intake) Source(w wire.Source) (uint16, error) {
	s, err := t.a.sources.open(w)
	if err != nil {
		return 0, err
	}
	s.followed = true
	s.seen = 0
	return s.number, nil
}

// Frame implements [wire.Sink].
func (t *intake) Frame(number uint16, f wire.Frame) error {
	s := t.a.sources.byNumber[number]
	s.seen = f.Sequence
	early := f.Sequence < s.spooled // than what an earlier agent has left in the spool
	if !early && f.Sequence <= s.have || f.Sequence <= s.acked {
		return nil
	}
	if early && t.a.memory.bytes >= t.a.settings.MemoryLimit {
		t.a.counts.Dropped++
		t.a.memory.noteDropped(s, wire.Gap{From: f.Sequence, To: f.Sequence, Count: 1, Why: whyDropped, At: t.now.Unix})
		return nil
	}
	raw, err := t.keyer.frame(f)
	if why, ok := errors.AsType[withheld](err); ok {
		t.a.counts.Withheld++
		t.gap(s, wire.Gap{From: f.Sequence, To: f.Sequence, Count: 1, Why: why.why, At: t.now.Unix})
		return nil
	}
	if !early {
		s.spooled = 0
	}
	t.a.counts.Frames++
	t.add(s, f.Sequence, raw)
	return nil
}

// add takes one whole frame of a source.
func (t *intake) add(s *source, sequence uint64, raw []byte) {
	if i := t.open; i != nil && (i.source != s || len(i.raw)+len(raw) > itemBytes || i.to < s.spooled != (sequence < s.spooled)) {
		t.seal()
	}
	if t.open == nil {
		t.open = &item{source: s}
	}
	t.open.add(sequence, raw)
	s.have = max(s.have, sequence)
}

// Gap implements [wire.Sink].
func (t *intake) Gap(number uint16, g wire.Gap) error {
	s := t.a.sources.byNumber[number]
	s.seen = max(s.seen, g.To)
	if g.Count > 0 && g.From < s.spooled { // what came before the spool, and is in no memory any more
		before := g
		before.To = min(g.To, s.spooled-1)
		before.Count = before.To - before.From + 1
		t.gap(s, before)
	}
	if known := max(s.have, s.acked); g.Count > 0 {
		if g.To <= known {
			return nil
		}
		if g.From <= known {
			g.From = known + 1
			g.Count = g.To - known
		}
	}
	t.gap(s, g)
	return nil
}

func (t *intake) gap(s *source, g wire.Gap) {
	t.seal()
	s.have = max(s.have, g.To)
	t.a.put(gapItem(s, g), t.now)
}

// seal ends the item that is being filled.
func (t *intake) seal() {
	if i := t.open; i != nil {
		t.open = nil
		t.a.put(i, t.now)
	}
}

// put queues an item: in memory, or if there is something in the spool or no room, in the spool.
func (a *Agent) put(i *item, now Instant) {
	s := i.source
	switch {
	case i.to != 0 && i.to < s.spooled:
		s.items++
		a.memory.insert(i)
		return
	case !a.spool.unread() && a.memory.bytes+i.size() <= a.settings.MemoryLimit:
		s.items++
		a.memory.push(i)
		return
	}
	err := a.spool.put(i)
	a.complain("write the spool", err)
	if err != nil {
		a.drop(s, i, whySpool, now)
	}
}

// drop loses an item, and leaves a gap.
func (a *Agent) drop(s *source, i *item, why string, now Instant) {
	a.counts.Dropped += uint64(i.frames)
	if i.to != 0 {
		a.memory.noteDropped(s, wire.Gap{From: i.from, To: i.to, Count: i.to - i.from + 1, Why: why, At: now.Unix})
	}
}

// hold says whether what a ring still has stays there. A ring is a better place than the spool: it costs nothing. It is left alone until
// the server has said what it has of it, and while the memory is full, unless it may be overwritten soon or its writer is dead: whoever removes
// a dead writer's ring must find it read.
func (a *Agent) hold(number uint16, r *wire.Ring) bool {
	s := a.sources.byNumber[number]
	if a.expecting(s) {
		return true
	}
	full := a.memory.bytes >= a.settings.MemoryLimit
	if s.seen < s.have && s.spooled != 0 {
		return full // until it comes to what is in the spool, what it has goes before that
	}
	if !full && !a.spool.unread() {
		return false
	}
	if w := a.writers[number]; w != nil && w.state.Liveness == wire.Dead {
		return false
	}
	unread, size := r.Unread()
	if a.flowing() {
		return unread < size-size/16
	}
	return unread < size/2
}

// expecting reports whether the server is about to say how far a source is durable.
func (a *Agent) expecting(s *source) bool {
	if a.intake.now.Mono-a.begun > int64(expectFor) {
		return false
	}
	if a.forward.conn == nil {
		return a.forward.problem == nil
	}
	return s.standing == unknown || s.standing == offered
}

// flowing reports whether the server is taking what it is sent.
func (a *Agent) flowing() bool {
	return a.forward.conn != nil && a.intake.now.Mono-a.forward.acked < int64(flowFor)
}

const (
	expectFor = 5 * time.Second // after the agent has begun
	flowFor   = 2 * time.Second // after the last acknowledgement
)

// errInUse wraps why the rings are not read, if it is not that there are none.
var errInUse = errors.New("the rings cannot be followed")

// poll reads the rings.
func (a *Agent) poll(now Instant) {
	if a.begun == 0 {
		a.begun = now.Mono
	}
	a.intake.now = now
	if a.ringLock == nil {
		var err error
		a.ringLock, err = lockDirectory(a.settings.RingDir)
		a.complain("follow the rings", err)
		a.blocked = nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.blocked = fmt.Errorf("%w: %w", errInUse, err)
		}
		if err != nil {
			return
		}
	}
	_, err := a.follower.Poll(now.Unix)
	a.complain("follow the rings", err)
	a.intake.seal()
}

// flush makes what went into the spool survive the agent, and keeps the spool within its limit.
func (a *Agent) flush(now Instant) {
	a.complain("write the spool", a.spool.sync())
	a.spool.trim(func(s *source, g wire.Gap) {
		a.counts.Dropped += g.Count
		g.At = now.Unix
		a.memory.noteDropped(s, g)
	})
}
