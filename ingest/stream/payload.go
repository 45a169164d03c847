package stream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Identity names an agent's process: host and boot are where it runs, pid and start which process it is.
type Identity struct {
	Host    string `json:"host"`
	Boot    string `json:"boot"`  // the host's boot id
	PID     int    `json:"pid"`   // in its own container
	Start   uint64 `json:"start"` // clock ticks since boot
	Version string `json:"version"`
}

func (i Identity) String() string {
	return fmt.Sprintf("agent %s of %s (pid %d)", i.Version, i.Host, i.PID)
}

// sameHost reports whether two agents run on one boot of one host, so that one of them follows the other.
func (i Identity) sameHost(o Identity) bool { return i.Host == o.Host && i.Boot == o.Boot }

// greeting is the payload of hello.
type greeting struct {
	Token string   `json:"token,omitempty"`
	Agent Identity `json:"agent"`
	Clock [3]int64 `json:"clock"` // ns: monotonic before, Unix, monotonic after
}

// Welcome is a server's answer to a sender that it accepts: what it allows.
type Welcome struct {
	Protocol [2]uint16 `json:"protocol"`
	Server   string    `json:"server"`  // version
	Message  int       `json:"message"` // bytes of a message's payload, and of its frames unpacked
	Queue    int64     `json:"queue"`   // bytes, unpacked, that the server will hold of this connection
	Sources  int       `json:"sources"` // open at once
	IdleMS   int64     `json:"idle_ms"` // the connection is closed after so long without a message
}

// Code says in one word why something was refused. The list is closed: a server counts its refusals by it.
type Code string

const (
	CodeGarbage     Code = "garbage"     // the bytes are no message
	CodeVersion     Code = "version"     // the protocol, or a source's, is newer than the server
	CodeToken       Code = "token"       // the bearer token is missing or wrong
	CodeTLS         Code = "tls"         // no agreement about TLS, or the client's certificate is not accepted
	CodeClock       Code = "clock"       // the sender's clock is far ahead of the server's
	CodeConnections Code = "connections" // too many connections
	CodeSources     Code = "sources"     // too many sources on one connection
	CodeSource      Code = "source"      // what is said of a source cannot be right
	CodeTaken       Code = "taken"       // another host sends the source
	CodeLength      Code = "length"      // the message, or what it unpacks to, is longer than allowed
	CodeDamaged     Code = "damaged"     // a checksum, a packed block or a frame is wrong
	CodeProtocol    Code = "protocol"    // a message that may not come here
	CodeSlow        Code = "slow"        // a message that did not end in time
	CodeIdle        Code = "idle"        // nothing came for too long
	CodeCut         Code = "cut"         // the connection ended inside a message
	CodeDeaf        Code = "deaf"        // the sender does not read the answers
	CodeReplaced    Code = "replaced"    // a newer connection of the same host has taken over
	CodeStore       Code = "store"       // the server cannot keep what it is sent
	CodeEnding      Code = "ending"      // the server is stopping
)

// Refusal is why a server refuses a connection, or one source of it, and what to do about it.
type Refusal struct {
	Code    Code   `json:"code"`
	What    string `json:"what"`
	Remedy  string `json:"remedy"`
	RetryMS int64  `json:"retry_ms"` // when it may be tried again; 0 = not before something is changed
}

func (r *Refusal) Error() string {
	s := fmt.Sprintf("refused (%s): %s", r.Code, r.What)
	if r.Remedy != "" {
		s += "; " + r.Remedy
	}
	return s
}

// Retry is when it may be tried again, and whether that can help before something is changed.
func (r *Refusal) Retry() (after time.Duration, can bool) {
	return time.Duration(r.RetryMS) * time.Millisecond, r.RetryMS > 0
}

// ErrOverloaded is what the function behind a [Server] returns, wrapped or not, if it has no room now. The sender is told to try again.
var ErrOverloaded = errors.New("no room now, try again")

// Mark is how far a source is durable.
type Mark struct {
	Source   uint16 // the connection's number of it
	Sequence uint64 // the highest one that is durable; all before it are, or are known to be missing
}

const markSize = 16

func appendMark(dst []byte, m Mark) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, m.Source)
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint64(dst, m.Sequence)
}

func readMarks(b []byte) []Mark {
	var marks []Mark
	for ; len(b) >= markSize; b = b[markSize:] {
		marks = append(marks, Mark{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint64(b[8:])})
	}
	return marks
}

// toJSON is for the types of this file, which always can be written.
func toJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("stream: %T cannot be written: %v", v, err))
	}
	return b
}
