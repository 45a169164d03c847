package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
)

// JSON of OTLP: ids in hex, 64-bit integers as text or numbers, enumerations as numbers (or, from writers that know no better, by name). Each
// span is read by itself, so that one that cannot be taken costs itself.

type jsonRequest struct {
	ResourceSpans []struct {
		Resource   json.RawMessage `json:"resource"`
		ScopeSpans []struct {
			Scope json.RawMessage   `json:"scope"`
			Spans []json.RawMessage `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

type jsonSpan struct {
	TraceID    hexID    `json:"traceId"`
	SpanID     hexID    `json:"spanId"`
	Parent     hexID    `json:"parentSpanId"`
	State      string   `json:"traceState"`
	Name       string   `json:"name"`
	Kind       enum     `json:"kind"`
	Start      unsigned `json:"startTimeUnixNano"`
	End        unsigned `json:"endTimeUnixNano"`
	Dropped    unsigned `json:"droppedAttributesCount"`
	Attributes pairs    `json:"attributes"`
	Events     []struct {
		At         unsigned `json:"timeUnixNano"`
		Name       string   `json:"name"`
		Attributes pairs    `json:"attributes"`
	} `json:"events"`
	Status struct {
		Code    enum   `json:"code"`
		Message string `json:"message"`
	} `json:"status"`
}

type pairs []struct {
	Key   string    `json:"key"`
	Value jsonValue `json:"value"`
}

type jsonValue struct {
	String *string `json:"stringValue"`
	Bool   *bool   `json:"boolValue"`
	Int    *signed `json:"intValue"`
	Double *real   `json:"doubleValue"`
	Bytes  *string `json:"bytesValue"`
	Array  *struct {
		Values []jsonValue `json:"values"`
	} `json:"arrayValue"`
	Map *struct {
		Values pairs `json:"values"`
	} `json:"kvlistValue"`
}

// Numbers that may come as text. Their errors are said by where they are caught, without the value.
type (
	hexID    []byte
	unsigned uint64
	signed   int64
	real     float64
	enum     uint64
)

var errJSON = errors.New("a value of another type")

func bare(b []byte) string { return string(bytes.Trim(b, `"`)) }

func (h *hexID) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	id, err := hex.DecodeString(bare(b))
	if err != nil || b[0] != '"' {
		return errJSON
	}
	*h = id
	return nil
}

func (u *unsigned) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	n, err := strconv.ParseUint(bare(b), 10, 64)
	if err != nil {
		return errJSON
	}
	*u = unsigned(n)
	return nil
}

func (s *signed) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseInt(bare(b), 10, 64)
	if err != nil {
		return errJSON
	}
	*s = signed(n)
	return nil
}

func (r *real) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseFloat(bare(b), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return errJSON
	}
	*r = real(n)
	return nil
}

var enums = map[string]enum{"SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2, "SPAN_KIND_CLIENT": 3, "SPAN_KIND_PRODUCER": 4, "SPAN_KIND_CONSUMER": 5, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}

func (e *enum) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseUint(bare(b), 10, 8); err == nil {
		*e = enum(n)
	} else {
		*e = enums[bare(b)]
	}
	return nil
}

// decodeJSON reads a request; each span comes into s.
func decodeJSON(body []byte, limits Limits, block func(resource []pair, scope, version []byte), each func(s *span, ok bool)) error {
	var r jsonRequest
	if err := json.Unmarshal(body, &r); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return refuse(Malformed, "no JSON from byte %d on", syntax.Offset)
		}
		return refuse(Malformed, "JSON that is no ExportTraceServiceRequest")
	}
	for _, rs := range r.ResourceSpans {
		var resource struct{ Attributes pairs }
		lenient(rs.Resource, &resource)
		for _, ss := range rs.ScopeSpans {
			var scope struct{ Name, Version string }
			lenient(ss.Scope, &scope)
			block(resource.Attributes.plain(limits.PerSpan), []byte(scope.Name), []byte(scope.Version))
			for _, raw := range ss.Spans {
				var j jsonSpan
				ok := json.Unmarshal(raw, &j) == nil && (len(j.TraceID) == 16 || len(j.TraceID) == 0) && (len(j.SpanID) == 8 || len(j.SpanID) == 0) && (len(j.Parent) == 8 || len(j.Parent) == 0)
				each(j.plain(limits), ok)
			}
		}
	}
	return nil
}

// lenient reads what can be read: spans of a resource or scope that cannot be are spans of somebody unknown.
func lenient(raw json.RawMessage, into any) {
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, into)
	}
}

func (j *jsonSpan) plain(limits Limits) *span {
	s := &span{trace: j.TraceID, id: j.SpanID, parent: j.Parent, state: []byte(j.State), name: []byte(j.Name), kind: uint64(j.Kind), code: uint64(j.Status.Code), message: []byte(j.Status.Message),
		start: uint64(j.Start), end: uint64(j.End), dropped: uint64(j.Dropped), attributes: j.Attributes.plain(limits.PerSpan)}
	s.surplus = len(j.Attributes) - len(s.attributes)
	for _, e := range j.Events {
		if len(s.events) >= limits.events() {
			s.surplus++
			continue
		}
		s.events = append(s.events, event{uint64(e.At), []byte(e.Name), e.Attributes.plain(limits.PerSpan)})
	}
	return s
}

func (p pairs) plain(limit int) []pair {
	out := make([]pair, 0, min(len(p), limit))
	for _, kv := range p[:min(len(p), limit)] {
		out = append(out, pair{[]byte(kv.Key), kv.Value.plain()})
	}
	return out
}

func (v jsonValue) plain() (out value) {
	switch {
	case v.String != nil:
		return value{kind: textual, text: []byte(*v.String)}
	case v.Bool != nil:
		if *v.Bool {
			out.number = 1
		}
		out.kind = boolean
	case v.Int != nil:
		return value{kind: integer, number: int64(*v.Int)}
	case v.Double != nil:
		return value{kind: double, double: float64(*v.Double)}
	case v.Bytes != nil:
		return value{kind: binaryBytes, text: make([]byte, base64.StdEncoding.DecodedLen(len(*v.Bytes)))}
	case v.Array != nil:
		out.kind = listed
		for _, e := range v.Array.Values {
			out.list = append(out.list, e.plain())
		}
	case v.Map != nil:
		out.kind = paired
		for _, kv := range v.Map.Values {
			out.pairs = append(out.pairs, pair{[]byte(kv.Key), kv.Value.plain()})
		}
	}
	return out
}
