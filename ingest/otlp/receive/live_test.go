package receive

import (
	"context"
	"net"
	"os"
	"os/signal"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/whylate/whylate/adapter/genai"
)

// tapped keeps the messages of a call as they came.
type tapped struct {
	grpc.ServerStream
	keep func([]byte)
}

func (t tapped) RecvMsg(m any) error {
	err := t.ServerStream.RecvMsg(m)
	if b, ok := m.(*[]byte); ok && err == nil {
		t.keep(*b)
	}
	return err
}

// With WHYLATE_OTLP_CAPTURE=FILE it listens on WHYLATE_OTLP_LISTEN until it is interrupted, takes in what real senders send, and writes their
// requests to FILE, each behind its length. That is how the fixtures of testdata were made.
func TestCapture(t *testing.T) {
	file := os.Getenv("WHYLATE_OTLP_CAPTURE")
	if file == "" {
		t.Skip("WHYLATE_OTLP_CAPTURE names no file")
	}
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	l, err := net.Listen("tcp", os.Getenv("WHYLATE_OTLP_LISTEN"))
	if err != nil {
		t.Fatal(err)
	}
	r := New(Sinks{Spans: func(_ context.Context, spans []genai.Span) error {
		for _, s := range spans {
			t.Logf("%s %s %d attributes", s.Scope.Name, s.Name, len(s.Attrs))
		}
		return nil
	}}, Settings{})
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	err = r.serveGRPC(ctx, l, nil, nil, grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return h(srv, tapped{s, func(b []byte) { out.Write(protowire.AppendBytes(nil, b)) }})
	}))
	t.Log(err, r.Refusals())
}
