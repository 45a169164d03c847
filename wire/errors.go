package wire

import (
	"errors"
	"fmt"
	"strings"
)

// The ways in which bytes can be unreadable. Every error about bytes is an [Error] that wraps one of them.
var (
	ErrTruncated  = errors.New("the bytes end too early")
	ErrChecksum   = errors.New("the checksum does not agree")
	ErrMagic      = errors.New("the magic bytes are wrong")
	ErrLength     = errors.New("the length or count is impossible")
	ErrValue      = errors.New("the value does not fit its field")
	ErrType       = errors.New("the frame carries another message")
	ErrUnready    = errors.New("its writer has not finished opening it")
	ErrNewerMajor = errors.New("the format is newer than this whylate")
)

// Error says what could not be read or written: whose bytes, which message, which field, its value, and what to do about it.
// Fields that are not known are empty.
type Error struct {
	Err      error  // one of the sentinels of this package, or the system's error; never nil
	Source   string // who wrote the bytes: a ring file, a capture, a URL, a producer; filled in by whoever knows it
	Message  string // the message, or the part of a file
	Sequence uint64 // of the frame; 0 where there is none
	Field    string // the name that docs/formats/stream.md gives it
	Value    string // what was found there
	Remedy   string // what the reader of the error can do
}

// Error reads like "r0.ring: scheduled 42: joins: 9000 entries of 24 bytes, 60 bytes left: the length … is impossible; remedy".
func (e *Error) Error() string {
	var b strings.Builder
	part := func(s string) {
		if s != "" {
			b.WriteString(s)
			b.WriteString(": ")
		}
	}
	part(e.Source)
	if e.Sequence != 0 {
		part(fmt.Sprintf("%s %d", e.Message, e.Sequence))
	} else {
		part(e.Message)
	}
	part(e.Field)
	part(e.Value)
	b.WriteString(e.Err.Error())
	if e.Remedy != "" {
		b.WriteString("; ")
		b.WriteString(e.Remedy)
	}
	return b.String()
}

// Unwrap gives errors.Is the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// from names the source in err, where err is an [Error] that does not name one yet.
func from(source string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Source == "" {
		e.Source = source
	}
	return err
}

// newerMajor refuses what (a ring, a capture, a stream) by the version that it says it has.
func newerMajor(what string, major, minor uint16) error {
	return &Error{Err: ErrNewerMajor, Message: what, Field: "major",
		Value:  fmt.Sprintf("this %s is format %d.%d", what, major, minor),
		Remedy: fmt.Sprintf("this whylate reads up to %d.x; upgrade whylate", Major)}
}
