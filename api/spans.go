package api

import "context"

// Spanner is a [Service] that gives requests as spans.
type Spanner interface {
	// Spans gives a request that is over as spans.
	Spans(context.Context, SpansQuery) (*Spans, error)
}

// Spans is one request as spans.
type Spans struct {
	OTLP []byte `json:"otlp_protobuf"` // an ExportTraceServiceRequest, in base64
}

// SpansQuery names a request by any id it has. IDs says whether the spans may carry ids and sentences that may hold some.
type SpansQuery struct {
	ID  string
	IDs bool
}
