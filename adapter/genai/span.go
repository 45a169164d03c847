// Package genai turns spans of any OpenTelemetry producer into model calls, and a call's time into the parts of an account (level L1).
// It is pure: what a span may keep of its attributes is decided here, reading them is ingest/otlp.
package genai

import (
	"encoding/hex"
	"strings"
)

// TraceID and SpanID are as the producer made them; a SpanID of zeros is none.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// ParseTraceID reads what String wrote.
func ParseTraceID(s string) (t TraceID, ok bool) {
	n, err := hex.Decode(t[:], []byte(s[:min(len(s), 2*len(t))]))
	return t, err == nil && n == len(t)
}

func (s SpanID) String() string { return hex.EncodeToString(s[:]) }

// Kind of a span, with the numbers of OTLP.
type Kind uint8

// Kinds.
const (
	KindUnknown Kind = iota
	Internal
	Server
	Client
	Producer
	Consumer
)

// Status of a span. Its message may quote a prompt and is not kept, only what class of words it used.
type Status uint8

// Statuses.
const (
	Unset Status = iota
	OK
	Failed
	Cancelled // an error whose message says that somebody gave up: aborted, cancelled, disconnected
)

// StatusOf is the status of an OTLP code and message.
func StatusOf(code int32, message string) Status {
	switch code {
	case 1:
		return OK
	case 2:
		if len(message) <= MaxText && gaveUp(message) {
			return Cancelled
		}
		return Failed
	}
	return Unset
}

func gaveUp(s string) bool {
	s = strings.ToLower(s)
	for _, w := range []string{"abort", "cancel", "disconnect", "client closed", "context done", "hang up"} {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// Resource is who made a span.
type Resource struct {
	Service, Instance string
	Host, Pod         string
	Namespace         string // of the pod
	Process           string // its id, as told
	Module            string // vLLM's vllm.instrumenting_module_name
}

// Scope is the instrumentation library.
type Scope struct{ Name, Version string }

// Span is what is kept of a span: identity, times, and attributes of the allow list in canonical units. It holds no content.
type Span struct {
	Trace      TraceID
	ID, Parent SpanID
	Name       string
	Kind       Kind
	Status     Status
	Resource   *Resource // never nil
	Scope      *Scope    // never nil
	Start, End int64     // Unix ns; 0 where the producer gave none or none that fits
	Threshold  Threshold // with what probability it was kept
	Attrs      []Attr
	Events     []Event
	Content    *Content // nil where the span carried none
	Dropped    uint32   // attributes that the producer's SDK had dropped

	has     uint64  // bit by Field
	adopted bool    // its parent was found by its request id
	came    TraceID // of an adopted one: the trace that it came in
}

// Open reports that the span has no usable end: none, or one before its start.
func (s *Span) Open() bool { return s.Start <= 0 || s.End < s.Start }

// Duration in ns; known is false for an open span.
func (s *Span) Duration() (ns int64, known bool) {
	if s.Open() {
		return 0, false
	}
	return s.End - s.Start, true
}

// Event is one of the few kinds of events that are kept.
type Event struct {
	Name string // schedule, retract, first_token or exception
	At   int64  // Unix ns
	BID  string // of a schedule event: the batch; all requests of one forward pass have the same
	Mode string // of a schedule event: prefill, decode, prebuilt
	Size int64  // of a schedule event: requests in the batch
}

// Attr is an attribute of the allow list: text, or a number in its canonical unit (ns, tokens, a count).
type Attr struct {
	Name   *Name
	Number int64
	Text   string
	field  Field // Name's, at hand
}

// Has reports that the span says something about the field.
func (s *Span) Has(f Field) bool { return s.has&(1<<f) != 0 }

// any reports that the span says something about one of the fields.
func (s *Span) any(mask uint64) bool { return s.has&mask != 0 }

// Get is the first attribute about the field, nil where there is none.
func (s *Span) Get(f Field) *Attr {
	if !s.Has(f) {
		return nil
	}
	for i := range s.Attrs {
		if s.Attrs[i].field == f {
			return &s.Attrs[i]
		}
	}
	return nil
}

// Number is the value of a numeric field.
func (s *Span) Number(f Field) (n int64, known bool) {
	if a := s.Get(f); a != nil {
		return a.Number, true
	}
	return 0, false
}

// Text is the value of a text field, "" where there is none.
func (s *Span) Text(f Field) string {
	if a := s.Get(f); a != nil {
		return a.Text
	}
	return ""
}

// Content is all that is kept of prompts, answers and tool calls: how much of it there was.
type Content struct {
	Attributes int
	Bytes      int64
	Roles      Roles // of messages whose roles could be read
	Truncated  int   // values that a limit of the sender cut in the middle
	Oversized  int   // values above the attribute limit: measured, not looked into
}

// Roles counts messages.
type Roles struct{ System, User, Assistant, Tool, Other int }

func (r Roles) total() int { return r.System + r.User + r.Assistant + r.Tool + r.Other }
