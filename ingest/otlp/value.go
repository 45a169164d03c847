package otlp

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// value is an attribute's value. Texts are views of the request's body: what is kept is copied, so that no content outlives its request.
type value struct {
	kind   kind
	text   []byte // of texts and bytes
	number int64  // of integers; 0 or 1 of booleans
	double float64
	list   []value
	pairs  []pair
}

type kind uint8

const (
	none kind = iota
	textual
	boolean
	integer
	double
	listed
	paired
	binaryBytes
)

type pair struct {
	key   []byte
	value value
}

// Fields of AnyValue, ArrayValue, KeyValueList and KeyValue.
const (
	anyString = 1
	anyBool   = 2
	anyInt    = 3
	anyDouble = 4
	anyArray  = 5
	anyMap    = 6
	anyBytes  = 7
	elements  = 1
	pairKey   = 1
	pairValue = 2
	maxNested = 64
)

// valueOf reads an AnyValue. ok is false where it is damaged or nested too deep.
func valueOf(b []byte, depth int) (v value, ok bool) {
	if depth > maxNested {
		return v, false
	}
	for len(b) > 0 {
		n, kind, used := protowire.ConsumeTag(b)
		if used < 0 {
			return v, false
		}
		b = b[used:]
		size := protowire.ConsumeFieldValue(n, kind, b)
		if size < 0 || kind == protowire.StartGroupType {
			return v, false
		}
		field := b[:size]
		b = b[size:]
		switch {
		case kind == protowire.BytesType:
			inner, _ := protowire.ConsumeBytes(field)
			if v, ok = structured(v, n, inner, depth); !ok {
				return v, false
			}
		case kind == protowire.VarintType && (n == anyInt || n == anyBool):
			u, _ := protowire.ConsumeVarint(field)
			v = value{kind: integer, number: int64(u)}
			if n == anyBool {
				v.kind = boolean
			}
		case kind == protowire.Fixed64Type && n == anyDouble:
			v = value{kind: double, double: math.Float64frombits(binary.LittleEndian.Uint64(field))}
		case n >= anyString && n <= anyBytes:
			return v, false // a wire type that the field does not have
		}
	}
	return v, true
}

func structured(v value, n protowire.Number, inner []byte, depth int) (value, bool) {
	switch n {
	case anyString:
		return value{kind: textual, text: inner}, true
	case anyBytes:
		return value{kind: binaryBytes, text: inner}, true
	case anyArray:
		v = value{kind: listed}
		whole := eachField(inner, func(n protowire.Number, b []byte) bool {
			e, ok := valueOf(b, depth+1)
			v.list = append(v.list, e)
			return ok && n == elements
		})
		return v, whole
	case anyMap:
		v = value{kind: paired}
		whole := eachField(inner, func(n protowire.Number, b []byte) bool {
			p, ok := pairOf(b, depth+1)
			v.pairs = append(v.pairs, p)
			return ok && n == elements
		})
		return v, whole
	case anyBool, anyInt, anyDouble:
		return v, false
	}
	return v, true
}

// pairOf reads a KeyValue.
func pairOf(b []byte, depth int) (p pair, ok bool) {
	valid := true
	whole := eachField(b, func(n protowire.Number, f []byte) bool {
		switch n {
		case pairKey:
			p.key = f
		case pairValue:
			p.value, valid = valueOf(f, depth)
		}
		return valid
	})
	return p, whole && valid
}
