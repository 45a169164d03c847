package wire

import "fmt"

// Major and Minor number the format that this package writes. It reads every minor version of its major one, and
// refuses a newer major one by name.
const (
	Major = 1
	Minor = 1
)

// Type is the kind of message that a frame carries. A reader skips and counts the types that it does not know.
type Type uint8

// The message types of format 1.1.
const (
	TypeHello     Type = 1
	TypeClock     Type = 2
	TypeReceived  Type = 3
	TypeSubmitted Type = 4
	TypeFirstByte Type = 5
	TypeLastByte  Type = 6
	TypeAnswered  Type = 7
	TypeDelivered Type = 8
	TypeArrived   Type = 9
	TypeQueued    Type = 10
	TypeHashes    Type = 11
	TypeScheduled Type = 12
	TypeDone      Type = 13
	TypeFinished  Type = 14
	TypeCache     Type = 15
	TypeClient    Type = 16
	TypeSample    Type = 17
	TypeChange    Type = 18
	TypeLost      Type = 19
	TypeHeartbeat Type = 20
	TypeStep      Type = 21
	TypeNotice    Type = 22
	TypeLabels    Type = 23
)

var typeNames = [...]string{"none", "hello", "clock", "received", "submitted", "first_byte", "last_byte", "answered",
	"delivered", "arrived", "queued", "hashes", "scheduled", "done", "finished", "cache", "client", "sample", "change",
	"lost", "heartbeat", "step", "notice", "labels"}

// String is the message's name in docs/formats/stream.md.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}
