package server

import (
	"context"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/export"
)

var (
	_ api.Spanner = (*Local)(nil)
	_ api.Spanner = (*Server)(nil)
)

// Spans implements [api.Spanner].
func (s *Local) Spans(_ context.Context, q api.SpansQuery) (*api.Spans, error) {
	defer s.lock()()
	r, err := s.l.Find(q.ID)
	if err != nil {
		return nil, err
	}
	t, err := export.Spans(diagnose.Explain(s.l, r), export.Options{IDs: q.IDs})
	if err != nil {
		return nil, &api.InvalidArgument{Argument: "id", Value: q.ID, Problem: err.Error()}
	}
	// TracesData has the form of an ExportTraceServiceRequest, and needs no gRPC.
	b, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: export.Batch([]*export.Trace{t})})
	return &api.Spans{OTLP: b}, err
}

// Spans implements [api.Spanner]: from the hot period, else from the sealed ones.
func (s *Server) Spans(ctx context.Context, q api.SpansQuery) (*api.Spans, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	return ofRequest(ctx, s, q.ID, func(l *Local) (*api.Spans, error) { return l.Spans(ctx, q) })
}
