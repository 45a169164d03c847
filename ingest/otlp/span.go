package otlp

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// span is what is read of a span in either encoding, before anything is kept of it.
type span struct {
	trace, id, parent []byte
	state             []byte
	name              []byte
	kind, code        uint64
	message           []byte
	start, end        uint64
	dropped           uint64
	attributes        []pair
	surplus           int // attributes and events beyond the limit
	events            []event
}

type event struct {
	at         uint64
	name       []byte
	attributes []pair
}

// Fields of an Export…ServiceRequest and what is in it: the same numbers for every signal.
const (
	fieldResources  = 1
	fieldResource   = 1 // of ResourceSpans, ResourceMetrics, ResourceLogs
	fieldScopes     = 2
	fieldScope      = 1 // of ScopeSpans, …
	fieldItem       = 2 // a span, a metric, a record
	fieldAttributes = 1 // of Resource

	spanTrace, spanID, spanState, spanParent, spanName, spanKind            = 1, 2, 3, 4, 5, 6
	spanStart, spanEnd, spanAttributes, spanDropped, spanEvents, spanStatus = 7, 8, 9, 10, 11, 15
	eventTime, eventName, eventAttributes                                   = 1, 2, 3
	statusMessage, statusCode                                               = 2, 3
)

// walk reads a request that was surveyed: block for each scope of a resource that holds something, item for each span, metric or record.
func walk(body []byte, limits Limits, block func(resource []pair, scope, version []byte), item func([]byte)) {
	eachField(body, func(n protowire.Number, rs []byte) bool {
		if n != fieldResources {
			return true
		}
		var resource []pair
		read := false
		return eachField(rs, func(n protowire.Number, ss []byte) bool {
			if n != fieldScopes {
				return true
			}
			begun := false
			return eachField(ss, func(n protowire.Number, b []byte) bool {
				if n != fieldItem {
					return true
				}
				if !read {
					resource, read = resourceAttributes(rs, limits), true
				}
				if !begun {
					scope, version := scopeOf(ss)
					block(resource, scope, version)
					begun = true
				}
				item(b)
				return true
			})
		})
	})
}

func resourceAttributes(rs []byte, limits Limits) (pairs []pair) {
	eachField(rs, func(n protowire.Number, r []byte) bool {
		if n == fieldResource {
			pairs = attributesOf(r, fieldAttributes, limits)
		}
		return true
	})
	return pairs
}

func scopeOf(ss []byte) (name, version []byte) {
	eachField(ss, func(n protowire.Number, b []byte) bool {
		return n != fieldScope || eachField(b, func(n protowire.Number, f []byte) bool {
			switch n {
			case 1:
				name = f
			case 2:
				version = f
			}
			return true
		})
	})
	return name, version
}

// eachField calls f for every field of a message that has a length. It is false where the message is damaged or f says so.
func eachField(b []byte, f func(n protowire.Number, value []byte) bool) bool {
	return fields(b, f, func(protowire.Number, uint64) bool { return true })
}

// fields calls f for fields that have a length, and number for the others.
func fields(b []byte, f func(n protowire.Number, value []byte) bool, number func(n protowire.Number, v uint64) bool) bool {
	for len(b) > 0 {
		tag, used := varint(b)
		if used < 0 || tag < 1<<3 || tag > math.MaxUint32 {
			return false
		}
		b = b[used:]
		n := protowire.Number(tag >> 3)
		ok := true
		switch protowire.Type(tag & 7) {
		case protowire.BytesType:
			var size uint64
			if size, used = varint(b); used >= 0 {
				if size > uint64(len(b)-used) {
					return false
				}
				ok = f(n, b[used:used+int(size)])
				used += int(size)
			}
		case protowire.VarintType:
			var v uint64
			if v, used = varint(b); used >= 0 {
				ok = number(n, v)
			}
		case protowire.Fixed64Type:
			if used = 8; len(b) < used {
				return false
			}
			ok = number(n, binary.LittleEndian.Uint64(b))
		case protowire.Fixed32Type:
			if used = 4; len(b) < used {
				return false
			}
		default:
			return false // groups, which the protocol does not have
		}
		if used < 0 || !ok {
			return false
		}
		b = b[used:]
	}
	return true
}

// varint reads a number that is mostly one byte long: tags and lengths.
func varint(b []byte) (v uint64, used int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

// read fills a span from protobuf; its slices are used again. It is false for a damaged one.
func (s *span) read(b []byte, limits Limits) bool {
	*s = span{attributes: s.attributes[:0], events: s.events[:0]}
	return fields(b, func(n protowire.Number, f []byte) bool {
		ok := true
		switch n {
		case spanTrace:
			s.trace, ok = f, len(f) == 16 || len(f) == 0
		case spanID:
			s.id, ok = f, len(f) == 8 || len(f) == 0
		case spanParent:
			s.parent, ok = f, len(f) == 8 || len(f) == 0
		case spanState:
			s.state = f
		case spanName:
			s.name = f
		case spanAttributes:
			if len(s.attributes) >= limits.PerSpan {
				s.surplus++
				return true
			}
			var p pair
			p, ok = pairOf(f, 0)
			s.attributes = append(s.attributes, p)
		case spanEvents:
			if len(s.events) >= limits.events() {
				s.surplus++
				return true
			}
			var e event
			e, ok = eventOf(f, limits)
			s.events = append(s.events, e)
		case spanStatus:
			ok = fields(f, func(n protowire.Number, f []byte) bool {
				if n == statusMessage {
					s.message = f
				}
				return true
			}, func(n protowire.Number, v uint64) bool {
				if n == statusCode {
					s.code = v
				}
				return true
			})
		}
		return ok
	}, func(n protowire.Number, v uint64) bool {
		switch n {
		case spanKind:
			s.kind = v
		case spanStart:
			s.start = v
		case spanEnd:
			s.end = v
		case spanDropped:
			s.dropped = v
		}
		return true
	})
}

func eventOf(b []byte, limits Limits) (e event, ok bool) {
	valid := true
	whole := fields(b, func(n protowire.Number, f []byte) bool {
		switch n {
		case eventName:
			e.name = f
		case eventAttributes:
			if len(e.attributes) < limits.PerSpan {
				var p pair
				p, valid = pairOf(f, 0)
				e.attributes = append(e.attributes, p)
			}
		}
		return valid
	}, func(n protowire.Number, v uint64) bool {
		if n == eventTime {
			e.at = v
		}
		return true
	})
	return e, whole && valid
}

// attributesOf reads the attributes in a message that has them in one field: a resource, a scope.
func attributesOf(b []byte, field protowire.Number, limits Limits) (pairs []pair) {
	eachField(b, func(n protowire.Number, f []byte) bool {
		if n == field && len(pairs) < limits.PerSpan {
			if p, ok := pairOf(f, 0); ok {
				pairs = append(pairs, p)
			}
		}
		return true
	})
	return pairs
}
