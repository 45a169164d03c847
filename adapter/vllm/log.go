// Package vllm reads what vLLM says of itself outside of the probe: its console log, of the first engine (V0) and of V1 up to 0.32.
package vllm

import (
	"io"
	"iter"
	"strings"

	"github.com/whylate/whylate/logline"
)

// Entry is one line of a log.
type Entry = logline.Entry[Record]

// Record is what a line says: one of Stats, HitRate, Preemption, Speculation, Diffusion, Transfer, Compute, Iteration, Compile, Death, Start,
// Access, Other.
type Record interface{ record() }

func (Stats) record()       {}
func (HitRate) record()     {}
func (Preemption) record()  {}
func (Speculation) record() {}
func (Diffusion) record()   {}
func (Transfer) record()    {}
func (Compute) record()     {}
func (Iteration) record()   {}
func (Compile) record()     {}
func (Death) record()       {}
func (Start) record()       {}
func (Access) record()      {}
func (Other) record()       {}

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

// SniffLog says whether the lines that a log begins with are vLLM's.
func SniffLog(lines []string) bool {
	return logline.Sniff(lines, func(text string) bool {
		switch r := parse(text).(type) {
		case Other, Access: // other servers write such lines too
			return false
		case Start:
			return !r.Ready // every web server gets ready
		}
		return true
	})
}

// A kind of line is known by a text in it. Before it stands no quotation: that would be somebody's words.
var kinds = []struct {
	mark string
	read func(subject, text string) Record // what stands before the mark, and the text from it on
}{
	{"Avg prompt throughput: ", stats},
	{"Avg prompt tput: ", stats},
	{"Iteration(", iteration},
	{"SpecDecoding metrics: ", speculation},
	{"Speculative metrics: ", speculation},
	{"DiffusionDecoding metrics: ", diffusion},
	{"KV Transfer metrics: ", transfer},
	{"Prefix cache hit rate: GPU: ", hitRate},
	{" is preempted by ", preemption},
	{"MFU: ", compute},
	{" during inference: ", compile},
	{"EngineCore encountered a fatal error", death},
	{"Dumping input data for V1 LLM engine", death},
	{" failed (engine dead)", death},
	{"EngineDeadError", death},
}

// parse never fails: what is not understood is an Other.
func parse(text string) Record {
	begin := logline.Beginning(text)
	for _, k := range kinds {
		if i := strings.Index(begin, k.mark); i >= 0 {
			if r := k.read(text[:i], text[i:]); r != nil {
				return r
			}
		}
	}
	if r, ok := start(begin, text); ok {
		return r
	}
	if a, ok := logline.ParseAccess(text); ok {
		return Access(a)
	}
	return Other{Bytes: len(text)}
}

// engine reads "Engine 001: " and "4 Engines Aggregated: " at the end of what stands before a list.
func engine(subject string) (of logline.Opt[int], aggregated int) {
	subject = strings.TrimSuffix(strings.TrimRight(subject, " "), ":")
	if before, ok := strings.CutSuffix(subject, " Engines Aggregated"); ok {
		return of, lastInt(before).Or(0)
	}
	if i := strings.LastIndex(subject, "Engine "); i >= 0 {
		return lastInt(subject[i+len("Engine "):]), 0
	}
	return of, 0
}
