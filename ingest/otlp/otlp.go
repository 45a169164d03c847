// Package otlp decodes OTLP, protobuf and JSON: traces into spans that hold no content, metrics into points, logs into what is not content of them. What cannot be taken is refused by name and counted,
// and nothing else is lost by it. No error of this package quotes its input: spans carry prompts.
package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/whylate/whylate/adapter/genai"
)

// Encoding of a request's body.
type Encoding uint8

// Encodings.
const (
	Protobuf Encoding = iota
	JSON
)

func (e Encoding) String() string { return [...]string{"protobuf", "JSON"}[e&1] }

// EncodingOf is the encoding of an HTTP Content-Type; ok is false for any other type.
func EncodingOf(contentType string) (e Encoding, ok bool) {
	for i, c := range contentType {
		if c == ';' || c == ' ' {
			contentType = contentType[:i]
			break
		}
	}
	switch contentType {
	case "application/x-protobuf", "application/protobuf":
		return Protobuf, true
	case "application/json":
		return JSON, true
	}
	return Protobuf, false
}

// Limits bound what one request may cost. Zero values are the defaults.
type Limits struct {
	Body    int   // bytes, before and after decompression: 64 MiB
	Depth   int   // of nested JSON: 128
	Spans   int   // in one request, empty shells included: 500,000
	Objects int   // within the spans of one JSON request: 8,000,000
	PerSpan int   // attributes of one span that are looked at: 512
	Value   int   // bytes of one attribute that are looked into: 1 MiB
	File    int64 // bytes of a file after decompression: 64 GiB
}

// events is how many events of one span are looked at.
func (l Limits) events() int { return 4 * l.PerSpan }

func (l Limits) settled() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Body, 64<<20)
	def(&l.Depth, 128)
	def(&l.Spans, 500_000)
	def(&l.Objects, 8_000_000)
	def(&l.PerSpan, 512)
	def(&l.Value, 1<<20)
	if l.File <= 0 {
		l.File = 64 << 30
	}
	return l
}

// Cause is why something was refused.
type Cause string

// Causes. A receiver answers TooLarge with 413 or RESOURCE_EXHAUSTED and everything else with 400 or INVALID_ARGUMENT; none is retried.
const (
	TooLarge  Cause = "too large"
	TooDeep   Cause = "nested too deep"
	TooMany   Cause = "too many records"
	Malformed Cause = "malformed"
	Truncated Cause = "truncated"
	NotTraces Cause = "not traces"
)

// Refused is a request, or a record of a file, that was not taken. Its text says where and what to do and quotes nothing.
type Refused struct {
	Cause Cause
	Text  string
}

func (r *Refused) Error() string { return string(r.Cause) + ": " + r.Text }

func refuse(c Cause, format string, args ...any) error {
	return &Refused{c, fmt.Sprintf(format, args...)}
}

// Decoded is what came out of a request or a file.
type Decoded struct {
	Spans []genai.Span
	Counts
}

// Counts is what was taken and what was not.
type Counts struct {
	Requests  int            // requests, or lines of a file, that were decoded
	Rejected  int            // spans refused one by one
	Refused   int            // requests, or lines of a file, refused whole
	Elsewhere int            // requests of other signals in a file: metrics, logs
	Why       map[string]int // reasons of refusals, without values

	Kept     int                // attributes
	Dropped  [genai.Classes]int // attributes not kept, by class of key
	Unusable int                // attributes of the allow list whose value cannot be what its name stands for; the field is unknown
	Oversize int                // attribute values above the limit: measured, not looked into
	Surplus  int                // attributes beyond the number a span may have

	what string // that is counted; "" is spans
}

// reject counts a record that is refused by itself.
func (c *Counts) reject(reason string) { c.Reject(1, reason) }

// Reject counts n records that are refused for the same reason, which quotes nothing of them.
func (c *Counts) Reject(n int, reason string) {
	c.Rejected += n
	if c.Why == nil {
		c.Why = map[string]int{}
	}
	c.Why[reason] += n
}

func (c *Counts) why(reason string) {
	if c.Why == nil {
		c.Why = map[string]int{}
	}
	c.Why[reason]++
}

// Merge adds what others refused.
func (c *Counts) Merge(o *Counts) {
	for reason, n := range o.Why {
		c.Reject(n, reason)
	}
}

// PartialSuccess is what a receiver answers with: the number of rejected spans and a sentence. Both are zero where everything was taken.
func (c *Counts) PartialSuccess() (rejected int64, message string) {
	if c.Rejected == 0 {
		return 0, ""
	}
	what, most := cmp.Or(c.what, "spans"), ""
	for r, n := range c.Why {
		if most == "" || n > c.Why[most] || n == c.Why[most] && r < most {
			most = r
		}
	}
	if n := c.Why[most]; n < c.Rejected {
		return int64(c.Rejected), fmt.Sprintf("%d %s refused, for %d reasons; %d of them: %s", c.Rejected, what, len(c.Why), n, most)
	}
	return int64(c.Rejected), fmt.Sprintf("%d %s refused: %s", c.Rejected, what, most)
}

// Decoder decodes requests. It is not safe for concurrent use; make one a connection or worker.
type Decoder struct {
	Limits Limits

	classes  map[string]genai.Class
	keys     map[string]string
	gzip     *gzip.Reader
	inflated bytes.Buffer
	written  []byte // protobuf made of JSON
}

// Decode decodes the body of one request. Spans that cannot be taken are left out and counted; an error, always a *Refused, is for a body
// of which nothing can be taken.
func (d *Decoder) Decode(body []byte, e Encoding, gzipped bool) (*Decoded, error) {
	limits := d.Limits.settled()
	out := &Decoded{}
	body, err := d.plain(body, gzipped, limits)
	if err != nil {
		return nil, err
	}
	return out, d.decode(out, body, e, limits)
}

// plain is a body without its compression. What it gives is valid until the next one.
func (d *Decoder) plain(body []byte, gzipped bool, limits Limits) ([]byte, error) {
	d.shrink()
	if len(body) > limits.Body {
		return nil, refuse(TooLarge, "the request has %d bytes, the limit is %d: send smaller batches", len(body), limits.Body)
	}
	if !gzipped {
		return body, nil
	}
	err := error(nil)
	if d.gzip == nil {
		d.gzip, err = gzip.NewReader(bytes.NewReader(body))
	} else {
		err = d.gzip.Reset(bytes.NewReader(body))
	}
	if err != nil {
		d.gzip = nil
		return nil, refuse(Malformed, "the body is not gzip, though its encoding says so")
	}
	d.inflated.Reset()
	_, err = d.inflated.ReadFrom(io.LimitReader(d.gzip, int64(limits.Body)+1))
	switch n := d.inflated.Len(); {
	case n > limits.Body:
		return nil, refuse(TooLarge, "the request has more than %d bytes after decompression: send smaller batches", limits.Body)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse(Truncated, "the gzip stream ends in the middle, after %d bytes of content", n)
	case err != nil:
		return nil, refuse(Malformed, "the gzip stream is damaged after %d bytes of content", n)
	}
	return d.inflated.Bytes(), nil
}

// keepsBuffer is how large a buffer may be that is kept for the next request.
const keepsBuffer = 4 << 20

func (d *Decoder) shrink() {
	if d.inflated.Cap() > keepsBuffer {
		d.inflated = bytes.Buffer{}
	}
	if cap(d.written) > keepsBuffer {
		d.written = nil
	}
}

// decode decodes a body that is not compressed into out, span by span.
func (d *Decoder) decode(out *Decoded, body []byte, e Encoding, limits Limits) error {
	body, err := d.proto(body, e, tracesRequest, limits)
	if err != nil {
		return err
	}
	spans, err := surveySpans(body, limits)
	if err != nil {
		return err
	}
	k := keeper{d: d, out: &out.Counts, limits: limits}
	out.Spans = slices.Grow(out.Spans, spans)
	var s span
	walk(body, limits, k.block, func(b []byte) {
		switch {
		case !s.read(b, limits):
			out.reject("a field of the span has a wrong type or length (ids are 16 and 8 bytes; hex in JSON)")
		case empty(s.trace) || empty(s.id):
			out.reject("a span without a trace id or span id")
		default:
			out.Spans = append(out.Spans, genai.Span{Resource: k.resource, Scope: k.scope})
			k.span(&out.Spans[len(out.Spans)-1], &s)
		}
	})
	out.Requests++
	return nil
}

// proto is a request as protobuf. What it gives is valid until the next one.
func (d *Decoder) proto(body []byte, e Encoding, root *message, limits Limits) (_ []byte, err error) {
	if e == Protobuf {
		return body, nil
	}
	d.written, err = transcode(body, d.written[:0], root, limits)
	return d.written, err
}

func empty(id []byte) bool {
	for _, b := range id {
		if b != 0 {
			return false
		}
	}
	return true
}
