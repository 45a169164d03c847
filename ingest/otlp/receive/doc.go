// Package receive takes in OTLP over gRPC and HTTP: traces, metrics and logs. Each request is decoded once, by [otlp.Decoder], which keeps no
// content; what is left goes to the sinks, and a request is answered when its sink says that it is kept.
//
// A sender never waits for another: who comes while too much is under way is told at once to come later. What one request can cost is bounded by
// [otlp.Limits], what all can cost by [Settings].
package receive
