// Package export lets requests leave as OTLP spans: one tree a request, from the front end to the last byte, whose parts are those of
// the account and sum to it exactly. Names are those of the OpenTelemetry semantic conventions where they have one (gen_ai of the version
// in [SchemaURL]), and whylate.* where they have none. Content never leaves, and ids only where [Options] allow.
//
// [Spans] makes the tree of one request, pure. [Exporter] chooses, thins, queues and sends, and holds nobody up. [Dial] makes the client,
// which is OpenTelemetry's own.
package export
