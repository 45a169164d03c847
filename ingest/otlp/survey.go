package otlp

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// A body is surveyed before it is decoded: two bytes of it can become a hundred of memory (an empty span, an empty attribute), and nesting is
// not bounded by its size. The survey reads it once and allocates nothing.

// surveyProto counts the spans; what is in them is read one by one and costs nothing that is not kept.
func surveyProto(body []byte, limits Limits) (spans int, err error) {
	whole := eachField(body, func(n protowire.Number, block []byte) bool {
		return n != fieldResourceSpans || eachField(block, func(n protowire.Number, block []byte) bool {
			return n != fieldScopeSpans || eachField(block, func(n protowire.Number, _ []byte) bool {
				if n == fieldSpan {
					spans++
				}
				return spans <= limits.Spans
			})
		})
	})
	if spans > limits.Spans {
		return spans, tooMany(limits)
	}
	if !whole {
		return spans, refuse(Malformed, "protobuf that ends in the middle of a field or has a damaged tag")
	}
	return spans, nil
}

func tooMany(limits Limits) error {
	return refuse(TooMany, "more than %d spans, or %d objects within spans, in one request: send smaller batches", limits.Spans, limits.Objects)
}

// surveyJSON bounds depth and number of objects. In a request a span is at depth 7; what is above costs as much as a span, what is below as
// much as an attribute.
func surveyJSON(body []byte, limits Limits) (spans int, err error) {
	const spanDepth = 7
	inside, depth, text := 0, 0, false
	for i := 0; i < len(body); i++ {
		c := body[i]
		if text {
			switch c {
			case '\\':
				i++
			case '"':
				text = false
			}
			continue
		}
		switch c {
		case '"':
			text = true
		case '{', '[':
			if depth++; depth > limits.Depth {
				return spans, refuse(TooDeep, "JSON nested more than %d deep at byte %d", limits.Depth, i)
			}
			if depth <= spanDepth {
				spans++
			} else {
				inside++
			}
			if spans > limits.Spans || inside > limits.Objects {
				return spans, tooMany(limits)
			}
		case '}', ']':
			if depth--; depth == 0 && len(bytes.TrimSpace(body[i+1:])) > 0 {
				return spans, refuse(Malformed, "something follows the request at byte %d: one request a line, or one a body", i+1)
			}
		}
	}
	if text || depth > 0 {
		return spans, refuse(Truncated, "JSON that ends in the middle, after %d bytes", len(body))
	}
	return spans, nil
}

// documents cuts JSON values that follow each other.
func documents(body []byte) (out [][]byte) {
	for len(bytes.TrimSpace(body)) > 0 {
		end := len(body)
		depth, text := 0, false
		for i := 0; i < end; i++ {
			switch c := body[i]; {
			case text && c == '\\':
				i++
			case c == '"':
				text = !text
			case text:
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				if depth--; depth <= 0 {
					end = i + 1
				}
			}
		}
		out = append(out, body[:end])
		body = body[end:]
	}
	return out
}
