package wire

import "github.com/whylate/whylate/ledger"

// Arrived says that a sequence has reached the engine process. Time is the entry into the engine's input path.
type Arrived struct {
	Time     int64
	Wall     float64 // the front end's arrival time: Unix seconds, its clock
	ID       string
	External string
}

// Type implements [Message].
func (*Arrived) Type() Type { return TypeArrived }

func (m *Arrived) layout(c cursor) cursor {
	c.at(&m.Time)
	c.f64("wall", &m.Wall)
	c.str("id", &m.ID)
	c.str("external", &m.External)
	return c
}

// LogprobsAll stands in [Queued] for the whole vocabulary, LogprobsNone for none.
const (
	LogprobsNone = -1
	LogprobsAll  = 32767
)

// Queued says that the scheduler has taken up a sequence.
type Queued struct {
	Time           int64
	Repeat         bool   // not an event: restates a live sequence for readers that came late; Time is the original one
	Update         bool   // a further chunk of a streaming session that exists already
	Handle         uint32 // never reused by its source; 0 means none
	Prompt         uint32 // tokens
	Max            uint32 // output tokens at most
	Priority       int32
	Arrived        int64 // ns, repeats the time of Arrived
	Wall           float64
	Client         uint16
	N              uint16 // sequences of the parent; 1 = alone
	Logprobs       int16  // number asked for, or LogprobsNone or LogprobsAll
	PromptLogprobs int16
	Features       ledger.Feature
	ID             string
	External       string
}

// Type implements [Message].
func (*Queued) Type() Type { return TypeQueued }

func (m *Queued) layout(c cursor) cursor {
	c.at(&m.Time)
	c.flag(1, &m.Repeat)
	c.flag(2, &m.Update)
	c.u32("handle", &m.Handle)
	c.u32("prompt", &m.Prompt)
	c.u32("max", &m.Max)
	c.i32("priority", &m.Priority)
	c.i64("arrived", &m.Arrived)
	c.f64("wall", &m.Wall)
	c.u16("client", &m.Client)
	c.u16("n", &m.N)
	c.i16("logprobs", &m.Logprobs)
	c.i16("prompt_logprobs", &m.PromptLogprobs)
	c.u32("features", (*uint32)(&m.Features))
	c.str("id", &m.ID)
	c.str("external", &m.External)
	return c
}

// Hashes is a stretch of the chain of a prompt's full blocks. Time is that of Queued.
type Hashes struct {
	Time   int64
	Handle uint32
	First  uint32   // index of the first block
	Hashes []uint64 // the first 8 bytes of each block's hash; at most 4,096
}

// Type implements [Message].
func (*Hashes) Type() Type { return TypeHashes }

func (m *Hashes) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u32("handle", &m.Handle)
	c.u32("first", &m.First)
	n := c.count32("n", len(m.Hashes))
	c.u64s("hash", &m.Hashes, n)
	return c
}

// Finished says that a sequence ended outside a completion: abort, error, shut-down. Time is when the engine applied it.
type Finished struct {
	Time int64
	Finish
}

// Type implements [Message].
func (*Finished) Type() Type { return TypeFinished }

func (m *Finished) layout(c cursor) cursor {
	c.at(&m.Time)
	m.Finish.layout(&c)
	return c
}

// CacheKind says what happened to blocks of the KV cache.
type CacheKind uint8

const (
	CacheFilled  CacheKind = 1 // now reusable
	CacheEvicted CacheKind = 2 // Handle is the last user
	CacheReset   CacheKind = 3 // everything
	CacheCopied  CacheKind = 4
)

// Cache says that blocks of the KV cache changed.
type Cache struct {
	Time   int64
	Kind   CacheKind // all of the frame's flags
	Handle uint32
	First  uint32   // index of the first block
	Blocks uint32   // how many
	Hashes []uint64 // of the last of them; the earlier ones are known from Hashes messages
}

// Type implements [Message].
func (*Cache) Type() Type { return TypeCache }

func (m *Cache) layout(c cursor) cursor {
	c.at(&m.Time)
	if c.writing {
		c.flags = uint8(m.Kind)
	} else {
		m.Kind = CacheKind(c.flags)
	}
	c.u32("handle", &m.Handle)
	c.u32("first", &m.First)
	c.u32("n", &m.Blocks)
	n := c.count32("hashes", len(m.Hashes))
	c.u64s("hash", &m.Hashes, n)
	return c
}
