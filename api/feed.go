package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Feed hands events to everybody who watches: what a [Service] implements Watch with. It keeps the newest events, each watcher reads
// them at his own pace, and who falls further behind than what is kept misses some and is told how many. Publishing never waits.
type Feed struct {
	epoch    string
	watchers int // at most

	mu     sync.Mutex
	kept   []Event // a ring: the event with the number n lies at n % len
	next   uint64  // number of the next event; the first is 1
	open   int     // watchers now
	wake   chan struct{}
	asleep bool // somebody waits on wake
	closed bool
}

// NewFeed makes a feed that keeps the newest keep events for at most so many watchers. The epoch names this run of the server: ids of
// another run do not match, and who resumes with one is told that events are lost. It must hold no colon.
func NewFeed(epoch string, keep, watchers int) *Feed {
	return &Feed{epoch: strings.ReplaceAll(epoch, ":", "-"), watchers: watchers, kept: make([]Event, max(keep, 1)), next: 1, wake: make(chan struct{})}
}

// Publish tells everybody. The event's ID is given here.
func (f *Feed) Publish(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	e.ID = f.id(f.next)
	f.kept[f.next%uint64(len(f.kept))] = e
	f.next++
	f.rouse()
}

// Close ends all watching.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.rouse()
}

// Watchers is how many watch now.
func (f *Feed) Watchers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *Feed) rouse() {
	if f.asleep {
		close(f.wake)
		f.wake, f.asleep = make(chan struct{}), false
	}
}

func (f *Feed) id(n uint64) string { return f.epoch + ":" + strconv.FormatUint(n, 10) }

// oldest is the number of the oldest event that is kept.
func (f *Feed) oldest() uint64 {
	if n := uint64(len(f.kept)); f.next > n {
		return f.next - n
	}
	return 1
}

// Watch implements [Service]. It refuses with *[Overloaded], *[Unavailable] or *[InvalidArgument].
func (f *Feed) Watch(ctx context.Context, since string) (<-chan Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, &Unavailable{What: "the server is stopping"}
	}
	if f.open >= f.watchers {
		return nil, &Overloaded{What: fmt.Sprintf("%d watch already, which is all this server allows", f.open), After: 5 * time.Second}
	}
	at, stale := f.next, false
	if since != "" {
		epoch, number, ok := strings.Cut(since, ":")
		n, err := strconv.ParseUint(number, 10, 64)
		switch {
		case !ok || err != nil:
			return nil, &InvalidArgument{Argument: "since", Value: since, Problem: "give the id of an event as the server wrote it, or nothing for what happens from now on"}
		case epoch != f.epoch || n >= f.next: // of another run of the server
			at, stale = f.oldest(), true
		default:
			at = n + 1
		}
	}
	f.open++
	out := make(chan Event)
	go func() {
		defer func() {
			close(out)
			f.mu.Lock()
			f.open--
			f.mu.Unlock()
		}()
		f.follow(ctx, at, stale, out)
	}()
	return out, nil
}

// follow sends events from number at on. stale says that an unknown number before it is lost.
func (f *Feed) follow(ctx context.Context, at uint64, stale bool, out chan<- Event) {
	send := func(e Event) bool {
		select {
		case out <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	var batch []Event
	for {
		f.mu.Lock()
		oldest := f.oldest()
		missed := uint64(0)
		if at < oldest {
			missed, at = oldest-at, oldest
		}
		batch = batch[:0]
		for ; at < f.next && len(batch) < 64; at++ {
			batch = append(batch, f.kept[at%uint64(len(f.kept))])
		}
		closed, wake := f.closed, f.wake
		if len(batch) == 0 {
			f.asleep = true
		}
		f.mu.Unlock()

		if missed > 0 || stale {
			text := fmt.Sprintf("%d events passed unread: they came faster than they were taken", missed)
			if stale {
				text = "the server has started anew since the last event that was seen; how many events lie between is not known"
			}
			lost := Event{ID: f.id(oldest - 1), Kind: EventLost, Lost: missed, Text: text}
			if len(batch) > 0 {
				lost.At = batch[0].At
			}
			stale = false
			if !send(lost) {
				return
			}
		}
		for _, e := range batch {
			if !send(e) {
				return
			}
		}
		if len(batch) > 0 {
			continue
		}
		if closed {
			return
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}
