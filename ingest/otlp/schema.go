package otlp

import "google.golang.org/protobuf/encoding/protowire"

// message is a type of OTLP, as far as it is read.
type message struct {
	name     string
	fields   map[string]*field // by its name in JSON
	alone    bool              // one that cannot be taken costs itself
	optional bool              // one that cannot be read is left out: what it describes is then somebody unknown's
}

type field struct {
	number   protowire.Number
	kind     fieldKind
	repeated bool
	message  *message
}

// fieldKind is how a field is written in JSON and in protobuf.
type fieldKind uint8

const (
	inMessage fieldKind = iota
	asText
	asHex    // bytes, in JSON as hex
	asBase64 // bytes
	asFixed  // fixed64
	asSigned // sfixed64
	asVarint // int64, uint64, uint32
	asZigzag // sint32
	asDouble
	asBool
	asEnum
)

func (k fieldKind) wire() protowire.Type {
	switch k {
	case asFixed, asSigned, asDouble:
		return protowire.Fixed64Type
	case asVarint, asZigzag, asBool, asEnum:
		return protowire.VarintType
	}
	return protowire.BytesType
}

var enums = map[string]uint64{"SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2, "SPAN_KIND_CLIENT": 3, "SPAN_KIND_PRODUCER": 4, "SPAN_KIND_CONSUMER": 5, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2,
	"AGGREGATION_TEMPORALITY_DELTA": 1, "AGGREGATION_TEMPORALITY_CUMULATIVE": 2}

func one(n protowire.Number, m *message) *field {
	return &field{number: n, kind: inMessage, message: m}
}
func many(n protowire.Number, m *message) *field {
	return &field{number: n, kind: inMessage, message: m, repeated: true}
}
func scalar(n protowire.Number, k fieldKind) *field { return &field{number: n, kind: k} }
func packed(n protowire.Number, k fieldKind) *field {
	return &field{number: n, kind: k, repeated: true}
}

type table = map[string]*field

var anyValue, keyValue = &message{name: "AnyValue"}, &message{name: "KeyValue"}

var resourceMessage = &message{name: "Resource", optional: true, fields: table{"attributes": many(fieldAttributes, keyValue)}}

var scopeMessage = &message{name: "InstrumentationScope", optional: true, fields: table{"name": scalar(1, asText), "version": scalar(2, asText)}}

var spanMessage = &message{name: "Span", alone: true, fields: table{
	"traceId": scalar(spanTrace, asHex), "spanId": scalar(spanID, asHex), "parentSpanId": scalar(spanParent, asHex), "traceState": scalar(spanState, asText), "name": scalar(spanName, asText),
	"kind": scalar(spanKind, asEnum), "startTimeUnixNano": scalar(spanStart, asFixed), "endTimeUnixNano": scalar(spanEnd, asFixed), "attributes": many(spanAttributes, keyValue),
	"droppedAttributesCount": scalar(spanDropped, asVarint),
	"events":                 many(spanEvents, &message{name: "Event", fields: table{"timeUnixNano": scalar(eventTime, asFixed), "name": scalar(eventName, asText), "attributes": many(eventAttributes, keyValue)}}),
	"status":                 one(spanStatus, &message{name: "Status", fields: table{"message": scalar(statusMessage, asText), "code": scalar(statusCode, asEnum)}}),
}}

var (
	tracesRequest  = request("ExportTraceServiceRequest", "resourceSpans", "scopeSpans", "spans", spanMessage)
	metricsRequest = request("ExportMetricsServiceRequest", "resourceMetrics", "scopeMetrics", "metrics", metricMessage)
	logsRequest    = request("ExportLogsServiceRequest", "resourceLogs", "scopeLogs", "logRecords", recordMessage)
)

// request is the type of a signal's request: they differ in names only.
func request(name, resources, scopes, items string, item *message) *message {
	scope := &message{name: "a scope's part", fields: table{"scope": one(fieldScope, scopeMessage), items: many(fieldItem, item)}}
	resource := &message{name: "a resource's part", fields: table{"resource": one(fieldResource, resourceMessage), scopes: many(fieldScopes, scope)}}
	return &message{name: name, fields: table{resources: many(fieldResources, resource)}}
}

func init() { // the two that hold each other
	anyValue.fields = table{"stringValue": scalar(anyString, asText), "boolValue": scalar(anyBool, asBool), "intValue": scalar(anyInt, asVarint), "doubleValue": scalar(anyDouble, asDouble),
		"bytesValue": scalar(anyBytes, asBase64), "arrayValue": one(anyArray, &message{name: "ArrayValue", fields: table{"values": many(elements, anyValue)}}),
		"kvlistValue": one(anyMap, &message{name: "KeyValueList", fields: table{"values": many(elements, keyValue)}})}
	keyValue.fields = table{"key": scalar(pairKey, asText), "value": one(pairValue, anyValue)}
}
