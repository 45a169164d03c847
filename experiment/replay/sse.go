package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// An event is one server-sent event.
type event struct {
	name string // the field event; mostly empty
	data []byte // the fields data, joined by newlines; valid until the next event is read
	at   int64  // when the read that completed the event returned, ns
}

// An eventReader splits a stream of server-sent events, as the WHATWG standard describes them: lines end with LF, CRLF or CR;
// an empty line ends an event; a line that begins with a colon is a comment. It departs from the standard in one thing: an
// event that a clean end of the stream leaves without its empty line is delivered, since some servers end that way.
type eventReader struct {
	src   io.Reader
	clock Clock
	limit int // of one line, and of one event's data, bytes

	buf        []byte
	start, end int   // the unread bytes are buf[start:end]
	searched   int   // buf[start:start+searched] holds no end of line
	at         int64 // of the last read
	err        error // of the source, delivered once the buffer is empty
	begun      bool  // the first line has been seen
	afterCR    bool  // the last line ended with CR: an LF that follows belongs to it

	name string
	data []byte
	some bool // there was a data field
}

func newEventReader(src io.Reader, clock Clock, limit int) *eventReader {
	return &eventReader{src: src, clock: clock, limit: limit, buf: make([]byte, 4096)}
}

// next returns the next event that has data. The error is io.EOF at a clean end, else that of the source or a line that is
// too long, after which the reader is of no further use.
func (r *eventReader) next() (event, error) {
	r.name, r.data, r.some = "", r.data[:0], false
	for {
		line, err := r.line()
		if err == io.EOF && r.some {
			return r.event(), nil
		}
		if err != nil {
			return event{}, err
		}
		if len(line) > 0 {
			r.field(line)
			if len(r.data) > r.limit {
				return event{}, tooLong("an event", r.limit)
			}
			continue
		}
		if r.some {
			return r.event(), nil
		}
		r.name = ""
	}
}

func (r *eventReader) event() event { return event{name: r.name, data: r.data, at: r.at} }

// field takes one line that is not empty.
func (r *eventReader) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if r.some {
			r.data = append(r.data, '\n')
		}
		r.data = append(r.data, value...)
		r.some = true
	case "event":
		r.name = string(value)
	}
}

// line returns the next line without its end, valid until the next call. What stands before a clean end counts as a line.
func (r *eventReader) line() ([]byte, error) {
	for {
		if line, ok := r.cut(); ok {
			return r.first(line), nil
		}
		if r.end-r.start > r.limit {
			return nil, tooLong("a line", r.limit)
		}
		if r.err != nil {
			if rest := r.buf[r.start:r.end]; r.err == io.EOF && len(rest) > 0 {
				r.start, r.searched = r.end, 0
				return r.first(rest), nil
			}
			return nil, r.err
		}
		r.fill()
	}
}

// cut takes a whole line off the buffer, if there is one.
func (r *eventReader) cut() ([]byte, bool) {
	if r.afterCR && r.start < r.end {
		if r.buf[r.start] == '\n' {
			r.start++
		}
		r.afterCR = false
	}
	rest := r.buf[r.start:r.end]
	stop := bytes.IndexByte(rest[r.searched:], '\n')
	upTo := rest[r.searched:]
	if stop >= 0 {
		upTo = upTo[:stop]
	}
	if cr := bytes.IndexByte(upTo, '\r'); cr >= 0 {
		stop, r.afterCR = cr, true
	}
	if stop < 0 {
		r.searched = len(rest)
		return nil, false
	}
	stop += r.searched
	r.start, r.searched = r.start+stop+1, 0
	return rest[:stop], true
}

// first removes a byte order mark from the first line.
func (r *eventReader) first(line []byte) []byte {
	if r.begun {
		return line
	}
	r.begun = true
	return bytes.TrimPrefix(line, []byte("\ufeff"))
}

// fill reads more bytes behind those that are left, making room if need be.
func (r *eventReader) fill() {
	if r.start > 0 {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
	if r.end == len(r.buf) {
		grown := make([]byte, 2*len(r.buf))
		copy(grown, r.buf)
		r.buf = grown
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	r.at, r.err = r.clock.Now(), err
}

// errTooLong marks a line or an event beyond the limit.
var errTooLong = errors.New("longer than the limit")

func tooLong(what string, limit int) error {
	return fmt.Errorf("%s of the stream is %w of %d bytes", what, errTooLong, limit)
}
