package export

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
)

// SchemaURL says which version of the semantic conventions the names are of: the last one that defines gen_ai in the core.
const SchemaURL = semconv.SchemaURL

// Names that engines give their own latencies, in seconds: no convention has them yet, and readers of engines' spans know them.
const (
	latencyFirstToken = attribute.Key("gen_ai.latency.time_to_first_token")
	latencyE2E        = attribute.Key("gen_ai.latency.e2e")
	latencyQueue      = attribute.Key("gen_ai.latency.time_in_queue")
	latencyPrefill    = attribute.Key("gen_ai.latency.time_in_model_prefill")
	latencyDecode     = attribute.Key("gen_ai.latency.time_in_model_decode")
	requestID         = attribute.Key("gen_ai.request.id")
)

// attributes is a list of attributes under construction.
type attributes []*commonpb.KeyValue

func (a *attributes) text(k attribute.Key, v string) {
	if v != "" {
		*a = append(*a, &commonpb.KeyValue{Key: string(k), Value: textValue(v)})
	}
}

func (a *attributes) texts(k attribute.Key, vs []string) {
	if len(vs) == 0 {
		return
	}
	list := &commonpb.ArrayValue{}
	for _, v := range vs {
		list.Values = append(list.Values, textValue(v))
	}
	*a = append(*a, &commonpb.KeyValue{Key: string(k), Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}})
}

func (a *attributes) number(k attribute.Key, v int64) {
	*a = append(*a, &commonpb.KeyValue{Key: string(k), Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v}}})
}

// some is a number whose 0 means that it is not known.
func (a *attributes) some(k attribute.Key, v int64) {
	if v != 0 {
		a.number(k, v)
	}
}

func (a *attributes) float(k attribute.Key, v float64) {
	*a = append(*a, &commonpb.KeyValue{Key: string(k), Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}}})
}

func (a *attributes) flag(k attribute.Key, v bool) {
	*a = append(*a, &commonpb.KeyValue{Key: string(k), Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}})
}

// millis and seconds write nanoseconds.
func (a *attributes) millis(k attribute.Key, ns int64)  { a.float(k, float64(ns)/1e6) }
func (a *attributes) seconds(k attribute.Key, ns int64) { a.float(k, float64(ns)/1e9) }

func textValue(v string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: v}}
}
