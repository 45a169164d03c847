package receive

import (
	"context"
	"net"
	"os"
	"os/signal"
	"strings"
	"testing"

	"google.golang.org/grpc"
	rpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/encoding/protowire"
)

// tap writes the messages that come as they came, each behind its length, into a file a signal.
type tap struct {
	t    *testing.T
	file string
}

type method struct{}

func (tap) TagRPC(ctx context.Context, i *rpcstats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, method{}, i.FullMethodName)
}

func (p tap) HandleRPC(ctx context.Context, s rpcstats.RPCStats) {
	in, ok := s.(*rpcstats.InPayload)
	if !ok {
		return
	}
	name := ctx.Value(method{}).(string)
	for service, signal := range services {
		if strings.Contains(name, service) {
			f, err := os.OpenFile(p.file+"-"+signal.String()+".bin", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				p.t.Error(err)
				return
			}
			f.Write(protowire.AppendBytes(nil, *in.Payload.(*[]byte)))
			f.Close()
		}
	}
}
func (tap) TagConn(ctx context.Context, _ *rpcstats.ConnTagInfo) context.Context { return ctx }
func (tap) HandleConn(context.Context, rpcstats.ConnStats)                       {}

// With WHYLATE_OTLP_CAPTURE=FILE it listens on WHYLATE_OTLP_LISTEN until it is interrupted, takes in what real senders send, and keeps their
// requests. That is how the fixtures of testdata were made.
func TestCapture(t *testing.T) {
	file := os.Getenv("WHYLATE_OTLP_CAPTURE")
	if file == "" {
		t.Skip("WHYLATE_OTLP_CAPTURE names no file")
	}
	l, err := net.Listen("tcp", os.Getenv("WHYLATE_OTLP_LISTEN"))
	if err != nil {
		t.Fatal(err)
	}
	var s sink
	var b book
	r := New(s.sinks(&b), Settings{})
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	err = r.serveGRPC(ctx, l, nil, nil, grpc.StatsHandler(tap{t, file}))
	t.Log(err, r.Refusals())
	for _, x := range s.spans {
		t.Logf("%s %s %d attributes", x.Scope.Name, x.Name, len(x.Attrs))
	}
	t.Logf("%+v\n%s", s.logs, b.text())
}
