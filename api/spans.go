package api

import "context"

// Spanner is a [Service] that gives requests as spans.
type Spanner interface {
	// Spans gives a request that is over as OTLP protobuf: an ExportTraceServiceRequest.
	Spans(context.Context, SpansQuery) ([]byte, error)
}

// SpansQuery names a request by any id it has. IDs says whether the spans may carry ids and sentences that may hold some.
type SpansQuery struct {
	ID  string
	IDs bool
}
