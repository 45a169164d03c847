// Package sglang reads what SGLang says of itself in its log, in every shape that its lines have had.
package sglang

import (
	"io"
	"iter"
	"strings"

	"github.com/whylate/whylate/logline"
)

// Entry is one line of a log. Its tags DP, PP, TP and EP say which rank wrote it.
type Entry = logline.Entry[Record]

// Record is what a line says: one of Prefill, Decode, Retraction, Failure, Request, Start, Access, Other.
type Record interface{ record() }

func (Prefill) record()    {}
func (Decode) record()     {}
func (Retraction) record() {}
func (Failure) record()    {}
func (Request) record()    {}
func (Start) record()      {}
func (Access) record()     {}
func (Other) record()      {}

// Access is a line of the web server.
type Access logline.Access

// Other is a line that is none of the rest. Its text is not kept, since it may be what a user wrote; where it stands is in its mark.
type Other struct {
	Bytes int // of its text
}

// ReadLog reads a log to its end: an entry for every line, in their order. An error is the last that it gives.
func ReadLog(r io.Reader, o logline.Options) iter.Seq2[Entry, error] {
	return logline.Entries(r, o, parse)
}

// ParseLine reads one line that came alone, with whatever stands before its text: a collector's record. What is not understood is an Other.
func ParseLine(line string) Record { return parse(line) }

// SniffLog says whether the lines that a log begins with are SGLang's.
func SniffLog(lines []string) bool {
	return logline.Sniff(lines, func(text string) bool {
		switch parse(text).(type) {
		case Other, Access: // other servers write such lines too
			return false
		}
		return true
	})
}

// A kind of line is known by a text in it. Before it stands no quotation: that would be somebody's words.
var kinds = []struct {
	mark string
	read func(text string) Record // the text after the mark; nil if it is not what it seemed
}{
	{"Prefill batch", prefill},
	{"Decode batch", decode},
	{"#retracted_reqs: ", retraction},
	{"Prefill transfer failed for request", func(string) Record { return Failure{Side: "prefill"} }},
	{"Decode transfer failed for request", func(string) Record { return Failure{Side: "decode"} }},
	{"ReqTimeStats(", request},
	{"server_args=", settings},
	{"max_total_num_tokens=", capacity},
	{"The server is fired up and ready to roll", func(string) Record { return Start{Ready: true} }},
}

// parse never fails: what is not understood is an Other.
func parse(text string) Record {
	begin := logline.Beginning(text)
	for _, k := range kinds {
		if i := strings.Index(begin, k.mark); i >= 0 {
			if r := k.read(text[i+len(k.mark):]); r != nil {
				return r
			}
		}
	}
	if a, ok := logline.ParseAccess(text); ok {
		return Access(a)
	}
	return Other{Bytes: len(text)}
}
