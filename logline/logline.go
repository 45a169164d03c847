// Package logline reads the logs of Python services line by line, whatever they were wrapped in on their way: container runtimes, log
// shippers, process prefixes, colours, compression. It gives every message with its place, its time and how well that is known, and the
// pieces that the messages of engines are made of: "key: value" lists, settings, access lines.
//
// Messages may hold what users wrote. Nothing here keeps them: a Line lives until the next one is asked for.
package logline

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// Line is one message of a log. A physical line has one as a rule; it has two where processes wrote into each other, and several
// physical lines make one where a runtime cut it.
type Line struct {
	Mark
	Text string // without wrapper, colours, prefix and header; valid UTF-8
}

// Mark is all of a line but its text.
type Mark struct {
	First, Last int    // physical lines, from 1
	Time        Time   // zero if the line has none
	Level       string // as the logger calls it: INFO, WARNING …; "" if it does not say
	Source      string // the code that wrote it: "loggers.py:271", or a logger's name
	Tags        Tags   // who wrote it
	Skipped     int64  // bytes that are not in the text: beyond MaxLine, or before a header and no known prefix
	Cut         bool   // the rest of the message never came
}

// Tags are what prefixes tell of the writer, outermost first. They are shared between lines, and must not be changed.
type Tags []Tag

// Tag is one: process APIServer, pid 41, ip 192.0.2.77, stream stderr, from pod/engine-0, DP 1, TP 2.
type Tag struct{ Name, Value string }

// Get is the innermost tag of this name, "" where there is none: a remote worker's process and pid, not those of the engine that relays
// its lines.
func (ts Tags) Get(name string) string {
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].Name == name {
			return ts[i].Value
		}
	}
	return ""
}

// Time is when a line was written.
type Time struct {
	At   time.Time // as if in UTC if the zone is not known
	Date Date
	Zone Zone
}

// Date says where a time's date is from.
type Date uint8

// What is known of a date.
const (
	NoTime      Date = iota // the line has no time at all: only its place among the others is known
	DateTold                // by the wrapper or the line
	YearGuessed             // day and month are told; the year is that of a wrapper nearby, or of the file
	YearUnknown             // day and month are told, and nothing says the year: At counts from year 0, and on past New Year
	DateUnknown             // only the time of day is told: At counts from the first day of year 0, and on past midnight
)

// Zone says where a time's zone is from.
type Zone uint8

// What is known of a zone.
const (
	ZoneUnknown Zone = iota
	ZoneTold         // by the wrapper
	ZoneGiven        // by Options
)

// MaxLine is the longest line and message in bytes. What is beyond is skipped, and counted.
const MaxLine = 1 << 20

// Options say what a log does not.
type Options struct {
	// Zone is the one of times that come without. Nil: they stay unknown.
	Zone *time.Location
	// Near is a time shortly after the log's beginning, its file's time for want of better: it gives years to times without. A wrapper's
	// time, where there is one, is better and wins. Zero: not known.
	Near time.Time
	// Limit is the most bytes that are taken out of a compressed log; 0 means 16 GiB.
	Limit int64
}

const defaultLimit = 16 << 30

// lookAhead is how much of a log is looked at for a wrapper's time before its first line is given out.
const lookAhead = 256 << 10

// Read reads a log, plain or compressed by gzip or zstd, in constant memory. It gives every physical line, empty ones too; lines that
// cannot be understood come as they are. An error is the last that it gives: what stood before has been given. It looks 256 KiB ahead before
// it gives the first line: it is for a log that has been written, not for one to be followed.
func Read(r io.Reader, o Options) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		src, done, err := Unpack(r, o.Limit)
		if err != nil {
			yield(Line{}, err)
			return
		}
		defer done()
		ahead, _ := src.Peek(lookAhead) // an error comes again, when the lines before it have been given
		read(src, &clock{zone: o.Zone, near: o.Near, first: yearOf(ahead)}, yield)
	}
}

// read gives the lines of a source in the order in which their messages end.
func read(src *bufio.Reader, clock *clock, yield func(Line, error) bool) {
	lines, wraps, heads := physical{src: src}, unwrapper{}, header{}
	give := func(m message) bool {
		return heads.split(m, func(l Line, s stamp) bool {
			l.Time = clock.time(m.at, s)
			return yield(l, nil)
		})
	}
	for {
		raw, skipped, err := lines.next()
		switch {
		case err == nil:
			if m, ok := wraps.take(raw, lines.n, skipped); ok && !give(m) {
				return
			}
			continue
		case wraps.rest(give) && !errors.Is(err, io.EOF):
			yield(Line{}, fmt.Errorf("after line %d: %w", lines.n, err))
		}
		return
	}
}
