package wire

// Outcome says how a request ended for its client.
type Outcome uint8

const (
	OutcomeComplete        Outcome = 0
	OutcomeHTTPError       Outcome = 1
	OutcomeConnectionError Outcome = 2
	OutcomeCancelled       Outcome = 3 // by the client
	OutcomeTimeout         Outcome = 4
)

// Client is one request as its client saw it. Time is when it was sent.
type Client struct {
	Time        int64
	Planned     int64 // ns, when the workload wanted it sent
	First       int64 // ns, first byte of the body
	End         int64 // ns
	Status      uint16
	Outcome     Outcome
	Attempt     uint8
	Prompt      uint32   // tokens
	Output      uint32   // tokens, as the server reported them, else as counted
	Gaps        []uint32 // µs between chunks, the first counted from Time; at most 65,536
	RequestID   string
	Traceparent string
	Class       string
	ResponseID  string
	Error       string
}

// Type implements [Message].
func (*Client) Type() Type { return TypeClient }

func (m *Client) layout(c cursor) cursor {
	c.at(&m.Time)
	c.i64("planned", &m.Planned)
	c.i64("first", &m.First)
	c.i64("end", &m.End)
	c.u16("status", &m.Status)
	c.u8("outcome", (*uint8)(&m.Outcome))
	c.u8("attempt", &m.Attempt)
	c.u32("prompt", &m.Prompt)
	c.u32("output", &m.Output)
	n := c.count32("chunks", len(m.Gaps))
	c.u32s("gap", &m.Gaps, n)
	c.str("request_id", &m.RequestID)
	c.str("traceparent", &m.Traceparent)
	c.str("class", &m.Class)
	c.str("response_id", &m.ResponseID)
	c.str("error", &m.Error)
	return c
}
