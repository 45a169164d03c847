package dialect

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/wire"
)

// fleet takes the messages of all sources of a run and sorts them: front ends with their engines, devices, clients. It puts them in order of
// time, and does at their moments what is done at intervals.
type fleet struct {
	line    *line
	sources []*process
	fronts  map[string]*front // by target: of a restarted one, the last
	cards   map[string]*cards // by target
	timers  []*timer
	latest  int64 // Unix ns, of the messages taken so far

	// Whoever uses the fleet may say what is to become of what it meets first.
	metFront  func(f *front, h *wire.Hello, at int64)
	metSource func(p *process)
}

// process is one source.
type process struct {
	source    int
	hello     wire.Hello
	front     *front
	sequences map[uint32]*sequence // by the front end's handle
	last      []*sequence          // of its last delivery
	engine    *engine
	card      *card
	seen      func(at int64, m wire.Message) // beside all else; nil = nobody listens
}

// timer is something that is done at intervals.
type timer struct {
	next  int64 // Unix ns
	every int64
	do    func(at int64) error
}

func newFleet(window time.Duration) *fleet {
	f := &fleet{fronts: map[string]*front{}, cards: map[string]*cards{}}
	f.line = newLine(window, f.take)
	return f
}

// open opens the next source.
func (f *fleet) open(h *wire.Hello) (*process, error) {
	p := &process{source: len(f.sources), hello: *h}
	at := h.Clock[2] + offset(h.Clock[0], h.Clock[1], h.Clock[2])
	switch h.Role {
	case "frontend":
		p.front, p.sequences = f.front(h, at), map[uint32]*sequence{}
		p.front.processes = append(p.front.processes, *h)
	case "engine":
		p.engine = f.front(h, at).engine(h)
	case gpu.Role:
		target := "dcgm-" + h.Host
		if f.cards[target] == nil {
			f.cards[target] = &cards{target: target}
			f.every(at-int64(CollectEvery-firstCollection), CollectEvery, func(int64) error { f.cards[target].collect(); return nil })
		}
		var err error
		if p.card, err = f.cards[target].add(h); err != nil {
			return nil, err
		}
	}
	if f.metSource != nil {
		f.metSource(p)
	}
	f.sources = append(f.sources, p)
	f.line.source(h)
	return p, nil
}

// front is the front end of a replica; another incarnation begins anew.
func (f *fleet) front(h *wire.Hello, at int64) *front {
	target := h.Engine.Replica
	if target == "" {
		target = h.Engine.Deployment
	}
	if known := f.fronts[target]; known != nil && known.incarnation == h.Engine.Incarnation {
		return known
	}
	x := newFront(target, h.Engine.Incarnation)
	f.fronts[target] = x
	if f.metFront != nil {
		f.metFront(x, h, at)
	}
	return x
}

// record takes a message of a source.
func (f *fleet) record(source int, m wire.Message) error {
	if source < 0 || source >= len(f.sources) {
		return fmt.Errorf("source %d: %d are open; open it first", source, len(f.sources))
	}
	return f.line.record(source, m)
}

// take takes a message, in order of time.
func (f *fleet) take(at int64, source int, m wire.Message) error {
	if err := f.until(at); err != nil {
		return err
	}
	p := f.sources[source]
	switch {
	case p.front != nil:
		p.front.heard(p, at, m)
	case p.engine != nil:
		p.engine.heard(at, m)
	case p.card != nil:
		if m, ok := m.(*wire.Sample); ok {
			p.card.see(m)
		}
	}
	if p.seen != nil {
		p.seen(at, m)
	}
	return nil
}

// every has something done at intervals, the first time one interval after a moment.
func (f *fleet) every(from int64, interval time.Duration, do func(at int64) error) {
	f.timers = append(f.timers, &timer{from + int64(interval), int64(interval), do})
}

// until does what is due before a moment, in order of time; of one moment, what was asked for first.
func (f *fleet) until(at int64) error {
	f.latest = max(f.latest, at)
	for {
		var first *timer
		for _, t := range f.timers {
			if t.next < at && (first == nil || t.next < first.next) {
				first = t
			}
		}
		if first == nil {
			return nil
		}
		now := first.next
		first.next += first.every
		if err := first.do(now); err != nil {
			return err
		}
	}
}

// end takes what still waits.
func (f *fleet) end() error { return f.line.end() }

// atRest reports whether no request is left.
func (f *fleet) atRest() bool {
	for _, x := range f.fronts {
		if len(x.sequences) > 0 {
			return false
		}
	}
	return true
}

// targets are the names of those that have a metrics page, in order.
func (f *fleet) targets() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(f.fronts) {
			if !yield(name) {
				return
			}
		}
		for name := range maps.Keys(f.cards) {
			if !yield(name) {
				return
			}
		}
	})
}

// page is a target's metrics page now, nil where it has none yet. The memory of b is used for it.
func (f *fleet) page(target string, b []byte) []byte {
	if x := f.fronts[target]; x != nil {
		return x.page(b)
	}
	if c := f.cards[target]; c != nil && c.text != nil {
		return append(b[:0], c.text...)
	}
	return nil
}
