package experiment

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of one request. They refuse a slip of the pen (a length in bytes, a time in place of a count) before it takes the
// machine's memory.
const (
	MaxTokens    = 1 << 24   // tokens of a prompt, and of an answer
	MaxSequences = 1<<16 - 1 // n
	MaxLogprobs  = 1<<15 - 2 // log-probabilities a token
	MaxName      = 256       // bytes of an id and of a class
	AllLogprobs  = -1        // in place of a number of log-probabilities: the whole vocabulary
)

// maxTime keeps sums of times within an int64, ns.
const maxTime = 1 << 62

// What to do about a wrong value, where more than one place says it.
const (
	tokensAdvice   = "give a whole number from 1 to 16777216"
	priorityAdvice = "give a whole number of 32 bits, or leave it out for 0; the lower, the earlier"
	logprobsAdvice = "give 0 to 32766, -1 for the whole vocabulary, or leave it out for none"
	idAdvice       = "use 1 to 256 printable ASCII characters without spaces: it is sent as the header X-Request-Id"
	traceAdvice    = "give true, false, or a W3C traceparent such as 00-<32 hex digits>-<16 hex digits>-01, not all zero"
)

// A Request is one line of a workload: when it arrives, how long it is, and what it shares with others. It holds no content.
// The zero value of every field but the two lengths is its default.
type Request struct {
	At             time.Duration // since the workload's own zero
	PromptTokens   int           // 1 or more
	OutputTokens   int           // most tokens to answer with, 1 or more
	Prefix         []PrefixRun   // what the prompt begins with; at most PromptTokens in all
	N              int           // sequences asked for; 0 is written and sent as 1
	Priority       int           // for an engine that schedules by priority: the lower, the earlier
	Logprobs       *int          // log-probabilities a token; nil for none, AllLogprobs for all
	PromptLogprobs *int          // the same for the prompt's tokens
	CancelAfter    time.Duration // the client hangs up this long after sending; 0 never
	CancelChunks   int           // the client hangs up after this many chunks of output; 0 never
	Class          string        // a name for this kind of request, such as "chat"
	ID             string        // the X-Request-Id to send; empty lets the replay make one
	Traceparent    Traceparent   // the traceparent to send; empty lets the replay decide
	StopAtEOS      bool          // the answer may end early: ignore_eos is false
}

// A PrefixRun is a run of prompt tokens that other prompts may begin with too. Equal hashes stand for equal tokens; where the
// lengths differ, the shorter run is the beginning of the longer.
type PrefixRun struct {
	Hash   Hash
	Tokens int // 1 or more
}

// A Hash names a run of tokens without telling them. It may be a block's chained hash or any other number.
type Hash uint64

// A Traceparent is what a request says about its W3C traceparent header: [TraceOn], [TraceOff], a header value to be sent as
// it is, or nothing, which leaves it to the replay.
type Traceparent string

// The two values of a [Traceparent] that are not header values.
const (
	TraceOn  Traceparent = "true"
	TraceOff Traceparent = "false"
)

// A FieldError says which field of which line of a workload is wrong, what stands there, and what to do about it.
type FieldError struct {
	Line   int    // 1 for the first line; 0 if the request does not come from a file
	Field  string // the key in the file; empty if the line as a whole is wrong
	Value  string // what was found, shortened; may be empty
	Advice string // what is wrong or wanted
	Kind   string // the kind of mistake in few words, for counting; empty lets the field stand for it
}

// Reason names the kind of mistake, so that mistakes can be counted: one of a small number of texts, whatever a file holds.
func (e *FieldError) Reason() string {
	field, _, _ := strings.Cut(e.Field, "[") // of a list any element
	return cmp.Or(e.Kind, field, "not a request")
}

// Error renders "workload line 3: prompt_tokens: -5: give a whole number from 1 to 16777216".
func (e *FieldError) Error() string {
	text := "workload"
	if e.Line > 0 {
		text += " line " + strconv.Itoa(e.Line)
	}
	for _, part := range []string{e.Field, e.Value, e.Advice} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// Sequences returns how many sequences the request asks for, at least 1.
func (r *Request) Sequences() int { return max(r.N, 1) }

// Validate returns nil, or a [*FieldError] for the first field whose value cannot be sent.
func (r *Request) Validate() error {
	switch {
	case r.At < 0:
		return wrong("at_ns", int64(r.At), "give a whole number of nanoseconds, 0 or more")
	case r.At > maxTime:
		return wrong("at_ns", int64(r.At), "give nanoseconds since the start of the workload, not more than 146 years")
	case r.PromptTokens < 1 || r.PromptTokens > MaxTokens:
		return wrong("prompt_tokens", r.PromptTokens, tokensAdvice)
	case r.OutputTokens < 1 || r.OutputTokens > MaxTokens:
		return wrong("output_tokens", r.OutputTokens, tokensAdvice)
	case r.N < 0 || r.N > MaxSequences:
		return wrong("n", r.N, "give a whole number from 1 to 65535, or leave it out for 1")
	case int(int32(r.Priority)) != r.Priority:
		return wrong("priority", r.Priority, priorityAdvice)
	case !validLogprobs(r.Logprobs):
		return wrong("logprobs", *r.Logprobs, logprobsAdvice)
	case !validLogprobs(r.PromptLogprobs):
		return wrong("prompt_logprobs", *r.PromptLogprobs, logprobsAdvice)
	case r.CancelAfter < 0 || r.CancelAfter > maxTime:
		return wrong("cancel_after_ns", int64(r.CancelAfter), "give nanoseconds after sending, or leave it out for never")
	case r.CancelChunks < 0:
		return wrong("cancel_after_chunks", r.CancelChunks, "give a number of chunks, or leave it out for never")
	case !validClass(r.Class):
		return wrong("class", shorten(strconv.Quote(r.Class)), "use at most 256 bytes of UTF-8 without control characters")
	case r.ID != "" && !validID(r.ID):
		return wrong("id", shorten(strconv.Quote(r.ID)), idAdvice)
	case !r.Traceparent.valid():
		return wrong("traceparent", shorten(strconv.Quote(string(r.Traceparent))), traceAdvice)
	}
	return r.validatePrefix()
}

func (r *Request) validatePrefix() error {
	total := 0
	for i, run := range r.Prefix {
		if run.Tokens < 1 || run.Tokens > MaxTokens {
			return wrong(fmt.Sprintf("prefix[%d]", i), run.Tokens, "give each run of the prefix 1 token or more")
		}
		if total += run.Tokens; total > r.PromptTokens {
			return wrong("prefix", total, fmt.Sprintf("its runs may not hold more tokens than the prompt, which has %d", r.PromptTokens))
		}
	}
	return nil
}

func wrong(field string, value any, advice string) error {
	return &FieldError{Field: field, Value: fmt.Sprint(value), Advice: advice}
}

func validLogprobs(k *int) bool { return k == nil || *k >= AllLogprobs && *k <= MaxLogprobs }

func validID(id string) bool {
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return id != "" && len(id) <= MaxName
}

func validClass(class string) bool {
	for _, r := range class {
		if unicode.IsControl(r) {
			return false
		}
	}
	return utf8.ValidString(class) && len(class) <= MaxName
}

// valid says whether t is empty, a switch, or a header value of W3C Trace Context version 00.
func (t Traceparent) valid() bool {
	switch t {
	case "", TraceOn, TraceOff:
		return true
	}
	if len(t) != 55 || t[:3] != "00-" || t[35] != '-' || t[52] != '-' {
		return false
	}
	trace, span, flags := string(t[3:35]), string(t[36:52]), string(t[53:])
	return lowerHex(trace) && lowerHex(span) && lowerHex(flags) && !allZero(trace) && !allZero(span)
}

func lowerHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func allZero(s string) bool {
	for _, c := range []byte(s) {
		if c != '0' {
			return false
		}
	}
	return true
}

// shorten cuts a value that is shown in an error to a length that a terminal can bear.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
