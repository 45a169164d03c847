package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Hello says who writes a source and what its decisions depend on. It is the only text on the wire.
type Hello struct {
	Time         int64           `json:"-"`
	Protocol     [2]uint16       `json:"protocol"` // major, minor
	Producer     Producer        `json:"producer"`
	Engine       Engine          `json:"engine"`
	Role         string          `json:"role"`   // engine, frontend, worker, client, simulator or agent
	Thread       string          `json:"thread"` // scheduler, input, …
	PID          uint32          `json:"pid"`
	Start        uint64          `json:"start"` // of the process, clock ticks since boot: pid and start name it for good
	Boot         string          `json:"boot"`
	Host         string          `json:"host"`
	Clock        [3]int64        `json:"clock"`        // ns: monotonic before, Unix, monotonic after
	Depth        int             `json:"depth"`        // decisions that may be open at once
	Settings     map[string]any  `json:"settings"`     // whatever the scheduler's decisions depend on; numbers are json.Number
	Capabilities map[string]bool `json:"capabilities"` // what this build can see; absent = it cannot
	Hashes       HashSettings    `json:"hashes"`
}

// Producer names the program that writes.
type Producer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Engine names one scheduler loop. A restart is a new incarnation.
type Engine struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	Deployment  string `json:"deployment"`
	Replica     string `json:"replica"`
	Rank        int    `json:"rank"`
	Incarnation string `json:"incarnation"`
}

// HashSettings says whether block hashes are sent, and whether they mean the same in another process.
type HashSettings struct {
	On        bool   `json:"on"`
	Algorithm string `json:"algorithm"`
	Stable    bool   `json:"stable"`
}

// Type implements [Message].
func (*Hello) Type() Type { return TypeHello }

func (m *Hello) layout(c cursor) cursor {
	c.at(&m.Time)
	if c.writing {
		m.append(&c)
		return c
	}
	h, err := ParseHello(unpadded(c.buf))
	c.err, _ = errors.AsType[*Error](err)
	h.Time = m.Time
	*m = h
	return c
}

// append writes the JSON and pads it with spaces, so that the rest of the frame is one JSON text.
func (m *Hello) append(c *cursor) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m); err != nil {
		c.fail(ErrValue, "settings", err.Error())
		return
	}
	start := len(c.buf) - FrameHeader
	c.buf = append(c.buf, bytes.TrimRight(text.Bytes(), "\n")...)
	for (len(c.buf)-start)%frameAlign != 0 {
		c.buf = append(c.buf, ' ')
	}
}

// unpadded is the JSON object in the body of a hello.
func unpadded(body []byte) []byte { return bytes.TrimRight(body, " \x00") }

// ParseHello reads the JSON object of a hello: the body of its frame, or the one in a capture's source record. A newer
// major protocol is refused with [ErrNewerMajor], before anything else in the object is looked at.
func ParseHello(object []byte) (Hello, error) {
	var version struct {
		Protocol [2]uint16 `json:"protocol"`
	}
	if err := json.Unmarshal(object, &version); err != nil {
		return Hello{}, helloError(err)
	}
	if v := version.Protocol; v[0] > Major {
		return Hello{}, newerMajor("hello", v[0], v[1])
	}
	var h Hello
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber() // a setting may be an integer that a float64 cannot hold
	if err := decoder.Decode(&h); err != nil {
		return Hello{}, helloError(err)
	}
	return h, nil
}

func helloError(err error) error {
	e := &Error{Err: ErrValue, Message: TypeHello.String(), Field: "body", Value: err.Error(),
		Remedy: "compare the producer's version with docs/formats/stream.md §2"}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		e.Field, e.Value = mismatch.Field, fmt.Sprintf("a %s where %s belongs", mismatch.Value, mismatch.Type)
	}
	return e
}
