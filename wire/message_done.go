package wire

import "github.com/whylate/whylate/ledger"

// Done is a completion: what came out of an iteration, as a difference from the rule that a member emits one token if its
// tokens before and in this iteration, drafts taken off, reach its total, and none otherwise. Time is the entry into
// update_from_output.
type Done struct {
	Time      int64
	Iteration uint64
	Returned  int64   // ns
	Key       float64 // the engine's output timestamp in seconds; equals Delivered.Key
	Tokens    uint32  // emitted, all members
	Emits     []Emit
	Finishes  []Finish
}

// Emit is a member whose emitted tokens differ from the rule, or with output that was thrown away.
type Emit struct {
	Handle    uint32
	Tokens    uint16
	Discarded uint16
}

// Finish is the end of a sequence.
type Finish struct {
	Handle uint32
	Reason ledger.FinishReason
	Output uint32 // tokens emitted in all
}

// Bytes of one list entry.
const (
	emitSize   = 8
	finishSize = 12
)

// Type implements [Message].
func (*Done) Type() Type { return TypeDone }

func (m *Done) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u64("iteration", &m.Iteration)
	c.i64("returned", &m.Returned)
	c.f64("key", &m.Key)
	c.u32("tokens", &m.Tokens)
	emits := c.count16("emits", len(m.Emits))
	finishes := c.count16("finishes", len(m.Finishes))
	m.Emits = sized(&c, "emits", m.Emits, emits, emitSize)
	for i := range m.Emits {
		m.Emits[i].layout(&c)
	}
	m.Finishes = sized(&c, "finishes", m.Finishes, finishes, finishSize)
	for i := range m.Finishes {
		m.Finishes[i].layout(&c)
	}
	return c
}

func (e *Emit) layout(c *cursor) {
	c.u32("emits.handle", &e.Handle)
	c.u16("emits.tokens", &e.Tokens)
	c.u16("emits.discarded", &e.Discarded)
}

func (f *Finish) layout(c *cursor) {
	c.u32("handle", &f.Handle)
	c.u8("reason", (*uint8)(&f.Reason))
	c.zero(3)
	c.u32("output", &f.Output)
}

// Step is one rank's execution of one batch.
type Step struct {
	Time      int64
	Iteration uint64
	Rank      uint32
	Padded    uint32 // size of the batch with its padding
	Mode      uint8  // [ledger.GraphMode]
	Eager     uint8  // 1 = there are graphs, and this batch ran without
	Returned  int64  // ns, the host was done
	Device    uint64 // ns, 0 = not measured
	Wait      uint64 // ns waiting in collectives
	Peak      uint64 // bytes of memory
}

// Type implements [Message].
func (*Step) Type() Type { return TypeStep }

func (m *Step) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u64("iteration", &m.Iteration)
	c.u32("rank", &m.Rank)
	c.u32("padded", &m.Padded)
	c.u8("mode", &m.Mode)
	c.u8("eager", &m.Eager)
	c.zero(2)
	c.i64("returned", &m.Returned)
	c.u64("device", &m.Device)
	c.u64("wait", &m.Wait)
	c.u64("peak", &m.Peak)
	return c
}
