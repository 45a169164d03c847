package dialect

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// What of an OTLP trace export is needed here, as OTLP's JSON has it: ids in hexadecimal, 64-bit numbers as strings
// (opentelemetry-proto 1.x, docs/specification.md, "JSON Protobuf Encoding").
type (
	export struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes attributes `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope   `json:"scope"`
		Spans []*span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	span struct {
		TraceID    traceID    `json:"traceId"`
		SpanID     spanID     `json:"spanId"`
		Parent     spanID     `json:"parentSpanId"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Start      unixNano   `json:"startTimeUnixNano"`
		End        unixNano   `json:"endTimeUnixNano"`
		Attributes attributes `json:"attributes"`
		Status     status     `json:"status"`
	}
	status struct {
		Code int `json:"code,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	}
	attributes []attribute

	traceID  [16]byte
	spanID   [8]byte
	unixNano int64
)

// Kinds of a span, and the code of a status that is an error.
const (
	kindServer  = 2
	kindClient  = 3
	statusError = 2
)

func (a *attributes) put(key, kind string, value any) {
	*a = append(*a, attribute{key, map[string]any{kind: value}})
}

func (a *attributes) str(key, v string)            { a.put(key, "stringValue", v) }
func (a *attributes) number(key string, v int64)   { a.put(key, "intValue", strconv.FormatInt(v, 10)) }
func (a *attributes) double(key string, v float64) { a.put(key, "doubleValue", v) }
func (a *attributes) flag(key string, v bool)      { a.put(key, "boolValue", v) }

// MarshalText is the id in hexadecimal, empty where there is none.
func (t traceID) MarshalText() ([]byte, error) { return digits(t[:]), nil }

// MarshalText is the id in hexadecimal, empty where there is none.
func (s spanID) MarshalText() ([]byte, error) { return digits(s[:]), nil }

// MarshalText is the number in decimal.
func (u unixNano) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(u), 10), nil }

func digits(id []byte) []byte {
	for _, b := range id {
		if b != 0 {
			return hex.AppendEncode(nil, id)
		}
	}
	return nil
}

// line is an export on a line of its own.
func (e *export) line() []byte {
	text, err := json.Marshal(e)
	if err != nil { // a number that is none: no time of a recording is
		panic(err)
	}
	return append(text, '\n')
}
