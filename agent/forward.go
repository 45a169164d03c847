package agent

import (
	"context"
	"errors"
	"time"

	"github.com/whylate/whylate/ingest/stream"
)

// forward is the way to the server.
type forward struct {
	conn    *stream.Conn
	dialing bool
	dialed  chan dialed
	dialAt  int64 // Mono ns, not before
	backoff time.Duration
	problem error           // of the last connection
	refusal *stream.Refusal // if it was one

	base   uint64 // number of the first item in memory
	sendAt int64  // Mono ns, not before: the server was busy
	sent   int64  // Mono ns, when something was last sent
	heard  int64  // Mono ns, when something last came
	acked  int64  // Mono ns, when something was last acknowledged
}

type dialed struct {
	conn *stream.Conn
	err  error
}

const (
	firstBackoff   = 250 * time.Millisecond
	refusedBackoff = time.Minute      // after a refusal that needs somebody to change something
	refusedSource  = 10 * time.Minute // the same for one source
	maxOnTheWay    = 512              // items
)

// hear takes what the server has answered, and connects if there is no connection.
func (a *Agent) hear(now Instant) {
	f := &a.forward
	select {
	case d := <-f.dialed:
		f.dialing = false
		if d.err != nil {
			a.failed(d.err, now)
			break
		}
		f.conn, f.base, f.sendAt, f.sent, f.heard, f.acked = d.conn, 1, 0, now.Mono, now.Mono, now.Mono
		a.counts.Connects++
		a.memory.rewind()
		a.settings.Log.Info("connected", "server", a.settings.Server.Target.String(), "version", d.conn.Welcome.Server)
	default:
	}
	if f.conn == nil {
		a.connect(now)
		return
	}
	for _, e := range f.conn.Events() {
		f.heard = now.Mono
		if e.Err != nil && e.Source == 0 {
			a.hangUp()
			a.failed(e.Err, now)
			return
		}
		a.answer(e, now)
	}
	if idle := a.idle(); idle > 0 && now.Mono-f.heard > int64(idle) {
		a.hangUp()
		a.failed(errors.New("the server has not answered for "+idle.String()), now)
	}
}

// idle is after how long a silent connection is given up.
func (a *Agent) idle() time.Duration {
	return time.Duration(a.forward.conn.Welcome.IdleMS) * time.Millisecond
}

// connect begins to connect, if it is time.
func (a *Agent) connect(now Instant) {
	f := &a.forward
	if f.dialing || now.Mono < f.dialAt {
		return
	}
	f.dialing = true
	dialer := a.settings.Server
	go func() {
		conn, err := dialer.Dial(context.Background(), a.wake)
		f.dialed <- dialed{conn, err}
		a.wake()
	}()
}

// failed plans the next attempt.
func (a *Agent) failed(err error, now Instant) {
	f := &a.forward
	f.problem = err
	f.refusal, _ = errors.AsType[*stream.Refusal](err)
	pause := min(max(2*f.backoff, firstBackoff), a.settings.MaxBackoff)
	f.backoff = pause
	if f.refusal != nil {
		after, can := f.refusal.Retry()
		if pause = max(pause, after); !can {
			pause = refusedBackoff
		}
	}
	pause += time.Duration(float64(pause) * a.settings.Jitter() / 2)
	f.dialAt = now.Mono + int64(pause)
	a.complain("not connected to "+a.settings.Server.Target.String(), err)
}

// hangUp forgets the connection. What was on its way is sent again on the next one.
func (a *Agent) hangUp() {
	f := &a.forward
	if f.conn == nil {
		return
	}
	a.counts.Bytes += f.conn.Written()
	f.conn.Close()
	f.conn = nil
	a.memory.rewind()
	for _, s := range a.sources.byNumber {
		s.standing = unknown
	}
}

// answer takes one answer.
func (a *Agent) answer(e stream.Event, now Instant) {
	f := &a.forward
	switch {
	case e.Opened != nil:
		if s := a.sources.byNumber[e.Opened.Source]; s != nil && s.standing == offered {
			a.opened(s, e.Opened.Sequence)
		}
	case e.Err != nil:
		s := a.sources.byNumber[e.Source]
		if s == nil || s.standing != offered {
			return
		}
		s.standing, s.retry = refused, now.Mono+int64(refusedSource)
		if r, ok := errors.AsType[*stream.Refusal](e.Err); ok {
			if after, can := r.Retry(); can {
				s.retry = now.Mono + int64(after)
			}
		}
		a.complain("source "+s.Name, e.Err)
	case e.Busy != 0:
		a.counts.Busy++
		f.conn.Rewind()
		a.memory.rewind()
		f.sendAt = now.Mono + int64(e.Retry)
	case e.Acked != 0:
		for ; f.base <= e.Acked && a.memory.sent > 0; f.base++ {
			i := a.memory.pop()
			a.counts.Acked += uint64(i.frames)
			a.done(i)
		}
		for _, m := range e.Marks {
			if s := a.sources.byNumber[m.Source]; s != nil {
				s.acked = max(s.acked, m.Sequence)
			}
		}
		f.backoff, f.acked = 0, now.Mono
		a.complain("not connected to "+a.settings.Server.Target.String(), nil)
	}
}

// opened goes on behind what is durable of a source.
func (a *Agent) opened(s *source, durable uint64) {
	s.standing, s.acked = opened, durable
	a.complain("source "+s.Name, nil)
	if s.spooled == 0 {
		s.have = max(s.have, durable)
	}
	for _, i := range a.memory.remove(func(i *item) bool { return i.source == s && i.to != 0 && i.to <= durable }) {
		a.done(i)
	}
}

// done forgets an item.
func (a *Agent) done(i *item) {
	i.source.items--
	a.spool.done(i)
}

// send gives the connection what it has room for.
func (a *Agent) send(now Instant) {
	f := &a.forward
	if f.conn == nil {
		a.closeSources()
		return
	}
	a.offer(now)
	for now.Mono >= f.sendAt {
		a.refill()
		i := a.memory.next()
		if i == nil || i.source.standing == unknown || i.source.standing == offered {
			break
		}
		if i.source.standing == refused {
			a.refuse(i.source)
			continue
		}
		if a.memory.sent > 0 && (a.memory.way+i.size() > a.window() || a.memory.sent >= maxOnTheWay) {
			break
		}
		number := f.base + uint64(a.memory.sent)
		if i.gap != nil {
			f.conn.Gap(i.source.number, number, *i.gap)
		} else {
			f.conn.Frames(i.source.number, number, i.raw)
		}
		a.memory.send()
		f.sent = now.Mono
	}
	if now.Mono-f.sent > int64(a.idle()/3) {
		f.conn.Ping()
		f.sent = now.Mono
	}
	a.closeSources()
}

// window is how many bytes may be on their way: no more than half of what the server will hold.
func (a *Agent) window() int64 {
	if q := a.forward.conn.Welcome.Queue; q > 0 {
		return min(a.settings.Window, q/2)
	}
	return a.settings.Window
}

// offer opens the sources that this connection does not know yet, and once more those that were refused long enough ago.
func (a *Agent) offer(now Instant) {
	for _, s := range a.sources.byNumber {
		switch {
		case s.standing == unknown:
		case s.standing == refused && now.Mono >= s.retry:
			a.forward.conn.CloseSource(s.number)
		default:
			continue
		}
		if err := a.forward.conn.Open(s.number, s.Source); err != nil {
			a.complain("source "+s.Name, err)
			s.standing, s.retry = refused, now.Mono+int64(refusedSource)
			continue
		}
		s.standing = offered
		a.forward.sent = now.Mono
	}
}

// refuse drops what is in memory of a source that the server does not want.
func (a *Agent) refuse(s *source) {
	for _, i := range a.memory.remove(func(i *item) bool { return i.source == s }) {
		a.counts.Dropped += uint64(i.frames)
		a.done(i)
	}
}

// refill takes from the spool what the memory has room for.
func (a *Agent) refill() {
	if a.memory.next() != nil || a.memory.bytes > a.settings.MemoryLimit/2 {
		return
	}
	for (a.memory.bytes == 0 || a.memory.bytes < a.settings.MemoryLimit*3/4) && a.spool.unread() {
		i, err := a.spool.next(a.sources)
		a.complain("read the spool", err)
		if i == nil {
			return
		}
		if s := i.source; s.standing == opened && i.to != 0 && i.to <= s.acked {
			a.done(i)
			continue
		}
		a.memory.push(i)
	}
}

// closeSources forgets the sources whose rings are gone and of which all is said.
func (a *Agent) closeSources() {
	for _, s := range a.sources.byNumber {
		if s.followed || s.items > 0 || s == a.intake.openSource() {
			continue
		}
		if a.forward.conn != nil && s.standing != unknown {
			a.forward.conn.CloseSource(s.number)
		}
		a.sources.close(s)
	}
}

// openSource is the source of the item that is being filled, if there is one.
func (t *intake) openSource() *source {
	if t.open == nil {
		return nil
	}
	return t.open.source
}
