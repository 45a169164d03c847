package otlp

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// A body is surveyed before it is decoded: two bytes of it can become a hundred of memory (an empty span). The survey reads it once and
// allocates nothing.

// surveySpans counts the spans; what is in them is read one by one and costs nothing that is not kept.
func surveySpans(body []byte, limits Limits) (spans int, err error) {
	return survey(body, limits, func([]byte) int { return 1 })
}

// survey adds up what the items of a request weigh.
func survey(body []byte, limits Limits, weigh func(item []byte) int) (sum int, err error) {
	whole := eachField(body, func(n protowire.Number, block []byte) bool {
		return n != fieldResources || eachField(block, func(n protowire.Number, block []byte) bool {
			return n != fieldScopes || eachField(block, func(n protowire.Number, item []byte) bool {
				if n == fieldItem {
					sum += weigh(item)
				}
				return sum <= limits.Spans
			})
		})
	})
	if sum > limits.Spans {
		return sum, refuse(TooMany, "more than %d records in one request: send smaller batches", limits.Spans)
	}
	if !whole {
		return sum, refuse(Malformed, "protobuf that ends in the middle of a field or has a damaged tag")
	}
	return sum, nil
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
