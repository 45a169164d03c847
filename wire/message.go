package wire

// Message is one of the message structs of this package. Its Time field is the frame's time (ns of CLOCK_MONOTONIC), its
// flag fields are the frame's flags, and the rest is the body; each field's meaning is that of docs/formats/stream.md §2.
type Message interface {
	// Type is the number under which the message travels.
	Type() Type
	// layout takes c through the fields, reading or writing them.
	layout(c cursor) cursor
}

// Decode reads the body of f into m, which must be of f's type. Slices of m are reused, strings that have not changed are
// kept, and nothing else is allocated, so one m can serve for a whole stream; nothing in m points into f. Bytes after the
// known fields are ignored: a newer minor version may have written them. After an error the contents of m mean nothing.
func Decode(f Frame, m Message) error {
	if f.Type != m.Type() {
		return &Error{Err: ErrType, Message: m.Type().String(), Sequence: f.Sequence, Field: "type", Value: f.Type.String(),
			Remedy: "look at the frame's type before decoding it"}
	}
	c := m.layout(cursor{buf: f.Body, time: f.Time, flags: f.Flags})
	if c.err == nil {
		return nil
	}
	c.err.Message, c.err.Sequence = f.Type.String(), f.Sequence
	if c.err.Remedy == "" {
		c.err.Remedy = "the checksum is right, so the producer wrote it so: compare its version with docs/formats/stream.md"
	}
	return c.err
}

// Append appends m to dst as one whole frame with this sequence number. Strings are cut to 1,024 bytes. It fails with
// [ErrLength], and leaves dst as it was, if a list or the frame is longer than the format allows.
func Append(dst []byte, sequence uint64, m Message) ([]byte, error) {
	start := len(dst)
	var header [FrameHeader]byte
	c := m.layout(cursor{writing: true, buf: append(dst, header[:]...)})
	if c.err != nil {
		c.err.Message, c.err.Sequence = m.Type().String(), sequence
		c.err.Remedy = "write less into one message"
		return dst[:start], c.err
	}
	return sealFrame(c.buf, start, Frame{Sequence: sequence, Time: c.time, Type: m.Type(), Flags: c.flags})
}

// NewMessage returns an empty message of type t, or nil if this version of the format has none.
func NewMessage(t Type) Message {
	switch t {
	case TypeHello:
		return new(Hello)
	case TypeClock:
		return new(Clock)
	case TypeReceived:
		return new(Received)
	case TypeSubmitted:
		return new(Submitted)
	case TypeFirstByte:
		return new(FirstByte)
	case TypeLastByte:
		return new(LastByte)
	case TypeAnswered:
		return new(Answered)
	case TypeDelivered:
		return new(Delivered)
	case TypeArrived:
		return new(Arrived)
	case TypeQueued:
		return new(Queued)
	case TypeHashes:
		return new(Hashes)
	case TypeScheduled:
		return new(Scheduled)
	case TypeDone:
		return new(Done)
	case TypeFinished:
		return new(Finished)
	case TypeCache:
		return new(Cache)
	case TypeClient:
		return new(Client)
	case TypeSample:
		return new(Sample)
	case TypeChange:
		return new(ChangeEvent)
	case TypeLost:
		return new(Lost)
	case TypeHeartbeat:
		return new(Heartbeat)
	case TypeStep:
		return new(Step)
	case TypeNotice:
		return new(Notice)
	case TypeLabels:
		return new(Labels)
	}
	return nil
}
