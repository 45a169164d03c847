package wire

// Clock is a pair of readings that ties the host's monotonic clock to Unix time. Time equals MonoAfter.
type Clock struct {
	Time       int64
	MonoBefore int64 // ns
	Realtime   int64 // Unix ns
	MonoAfter  int64 // ns
}

// Type implements [Message].
func (*Clock) Type() Type { return TypeClock }

func (m *Clock) layout(c cursor) cursor {
	c.at(&m.Time)
	c.i64("mono_before", &m.MonoBefore)
	c.i64("realtime", &m.Realtime)
	c.i64("mono_after", &m.MonoAfter)
	return c
}

// ChangeEvent is a deployment, configuration or model-version event: the message named change.
type ChangeEvent struct {
	Time    int64
	Kind    string
	Subject string
	From    string
	To      string
}

// Type implements [Message].
func (*ChangeEvent) Type() Type { return TypeChange }

func (m *ChangeEvent) layout(c cursor) cursor {
	c.at(&m.Time)
	c.str("kind", &m.Kind)
	c.str("subject", &m.Subject)
	c.str("from", &m.From)
	c.str("to", &m.To)
	return c
}

// Lost says what a producer knows to be missing.
type Lost struct {
	Time  int64
	Count uint64
	Since int64 // ns
	Why   string
}

// Type implements [Message].
func (*Lost) Type() Type { return TypeLost }

func (m *Lost) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u64("count", &m.Count)
	c.i64("since", &m.Since)
	c.str("why", &m.Why)
	return c
}

// Liveness is what a reader makes of a ring's lock, age and counts.
type Liveness uint8

const (
	Working Liveness = 1
	Idle    Liveness = 2
	Stuck   Liveness = 3 // in Heartbeat.Iteration since Heartbeat.Since
	Dead    Liveness = 4
)

// Heartbeat is the state of a writer as its reader sees it. It is the one message that readers write.
type Heartbeat struct {
	Time      int64
	State     Liveness
	Iteration uint64
	Since     int64 // ns
	Written   uint64
	Dropped   uint64
	Errors    uint64
}

// Type implements [Message].
func (*Heartbeat) Type() Type { return TypeHeartbeat }

func (m *Heartbeat) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u8("state", (*uint8)(&m.State))
	c.zero(3)
	c.u64("iteration", &m.Iteration)
	c.i64("since", &m.Since)
	c.u64("written", &m.Written)
	c.u64("dropped", &m.Dropped)
	c.u64("errors", &m.Errors)
	return c
}

// NoticeCode says what a probe has to tell about itself.
type NoticeCode uint16

const (
	NoticeHookDisabled NoticeCode = 1 // a hook disabled itself after an error
	NoticeHookMissing  NoticeCode = 2 // a hook point does not exist in this engine
	NoticeHashesOff    NoticeCode = 3
)

// Notice is the probe speaking about itself.
type Notice struct {
	Time int64
	Code NoticeCode
	Text string
}

// Type implements [Message].
func (*Notice) Type() Type { return TypeNotice }

func (m *Notice) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u16("code", (*uint16)(&m.Code))
	c.zero(2)
	c.str("text", &m.Text)
	return c
}
