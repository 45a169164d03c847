package wire

import "github.com/whylate/whylate/ledger"

// Scheduled is a decision: what one pass of the scheduler put into the batch, as a difference from the last pass. Time is
// the entry into schedule().
type Scheduled struct {
	Time        int64
	Full        bool // Joins lists every member: forget what was known
	SkipsListed bool // Skips replaces the list in force; without it the one in force stays

	Iteration   uint64 // 1, 2, 3 … of this engine incarnation
	Alias       uint64 // the engine's own index, 0 = none
	Returned    int64  // ns, when schedule() returned
	Digest      uint64 // XOR of [Digest] over all members
	Tokens      uint32 // scheduled, all members
	Members     uint32
	Running     uint32 // length of the running list afterwards
	Waiting     uint32 // sequences waiting afterwards, deferred ones included
	Free        uint32 // KV blocks free afterwards
	TokenBudget uint32 // limit on tokens of this iteration
	SeqBudget   uint32 // limit on running sequences
	Head        uint32 // the sequence at which admission stopped, 0 = none
	Need        uint32 // KV blocks that Head needs before it can be admitted, 0 = not known
	Spent       uint32 // ns that the probe's own work took on this thread since its previous Scheduled
	Stop        ledger.SkipReason
	StopCode    uint8 // the producer's own code where Stop is ledger.SkipOther

	Joins       []Join // in the engine's order
	Leaves      []uint32
	Changes     []Change
	Preemptions []Preemption
	Skips       []SkipEntry
	Holders     []Holder
	Drafts      []Draft
}

// Digest is what one member contributes to Scheduled.Digest, by exclusive or.
func Digest(handle uint32) uint64 { return uint64(handle) * 0x9E3779B97F4A7C15 }

// JoinKind says how a sequence came to be a member.
type JoinKind uint8

const (
	JoinNew       JoinKind = 1
	JoinResumed   JoinKind = 2 // after a preemption
	JoinContinued JoinKind = 3 // listed in a full frame, or back after a skip
	JoinSession   JoinKind = 4 // a further chunk of a streaming session was taken up: Total is its prompt from here on
)

// Join is a member that was none in the last iteration, or any member in a full frame.
type Join struct {
	Handle uint32
	Tokens uint32 // scheduled in this iteration
	Before uint32 // tokens computed before this iteration
	Total  uint32 // tokens known: prompt and output
	Cached uint32 // prompt tokens served from cache at this admission
	Kind   JoinKind
}

// Change is a member whose token count differs from the last iteration.
type Change struct {
	Handle uint32
	Tokens uint32
}

// PreemptionCause says why a running sequence lost its blocks.
type PreemptionCause uint8

const (
	CauseKVBlocks PreemptionCause = 1
	CauseReset    PreemptionCause = 2
)

// Preemption is a running sequence that lost its blocks.
type Preemption struct {
	Victim    uint32
	Preemptor uint32 // 0 = administrative or unknown
	Lost      uint32 // tokens computed and thrown away
	Output    uint32 // tokens emitted so far
	Free      uint32 // free blocks before
	Blocks    uint32 // held by the victim
	Cause     PreemptionCause
	TimeDelta uint32 // µs after Scheduled.Time
}

// SkipEntry is a live sequence that was not scheduled for a reason of its own.
type SkipEntry struct {
	Handle uint32
	Reason ledger.SkipReason
	Code   uint8
}

// Holder is one of those who hold the KV pool.
type Holder struct {
	Handle uint32
	Blocks uint32
	Weight float32 // blocks, a shared one counted 1/references
}

// Draft is the number of speculative tokens among a member's tokens.
type Draft struct {
	Handle uint32
	Tokens uint32
}

// Bytes of one list entry.
const (
	joinSize       = 24
	changeSize     = 8
	preemptionSize = 32
	skipSize       = 8
	holderSize     = 12
	draftSize      = 8
)

// Type implements [Message].
func (*Scheduled) Type() Type { return TypeScheduled }

func (m *Scheduled) layout(c cursor) cursor {
	c.at(&m.Time)
	c.flag(1, &m.Full)
	c.flag(2, &m.SkipsListed)
	c.u64("iteration", &m.Iteration)
	c.u64("alias", &m.Alias)
	c.i64("returned", &m.Returned)
	c.u64("digest", &m.Digest)
	c.u32("tokens", &m.Tokens)
	c.u32("members", &m.Members)
	c.u32("running", &m.Running)
	c.u32("waiting", &m.Waiting)
	c.u32("free", &m.Free)
	c.u32("token_budget", &m.TokenBudget)
	c.u32("seq_budget", &m.SeqBudget)
	c.u32("head", &m.Head)
	c.u32("need", &m.Need)
	c.u32("spent", &m.Spent)
	c.u8("stop", (*uint8)(&m.Stop))
	c.u8("stop_code", &m.StopCode)

	joins := c.count16("joins", len(m.Joins))
	leaves := c.count16("leaves", len(m.Leaves))
	changes := c.count16("changes", len(m.Changes))
	preemptions := c.count16("preemptions", len(m.Preemptions))
	skips := c.count16("skips", len(m.Skips))
	holders := c.count16("holders", len(m.Holders))
	drafts := c.count16("drafts", len(m.Drafts))

	m.Joins = sized(&c, "joins", m.Joins, joins, joinSize)
	for i := range m.Joins {
		m.Joins[i].layout(&c)
	}
	c.u32s("leaves", &m.Leaves, leaves)
	m.Changes = sized(&c, "changes", m.Changes, changes, changeSize)
	for i := range m.Changes {
		m.Changes[i].layout(&c)
	}
	m.Preemptions = sized(&c, "preemptions", m.Preemptions, preemptions, preemptionSize)
	for i := range m.Preemptions {
		m.Preemptions[i].layout(&c)
	}
	m.Skips = sized(&c, "skips", m.Skips, skips, skipSize)
	for i := range m.Skips {
		m.Skips[i].layout(&c)
	}
	m.Holders = sized(&c, "holders", m.Holders, holders, holderSize)
	for i := range m.Holders {
		m.Holders[i].layout(&c)
	}
	m.Drafts = sized(&c, "drafts", m.Drafts, drafts, draftSize)
	for i := range m.Drafts {
		m.Drafts[i].layout(&c)
	}
	return c
}

func (j *Join) layout(c *cursor) {
	c.u32("joins.handle", &j.Handle)
	c.u32("joins.tokens", &j.Tokens)
	c.u32("joins.before", &j.Before)
	c.u32("joins.total", &j.Total)
	c.u32("joins.cached", &j.Cached)
	c.u8("joins.kind", (*uint8)(&j.Kind))
	c.zero(3)
}

func (h *Change) layout(c *cursor) {
	c.u32("changes.handle", &h.Handle)
	c.u32("changes.tokens", &h.Tokens)
}

func (p *Preemption) layout(c *cursor) {
	c.u32("preemptions.victim", &p.Victim)
	c.u32("preemptions.preemptor", &p.Preemptor)
	c.u32("preemptions.lost", &p.Lost)
	c.u32("preemptions.output", &p.Output)
	c.u32("preemptions.free", &p.Free)
	c.u32("preemptions.blocks", &p.Blocks)
	c.u8("preemptions.cause", (*uint8)(&p.Cause))
	c.zero(3)
	c.u32("preemptions.time_delta", &p.TimeDelta)
}

func (s *SkipEntry) layout(c *cursor) {
	c.u32("skips.handle", &s.Handle)
	c.u8("skips.reason", (*uint8)(&s.Reason))
	c.u8("skips.code", &s.Code)
	c.zero(2)
}

func (h *Holder) layout(c *cursor) {
	c.u32("holders.handle", &h.Handle)
	c.u32("holders.blocks", &h.Blocks)
	c.f32("holders.weight", &h.Weight)
}

func (d *Draft) layout(c *cursor) {
	c.u32("drafts.handle", &d.Handle)
	c.u32("drafts.tokens", &d.Tokens)
}
