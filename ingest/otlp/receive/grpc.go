package receive

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // senders compress
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whylate/whylate/ingest/otlp"
)

// Serve answers OTLP over gRPC on l until ctx ends. A nil tlsConfig serves in the clear.
func (r *Receiver) Serve(ctx context.Context, l net.Listener, tlsConfig *tls.Config, allow Allow) error {
	return r.serveGRPC(ctx, l, tlsConfig, allow)
}

func (r *Receiver) serveGRPC(ctx context.Context, l net.Listener, tlsConfig *tls.Config, allow Allow, opts ...grpc.ServerOption) error {
	opts = append(opts,
		grpc.ForceServerCodecV2(raw{}),
		grpc.MaxRecvMsgSize(r.set.Limits.Body), // after decompression as well
		grpc.MaxConcurrentStreams(64),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 15 * time.Minute, Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	if tlsConfig != nil {
		tlsConfig = tlsConfig.Clone()
		tlsConfig.NextProtos = []string{"h2"}
		opts = append(opts, grpc.Creds(credentials.NewTLS(tlsConfig)))
	}
	s := grpc.NewServer(opts...)
	for name, signal := range services {
		s.RegisterService(r.service(name, signal, allow), r)
	}
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, s.Stop)
		s.GracefulStop()
		timer.Stop()
	})
	defer stop()
	err := s.Serve(netutil.LimitListener(l, r.set.Connections))
	if ctx.Err() != nil {
		s.GracefulStop() // waits for what the other began
		return nil
	}
	return err
}

// grace is how long requests that are under way may take when the server stops.
const grace = 5 * time.Second

var services = map[string]Signal{
	"opentelemetry.proto.collector.trace.v1.TraceService":     Traces,
	"opentelemetry.proto.collector.metrics.v1.MetricsService": Metrics,
	"opentelemetry.proto.collector.logs.v1.LogsService":       Logs,
}

// service has one call, Export. It is declared as a stream, which on the wire is the same, so that who may send and whether there is room is
// decided before the message is read.
func (r *Receiver) service(name string, s Signal, allow Allow) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{StreamName: "Export", Handler: func(_ any, call grpc.ServerStream) error {
		a, f := r.export(call, s, allow)
		if f != nil {
			r.stats.refuse(s, GRPC, f, r.set.Now())
			return f.rpc().Err()
		}
		b := a.encode(s, otlp.Protobuf)
		return call.SendMsg(&b)
	}}}}
}

func (r *Receiver) export(call grpc.ServerStream, s Signal, allow Allow) (_ answer, f *failure) {
	defer r.survive(s, GRPC, &f)
	if allow != nil {
		header := ""
		if md, ok := metadata.FromIncomingContext(call.Context()); ok && len(md.Get("authorization")) > 0 {
			header = md.Get("authorization")[0]
		}
		if err := allow(header); err != nil {
			return answer{}, &failure{code: codes.Unauthenticated, cause: causeToken, text: err.Error()}
		}
	}
	if f := r.ready(s); f != nil {
		return answer{}, f
	}
	leave, f := r.enter()
	if f != nil {
		return answer{}, f
	}
	defer leave()
	var b []byte
	if err := call.RecvMsg(&b); err != nil {
		return answer{}, unread(err)
	}
	if f := r.reserve(int64(len(b))); f != nil {
		return answer{}, f
	}
	defer r.release(int64(len(b)))
	return r.take(call.Context(), s, GRPC, body{bytes: b})
}

// unread is the failure of a message that gRPC itself did not take.
func unread(err error) *failure {
	s := status.Convert(err)
	switch s.Code() {
	case codes.ResourceExhausted:
		return &failure{code: codes.ResourceExhausted, cause: string(otlp.TooLarge), text: "the request is larger than this server takes: send smaller batches"}
	case codes.Unimplemented:
		return &failure{code: codes.Unimplemented, cause: causeEncoding, text: "the message is compressed with something else than gzip"}
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return &failure{code: s.Code(), cause: causeCancelled, text: "the request was given up before it was read"}
	}
	return &failure{code: codes.InvalidArgument, cause: string(otlp.Malformed), text: "the message could not be read: it is damaged, or no gzip though it says so"}
}

// raw is a codec that leaves messages as they are: [otlp.Decoder] reads them, and nothing else does.
type raw struct{}

var errRaw = errors.New("a message that is no bytes")

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, errRaw
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errRaw
	}
	*b = data.Materialize()
	return nil
}
