package agent

import (
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/wire"
)

// source is one ring, or the heartbeats of one ring, on its way to the server.
type source struct {
	wire.Source
	number   uint16 // on the connection, and in the follower's sink
	have     uint64 // the highest sequence that was taken over from the ring, or is known to be missing
	spooled  uint64 // the first sequence that an earlier agent left in the spool; 0 = none, or the ring was read past it
	seen     uint64 // the highest sequence that the ring has given
	acked    uint64 // the highest sequence that is durable at the server
	items    int    // in memory and spool
	followed bool   // its ring is there
	own      bool   // it is no ring's: the agent writes it

	standing standing
	retry    int64 // Mono ns, when a refused source is offered again
}

// standing is what the server says of a source.
type standing uint8

const (
	unknown standing = iota // not offered on this connection
	offered
	opened
	refused
)

// sources are all that have something to send, or may yet.
type sources struct {
	byName   map[string]*source
	byNumber map[uint16]*source
	next     uint16
}

func newSources() *sources {
	return &sources{byName: map[string]*source{}, byNumber: map[uint16]*source{}, next: 1}
}

// open gives the source of this name, made if there is none. Numbers of closed sources are used again, the longest unused first.
func (s *sources) open(w wire.Source) (*source, error) {
	if o := s.byName[w.Name]; o != nil {
		if o.Hello == nil {
			o.Hello = w.Hello
		}
		return o, nil
	}
	if len(s.byNumber) >= math.MaxUint16-1 {
		return nil, fmt.Errorf("follow %s: %d rings are followed already; collect those of dead engines", w.Name, len(s.byNumber))
	}
	for s.next == 0 || s.byNumber[s.next] != nil {
		s.next++
	}
	o := &source{Source: w, number: s.next}
	s.next++
	s.byName[w.Name], s.byNumber[o.number] = o, o
	return o, nil
}

func (s *sources) close(o *source) {
	delete(s.byName, o.Name)
	delete(s.byNumber, o.number)
}

// settled reports whether all that was taken over from the ring is durable at the server.
func (o *source) settled() bool { return o.items == 0 && o.acked >= o.have && o.standing == opened }

// item is what is sent as one message: frames of a source, one behind the other, or a gap.
type item struct {
	source   *source
	raw      []byte
	from, to uint64 // sequences; 0 for a gap without
	frames   int
	gap      *wire.Gap
	dropped  bool     // the gap is what there was no room for, and may still grow
	segment  *segment // that the item lies in; nil if it was never in the spool
}

const (
	itemBytes = 256 << 10 // after which an item is closed; one frame may be longer
	itemCost  = 256       // bytes that an item occupies beside its frames
)

func (i *item) size() int64 { return int64(len(i.raw)) + itemCost }

func gapItem(s *source, g wire.Gap) *item { return &item{source: s, gap: &g, from: g.From, to: g.To} }

// memory holds the items that are to be sent next, the oldest first. The first sent of them are on their way.
type memory struct {
	items []*item
	sent  int
	bytes int64
	way   int64 // bytes of those on their way
}

func (m *memory) push(i *item) {
	m.items = append(m.items, i)
	m.bytes += i.size()
}

// insert puts an item before the newer ones of its source that are not on their way.
func (m *memory) insert(i *item) {
	at := m.sent
	for at < len(m.items) && (m.items[at].source != i.source || m.items[at].to <= i.to) {
		at++
	}
	m.items = slices.Insert(m.items, at, i)
	m.bytes += i.size()
}

// next is the first item that is not on its way, nil if all are.
func (m *memory) next() *item {
	if m.sent == len(m.items) {
		return nil
	}
	return m.items[m.sent]
}

// send notes that the next item is on its way.
func (m *memory) send() {
	i := m.items[m.sent]
	i.dropped = false // the server may have it: it must not change any more
	m.way += i.size()
	m.sent++
}

// rewind notes that nothing is on its way any more.
func (m *memory) rewind() { m.sent, m.way = 0, 0 }

// pop takes the oldest item, which is on its way.
func (m *memory) pop() *item {
	i := m.items[0]
	m.items[0] = nil
	m.items = m.items[1:]
	m.sent--
	m.bytes -= i.size()
	m.way -= i.size()
	return i
}

// remove takes out the items that are not on their way and that out names.
func (m *memory) remove(out func(*item) bool) (removed []*item) {
	kept := m.items[:m.sent]
	for _, i := range m.items[m.sent:] {
		if out(i) {
			removed = append(removed, i)
			m.bytes -= i.size()
		} else {
			kept = append(kept, i)
		}
	}
	clear(m.items[len(kept):])
	m.items = kept
	return removed
}

// noteDropped adds a gap for what there was no room for, to the last one of the source if nothing came in between.
func (m *memory) noteDropped(s *source, g wire.Gap) {
	for n := len(m.items) - 1; n >= m.sent && m.items[n].dropped; n-- {
		if i := m.items[n]; i.source == s && i.gap.Why == g.Why {
			i.gap.To, i.gap.Count, i.gap.At = max(i.gap.To, g.To), i.gap.Count+g.Count, g.At
			i.to = i.gap.To
			return
		}
	}
	i := gapItem(s, g)
	i.dropped = true
	s.items++
	m.push(i)
}

// Why an agent loses data, in its gaps.
const (
	whyDropped = "the server was away, and the agent's spool was full"
	whySpool   = "the server was away, and the agent's spool could not be written"
)
