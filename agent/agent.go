package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/whylate/whylate/wire"
)

// Agent follows the rings of a host and forwards them. It is for one goroutine.
type Agent struct {
	settings Settings
	follower *wire.Follower
	intake   intake
	sources  *sources
	memory   memory
	spool    *spool
	forward  forward
	writers  map[uint16]*watched // by the number of the ring's source
	ringLock *os.File
	gpus     *gpus // nil = they are not sampled
	woken    chan struct{}

	begun                     int64 // Mono ns, when the rings were first to be read
	polled, beaten, collected int64 // Mono ns, when that was done last
	blocked                   error // why the rings are not read
	complained                map[string]string
	counts                    Counts
}

// Counts are what an agent has done.
type Counts struct {
	Frames    uint64 // taken over from rings
	Acked     uint64 // of them and of heartbeats, durable at the server
	Dropped   uint64 // lost in the agent: no room in the spool, or the server does not want their source
	Withheld  uint64 // not sent, since they may hold raw block hashes
	Busy      uint64 // times that the server had no room
	Connects  uint64 // connections that were welcomed
	Collected uint64 // rings of dead writers, removed
	Memory    int64  // bytes now
	Spool     int64  // bytes now
	Bytes     uint64 // sent on connections that have ended
}

// New opens the spool and makes an agent. The error may be about single files of the spool only; then the agent is not nil, and works.
func New(s Settings) (*Agent, error) {
	a := &Agent{settings: s.withDefaults(), sources: newSources(), writers: map[uint16]*watched{}, woken: make(chan struct{}, 1), complained: map[string]string{}}
	if a.settings.Server.Clock == nil {
		a.settings.Server.Clock = pair
	}
	a.forward.dialed = make(chan dialed, 1)
	a.intake = intake{a: a, keyer: newKeyer(s.Key)}
	a.follower = wire.NewFollower(s.RingDir, &a.intake)
	a.follower.Hold = a.hold
	var err error
	a.spool, err = openSpool(s.SpoolDir, a.settings.SpoolLimit, a.sources)
	if a.spool == nil {
		return nil, err
	}
	return a, err
}

// Step does what is due at an instant: it takes what the server has answered, reads rings, judges writers, sends, and removes what nobody needs.
// It waits for nothing but the disk.
func (a *Agent) Step(now Instant) {
	a.hear(now)
	if now.after(a.polled, a.settings.PollEvery) {
		a.poll(now)
		a.polled = now.Mono
	}
	if now.after(a.beaten, a.settings.BeatEvery) {
		a.beat(now)
		a.beaten = now.Mono
	}
	a.takeSamples(now)
	a.flush(now)
	a.send(now)
	if now.after(a.collected, max(a.settings.BeatEvery, a.settings.Retention/60)) {
		a.collect(now)
		a.collected = now.Mono
	}
}

// Run calls Step by the clock until ctx ends, and then for up to grace until all that was read is acknowledged. What is not is in the spool
// afterwards.
func (a *Agent) Run(ctx context.Context, grace time.Duration) error {
	tick := time.NewTicker(a.settings.PollEvery)
	defer tick.Stop()
	a.sampleGPUs(ctx)
	for {
		a.Step(Now())
		select {
		case <-ctx.Done():
			if a.gpus != nil {
				a.gpus.end.Wait()
			}
			a.polled = 0 // read what came since
			a.Step(Now())
			for end := Now().Mono + int64(grace); Now().Mono < end && !a.delivered(); {
				select {
				case <-tick.C:
				case <-a.woken:
				}
				a.Step(Now())
			}
			return a.Close()
		case <-tick.C:
		case <-a.woken:
		}
	}
}

// Once calls Step by the clock until all that the rings and the spool hold now is acknowledged.
func (a *Agent) Once(ctx context.Context) error {
	tick := time.NewTicker(a.settings.PollEvery)
	defer tick.Stop()
	for {
		a.Step(Now())
		if a.delivered() {
			return a.Close()
		}
		if a.blocked != nil {
			return errors.Join(a.blocked, a.Close())
		}
		if refusal := a.forward.refusal; refusal != nil {
			if _, can := refusal.Retry(); !can {
				return errors.Join(refusal, a.Close())
			}
		}
		select {
		case <-ctx.Done():
			why := a.forward.problem
			if why == nil {
				why = ctx.Err()
			}
			return errors.Join(fmt.Errorf("not all was acknowledged in time: %w", why), a.Close())
		case <-tick.C:
		case <-a.woken:
		}
	}
}

// Close ends the agent. What it holds in memory goes into the spool.
func (a *Agent) Close() error {
	a.hear(Now())
	a.hangUp()
	if a.forward.dialing {
		if d := <-a.forward.dialed; d.conn != nil {
			d.conn.Close()
		}
	}
	err := errors.Join(a.save(), a.spool.close(), a.follower.Close())
	if a.ringLock != nil {
		err = errors.Join(err, a.ringLock.Close())
	}
	return err
}

// save puts what is in memory and in no file into the spool: before what the memory has from there, or behind it.
func (a *Agent) save() error {
	a.intake.seal()
	a.memory.rewind()
	var before, behind []*item
	for _, i := range a.memory.items {
		switch {
		case i.segment != nil:
			before, behind = append(before, behind...), nil
		default:
			behind = append(behind, i)
		}
	}
	if a.spool.unread() { // then nothing can be newer than what is there
		before, behind = append(before, behind...), nil
	}
	var errs []error
	for _, i := range behind {
		errs = append(errs, a.spool.put(i))
	}
	return errors.Join(append(errs, a.spool.rotate(), a.spool.front(before))...)
}

// delivered reports whether all that rings and spool held when they were last read is acknowledged.
func (a *Agent) delivered() bool {
	if a.polled == 0 || a.blocked != nil || len(a.memory.items) > 0 || a.spool.unread() {
		return false
	}
	for _, r := range a.follower.Rings() {
		if unread, _ := r.Unread(); unread > 0 {
			return false
		}
	}
	return true
}

// Counts says what the agent has done so far.
func (a *Agent) Counts() Counts {
	c := a.counts
	c.Memory, c.Spool = a.memory.bytes, a.spool.size()
	return c
}

// Woken is signalled when there is reason to call Step before its time: the server has answered.
func (a *Agent) Woken() <-chan struct{} { return a.woken }

func (a *Agent) wake() {
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

// complain logs a problem about a subject, once until it changes; nil means that it is over.
func (a *Agent) complain(subject string, err error) {
	if err == nil {
		delete(a.complained, subject)
		return
	}
	if text := err.Error(); a.complained[subject] != text {
		a.complained[subject] = text
		a.settings.Log.Warn(subject, "error", text)
	}
}
