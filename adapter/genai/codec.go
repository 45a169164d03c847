package genai

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Spans are kept as they are mapped: identity, times and the attributes of the allow list, no content. Texts, resources and scopes are written
// once a batch; times are differences. The format is docs/formats/spans.md.

// codecVersion is the first byte of a batch. A newer one is refused by name.
const codecVersion = 1

// What may follow in an encoded span, by bit.
const (
	spanNewTrace = 1 << iota // another trace than the span before
	spanHasParent
	spanHasThreshold
	spanHasEvents
	spanHasContent
	spanHasDropped
)

// ErrEncoding is why a batch of spans cannot be read.
var ErrEncoding = errors.New("no batch of spans")

// AppendSpans appends the encoding of a batch to dst.
func AppendSpans(dst []byte, spans []Span) []byte {
	e := &encoder{texts: make(map[string]uint64, 64), resources: map[Resource]uint64{}, scopes: map[Scope]uint64{}}
	for i := range spans {
		e.span(&spans[i])
	}
	dst = append(dst, codecVersion)
	dst = binary.AppendUvarint(dst, uint64(len(e.texts)))
	dst = append(dst, e.textBytes...)
	dst = binary.AppendUvarint(dst, uint64(len(e.resources)))
	dst = append(dst, e.resourceBytes...)
	dst = binary.AppendUvarint(dst, uint64(len(e.scopes)))
	dst = append(dst, e.scopeBytes...)
	dst = binary.AppendUvarint(dst, uint64(len(spans)))
	return append(dst, e.out...)
}

type encoder struct {
	texts                                     map[string]uint64
	resources                                 map[Resource]uint64
	scopes                                    map[Scope]uint64
	textBytes, resourceBytes, scopeBytes, out []byte

	trace        TraceID
	start        int64
	lastResource *Resource // most spans have the one of the span before
	lastScope    *Scope
	resource     uint64
	scope        uint64
}

func (e *encoder) text(s string) uint64 {
	n, ok := e.texts[s]
	if !ok {
		n = uint64(len(e.texts))
		e.texts[s] = n
		e.textBytes = binary.AppendUvarint(e.textBytes, uint64(len(s)))
		e.textBytes = append(e.textBytes, s...)
	}
	return n
}

func (e *encoder) origin(s *Span) {
	if s.Resource != e.lastResource {
		e.lastResource = s.Resource
		n, ok := e.resources[*s.Resource]
		if !ok {
			n = uint64(len(e.resources))
			e.resources[*s.Resource] = n
			for _, t := range s.Resource.texts() {
				e.resourceBytes = binary.AppendUvarint(e.resourceBytes, e.text(*t))
			}
		}
		e.resource = n
	}
	if s.Scope != e.lastScope {
		e.lastScope = s.Scope
		n, ok := e.scopes[*s.Scope]
		if !ok {
			n = uint64(len(e.scopes))
			e.scopes[*s.Scope] = n
			e.scopeBytes = binary.AppendUvarint(e.scopeBytes, e.text(s.Scope.Name))
			e.scopeBytes = binary.AppendUvarint(e.scopeBytes, e.text(s.Scope.Version))
		}
		e.scope = n
	}
}

// texts are the fields of a resource in the order in which they are written.
func (r *Resource) texts() [7]*string {
	return [7]*string{&r.Service, &r.Instance, &r.Host, &r.Pod, &r.Namespace, &r.Process, &r.Module}
}

// counts are the numbers of a content in the order in which they are written.
func (c *Content) counts() [8]*int {
	return [8]*int{&c.Attributes, &c.Truncated, &c.Oversized, &c.Roles.System, &c.Roles.User, &c.Roles.Assistant, &c.Roles.Tool, &c.Roles.Other}
}

func (e *encoder) span(s *Span) {
	e.origin(s)
	var flags byte
	for _, f := range []struct {
		is  bool
		bit byte
	}{{s.Trace != e.trace || len(e.out) == 0, spanNewTrace}, {s.Parent != SpanID{}, spanHasParent}, {s.Threshold.Known, spanHasThreshold},
		{len(s.Events) > 0, spanHasEvents}, {s.Content != nil, spanHasContent}, {s.Dropped > 0, spanHasDropped}} {
		if f.is {
			flags |= f.bit
		}
	}
	b := append(e.out, flags)
	if flags&spanNewTrace != 0 {
		b = append(b, s.Trace[:]...)
		e.trace = s.Trace
	}
	b = append(b, s.ID[:]...)
	if flags&spanHasParent != 0 {
		b = append(b, s.Parent[:]...)
	}
	b = binary.AppendUvarint(b, e.text(s.Name))
	b = append(b, byte(s.Kind), byte(s.Status))
	b = binary.AppendUvarint(b, e.resource)
	b = binary.AppendUvarint(b, e.scope)
	b = binary.AppendVarint(b, s.Start-e.start)
	e.start = s.Start
	b = binary.AppendVarint(b, s.End-s.Start)
	if flags&spanHasThreshold != 0 {
		b = binary.AppendUvarint(b, s.Threshold.T)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Attrs)))
	for i := range s.Attrs {
		a := &s.Attrs[i]
		key := e.text(a.Name.Key) << 1
		if a.Name.Unit == Ident {
			b = binary.AppendUvarint(b, key|1)
			b = binary.AppendUvarint(b, e.text(a.Text))
		} else {
			b = binary.AppendUvarint(b, key)
			b = binary.AppendVarint(b, a.Number)
		}
	}
	if flags&spanHasEvents != 0 {
		b = binary.AppendUvarint(b, uint64(len(s.Events)))
		for _, ev := range s.Events {
			b = binary.AppendUvarint(b, e.text(ev.Name))
			b = binary.AppendVarint(b, ev.At-s.Start)
			b = binary.AppendUvarint(b, e.text(ev.BID))
			b = binary.AppendUvarint(b, e.text(ev.Mode))
			b = binary.AppendVarint(b, ev.Size)
		}
	}
	if flags&spanHasContent != 0 {
		b = binary.AppendVarint(b, s.Content.Bytes)
		for _, n := range s.Content.counts() {
			b = binary.AppendVarint(b, int64(*n))
		}
	}
	if flags&spanHasDropped != 0 {
		b = binary.AppendUvarint(b, uint64(s.Dropped))
	}
	e.out = b
}

// DecodeSpans reads a batch. Zeros may follow it. An attribute that this program does not know is left out.
func DecodeSpans(b []byte) ([]Span, error) {
	d := &decoder{b: b}
	if v := d.byte(); d.err == nil && v != codecVersion {
		return nil, fmt.Errorf("%w: version %d, this whylate reads %d; open it with the whylate that wrote it", ErrEncoding, v, codecVersion)
	}
	d.texts = make([]string, d.count(1))
	for i := range d.texts {
		d.texts[i] = string(d.bytes(d.uvarint()))
	}
	resources := make([]Resource, d.count(6))
	for i := range resources {
		for _, t := range resources[i].texts() {
			*t = d.text()
		}
	}
	scopes := make([]Scope, d.count(2))
	for i := range scopes {
		scopes[i] = Scope{d.text(), d.text()}
	}
	spans := make([]Span, d.count(leastSpan))
	var trace TraceID
	var start int64
	for i := range spans {
		s := &spans[i]
		d.span(s, &trace, &start, resources, scopes)
		if d.err != nil {
			return nil, fmt.Errorf("%w: span %d of %d: %w", ErrEncoding, i, len(spans), d.err)
		}
	}
	if d.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEncoding, d.err)
	}
	return spans, nil
}

// leastSpan is the length of the shortest span: a batch cannot claim more of them than it has bytes for.
const leastSpan = 1 + 8 + 1 + 2 + 1 + 1 + 1 + 1 + 1

type decoder struct {
	b     []byte
	texts []string
	err   error
}

var (
	errShort = errors.New("it ends too early")
	errIndex = errors.New("it points at what is not there")
)

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count is a number of things that take at least so many bytes each.
func (d *decoder) count(least uint64) uint64 {
	n := d.uvarint()
	if n > uint64(len(d.b))/least {
		d.fail(errShort)
		return 0
	}
	return n
}

func (d *decoder) text() string { return d.textAt(d.uvarint()) }

func (d *decoder) textAt(i uint64) string {
	if i >= uint64(len(d.texts)) {
		d.fail(errIndex)
		return ""
	}
	return d.texts[i]
}

func (d *decoder) span(s *Span, trace *TraceID, start *int64, resources []Resource, scopes []Scope) {
	flags := d.byte()
	if flags&spanNewTrace != 0 {
		copy(trace[:], d.bytes(16))
	}
	s.Trace = *trace
	copy(s.ID[:], d.bytes(8))
	if flags&spanHasParent != 0 {
		copy(s.Parent[:], d.bytes(8))
	}
	s.Name = d.text()
	s.Kind, s.Status = Kind(d.byte()), Status(d.byte())
	r, c := d.uvarint(), d.uvarint()
	if r >= uint64(len(resources)) || c >= uint64(len(scopes)) {
		d.fail(errIndex)
		return
	}
	s.Resource, s.Scope = &resources[r], &scopes[c]
	*start += d.varint()
	s.Start = *start
	s.End = s.Start + d.varint()
	if flags&spanHasThreshold != 0 {
		s.Threshold = Threshold{d.uvarint(), true}
		if s.Threshold.T >= 1<<56 {
			d.fail(errIndex)
			return
		}
	}
	if n := d.count(2); n > 0 {
		s.Attrs = make([]Attr, 0, n)
		for range n {
			d.attr(s)
		}
		if len(s.Attrs) == 0 { // none that this program knows
			s.Attrs = nil
		}
	}
	if flags&spanHasEvents != 0 {
		for range d.count(5) {
			s.Events = append(s.Events, Event{d.text(), s.Start + d.varint(), d.text(), d.text(), d.varint()})
		}
	}
	if flags&spanHasContent != 0 {
		s.Content = &Content{Bytes: d.varint()}
		for _, n := range s.Content.counts() {
			*n = int(d.varint())
		}
	}
	if flags&spanHasDropped != 0 {
		s.Dropped = uint32(d.uvarint())
	}
}

func (d *decoder) attr(s *Span) {
	key := d.uvarint()
	name := Named(d.textAt(key >> 1))
	var number int64
	text := ""
	if key&1 != 0 {
		text = d.text()
	} else {
		number = d.varint()
	}
	if name != nil && (name.Unit == Ident) == (key&1 != 0) {
		s.set(name, number, text)
	}
}
