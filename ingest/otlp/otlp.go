// Package otlp decodes OTLP traces, protobuf and JSON, into spans that hold no content. What cannot be taken is refused by name and counted,
// and nothing else is lost by it. No error of this package quotes its input: spans carry prompts.
package otlp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

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
}

func (c *Counts) why(reason string) {
	if c.Why == nil {
		c.Why = map[string]int{}
	}
	c.Why[reason]++
}

// PartialSuccess is what a receiver answers with: the number of rejected spans and a sentence. Both are zero where everything was taken.
func (c *Counts) PartialSuccess() (rejected int64, message string) {
	if c.Rejected == 0 {
		return 0, ""
	}
	for r, n := range c.Why {
		if n >= c.Rejected {
			return int64(c.Rejected), fmt.Sprintf("%d spans refused: %s", c.Rejected, r)
		}
	}
	return int64(c.Rejected), fmt.Sprintf("%d spans refused, for %d reasons", c.Rejected, len(c.Why))
}

// Decoder decodes requests. It is not safe for concurrent use; make one a connection or worker.
type Decoder struct {
	Limits  Limits
	classes map[string]genai.Class
}

// Decode decodes the body of one request. Spans that cannot be taken are left out and counted; an error, always a *Refused, is for a body
// of which nothing can be taken.
func (d *Decoder) Decode(body []byte, e Encoding, gzipped bool) (*Decoded, error) {
	limits := d.Limits.settled()
	if len(body) > limits.Body {
		return nil, refuse(TooLarge, "the request has %d bytes, the limit is %d: send smaller batches", len(body), limits.Body)
	}
	if gzipped {
		var err error
		if body, err = inflate(body, limits.Body); err != nil {
			return nil, err
		}
	}
	out := &Decoded{}
	return out, d.decode(out, body, e, limits)
}

func inflate(body []byte, limit int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, refuse(Malformed, "the body is not gzip, though its encoding says so")
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case len(plain) > limit:
		return nil, refuse(TooLarge, "the request has more than %d bytes after decompression: send smaller batches", limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, refuse(Truncated, "the gzip stream ends in the middle, after %d bytes of content", len(plain))
	case err != nil:
		return nil, refuse(Malformed, "the gzip stream is damaged after %d bytes of content", len(plain))
	}
	return plain, nil
}

// decode decodes a plain body into out, span by span.
func (d *Decoder) decode(out *Decoded, body []byte, e Encoding, limits Limits) error {
	survey, read := surveyProto, decodeProto
	if e == JSON {
		survey, read = surveyJSON, decodeJSON
	}
	spans, err := survey(body, limits)
	if err != nil {
		return err
	}
	k := keeper{d: d, out: &out.Counts, limits: limits}
	if e == Protobuf {
		out.Spans = slices.Grow(out.Spans, spans)
	}
	err = read(body, limits, k.block, func(s *span, ok bool) {
		switch {
		case !ok:
			out.Rejected++
			out.why("a field of the span has a wrong type or length (ids are 16 and 8 bytes; hex in JSON)")
		case empty(s.trace) || empty(s.id):
			out.Rejected++
			out.why("a span without a trace id or span id")
		default:
			out.Spans = append(out.Spans, genai.Span{Resource: k.resource, Scope: k.scope})
			k.span(&out.Spans[len(out.Spans)-1], s)
		}
	})
	if err == nil {
		out.Requests++
	}
	return err
}

func empty(id []byte) bool {
	for _, b := range id {
		if b != 0 {
			return false
		}
	}
	return true
}

// decodeProto reads a request that was surveyed: block for each scope of a resource, each for its spans, which are read into the same memory.
func decodeProto(body []byte, limits Limits, block func(resource []pair, scope, version []byte), each func(s *span, ok bool)) error {
	var s span
	eachField(body, func(n protowire.Number, rs []byte) bool {
		if n != fieldResourceSpans {
			return true
		}
		var resource []pair
		eachField(rs, func(n protowire.Number, r []byte) bool {
			if n == fieldResource {
				resource = attributesOf(r, fieldAttributes, limits)
			}
			return true
		})
		return eachField(rs, func(n protowire.Number, ss []byte) bool {
			if n != fieldScopeSpans {
				return true
			}
			var scope [3][]byte
			eachField(ss, func(n protowire.Number, b []byte) bool {
				return n != fieldScope || eachField(b, func(n protowire.Number, f []byte) bool {
					if n < 3 {
						scope[n] = f // name is 1, version 2
					}
					return true
				})
			})
			block(resource, scope[1], scope[2])
			return eachField(ss, func(n protowire.Number, b []byte) bool {
				if n == fieldSpan {
					each(&s, s.read(b, limits))
				}
				return true
			})
		})
	})
	return nil
}
