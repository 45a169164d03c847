package wire

import "github.com/whylate/whylate/ledger"

// Received says that the front end has accepted an HTTP request. Time is the entry into the application.
type Received struct {
	Time        int64
	HTTP        uint32 // numbers the requests of this source from 1
	RequestID   string // X-Request-Id
	Traceparent string
	Path        string // without the query
}

// Type implements [Message].
func (*Received) Type() Type { return TypeReceived }

func (m *Received) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u32("http", &m.HTTP)
	c.str("request_id", &m.RequestID)
	c.str("traceparent", &m.Traceparent)
	c.str("path", &m.Path)
	return c
}

// Labels says whose an HTTP request is and what kind of one, in keyed hashes: without the key nobody can test a guess. Time is when
// the last of them was known. A later message of the same request adds what it has.
type Labels struct {
	Time   int64
	HTTP   uint32
	Tenant uint64 // 0 = not said, here and below
	Class  uint64
	Route  uint64
}

// Type implements [Message].
func (*Labels) Type() Type { return TypeLabels }

func (m *Labels) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u32("http", &m.HTTP)
	c.zero(4)
	c.u64("tenant", &m.Tenant)
	c.u64("class", &m.Class)
	c.u64("route", &m.Route)
	return c
}

// Submitted says that the front end hands one sequence to the engine.
type Submitted struct {
	Time     int64
	HTTP     uint32 // 0 = no HTTP request is known
	Handle   uint32
	Index    uint32 // child of a request for several sequences, else 0
	Prompt   uint32 // tokens
	ID       string // the engine's internal request id, which joins the sources
	External string
	Parent   string // internal id of the parent, empty if there is none
}

// Type implements [Message].
func (*Submitted) Type() Type { return TypeSubmitted }

func (m *Submitted) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u32("http", &m.HTTP)
	c.u32("handle", &m.Handle)
	c.u32("index", &m.Index)
	c.u32("prompt", &m.Prompt)
	c.str("id", &m.ID)
	c.str("external", &m.External)
	c.str("parent", &m.Parent)
	return c
}

// FirstByte says that the first non-empty part of a body was given to the server.
type FirstByte struct {
	Time   int64
	HTTP   uint32
	Status uint16
}

// Type implements [Message].
func (*FirstByte) Type() Type { return TypeFirstByte }

func (m *FirstByte) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u32("http", &m.HTTP)
	c.u16("status", &m.Status)
	c.zero(2)
	return c
}

// ExchangeEnd says how an HTTP exchange ended.
type ExchangeEnd uint8

const (
	EndComplete         ExchangeEnd = 0
	EndDisconnected     ExchangeEnd = 1 // by the client
	EndApplicationError ExchangeEnd = 2
)

// LastByte says that an HTTP exchange is over. Time is when the final send returned, or the end of the application.
type LastByte struct {
	Time       int64
	HTTP       uint32
	Status     uint16
	End        ExchangeEnd
	Chunks     uint32
	Bytes      uint64
	Wait       uint64 // ns inside send, all parts together: a slow client
	Disconnect int64  // ns, when the disconnect was seen; 0 = it was not
}

// Type implements [Message].
func (*LastByte) Type() Type { return TypeLastByte }

func (m *LastByte) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u32("http", &m.HTTP)
	c.u16("status", &m.Status)
	c.u8("end", (*uint8)(&m.End))
	c.zero(1)
	c.u32("chunks", &m.Chunks)
	c.u64("bytes", &m.Bytes)
	c.u64("wait", &m.Wait)
	c.i64("disconnect", &m.Disconnect)
	return c
}

// EndedBy says what made the front end end a sequence.
type EndedBy uint8

const (
	ByUnknown    EndedBy = 0
	ByToken      EndedBy = 1
	ByStopString EndedBy = 2
	ByClient     EndedBy = 3
)

// Answered is the front end's own end of one sequence. Time is when the final output was made, or the abort was seen.
type Answered struct {
	Time   int64
	Handle uint32
	Reason ledger.FinishReason
	By     EndedBy
	Output uint32 // tokens
}

// Type implements [Message].
func (*Answered) Type() Type { return TypeAnswered }

func (m *Answered) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u32("handle", &m.Handle)
	c.u8("reason", (*uint8)(&m.Reason))
	c.u8("by", (*uint8)(&m.By))
	c.zero(2)
	c.u32("output", &m.Output)
	return c
}

// Delivered says that one batch of engine output was handed to the waiting streams.
type Delivered struct {
	Time     int64
	Same     bool    // the handles are those of this source's previous Delivered, and Handles is empty
	Key      float64 // the engine's output timestamp in seconds; equals Done.Key
	Returned int64   // ns
	Engine   uint32
	Handles  []uint32
}

// Type implements [Message].
func (*Delivered) Type() Type { return TypeDelivered }

func (m *Delivered) layout(c cursor) cursor {
	c.at(&m.Time)
	c.flag(1, &m.Same)
	c.f64("key", &m.Key)
	c.i64("returned", &m.Returned)
	c.u32("engine", &m.Engine)
	n := c.count32("n", len(m.Handles))
	c.u32s("handle", &m.Handles, n)
	return c
}
