package receive

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/whylate/whylate/adapter/genai"
)

// A fault in a handler costs its request: the sender is told, it is counted, no place and no byte stays taken, and the next request is answered.
func TestAFaultCostsOneRequest(t *testing.T) {
	proto, _ := traceBodies(t, trace(2))
	faulty := true
	r := New(Sinks{Spans: func(context.Context, []genai.Span) error {
		if faulty {
			panic("of the sink")
		}
		return nil
	}}, Settings{Requests: 1, Decoders: 1})
	conn := dial(t, serveGRPC(t, r, nil))
	for range 3 {
		if _, err := call(t, conn, proto); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "of the sink") {
			t.Fatalf("by gRPC: %v", err)
		}
		if got := post(t, r.Handler(nil), "/v1/traces", proto, "Content-Type", protobufType); got.StatusCode != http.StatusInternalServerError {
			t.Fatalf("by HTTP: %v", got.Status)
		}
	}
	faulty = false
	if _, err := call(t, conn, proto); err != nil {
		t.Error(err)
	}
	if n := r.inFlight.Load(); n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
	n := int64(0)
	for _, f := range r.Refusals() {
		if f.Cause == causeFault {
			n += f.Count
		}
	}
	if n != 6 {
		t.Errorf("%d faults are counted, want 6", n)
	}
}

// Over TLS gRPC takes what it takes in the clear; who does not trust the certificate, or speaks in the clear, is not heard.
func TestTLS(t *testing.T) {
	issued := httptest.NewTLSServer(nil)
	issued.Close()
	pool := x509.NewCertPool()
	pool.AddCert(issued.Certificate())
	var s sink
	r := New(s.sinks(&book{}), Settings{})
	at := serveGRPC(t, r, &tls.Config{Certificates: issued.TLS.Certificates})
	proto, _ := traceBodies(t, trace(3))
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "example.com"})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := call(t, conn, proto); err != nil {
		t.Error(err)
	}
	stranger, err := grpc.NewClient(at, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"})))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for name, c := range map[string]*grpc.ClientConn{"no trust": stranger, "in the clear": dial(t, at)} {
		if _, err := call(t, c, proto); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(s.spans) != 3 {
		t.Errorf("%d spans, want 3", len(s.spans))
	}
}

func serveGRPC(t *testing.T, r *Receiver, c *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l, c, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}
