package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/ingest/otlp/receive"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/web"
)

// telemetry takes in OTLP, on the server's own address and on those that it has for it alone.
type telemetry struct {
	receiver *receive.Receiver
	allow    receive.Allow
	tls      *tls.Config
	log      *slog.Logger
}

// spanKeeper is a server that keeps spans.
type spanKeeper interface {
	AcceptSpans(context.Context, []genai.Span) error
}

// evaluationKeeper is a server that keeps evaluations, and knows those that it has.
type evaluationKeeper interface {
	AcceptEvaluations(context.Context, []otlp.LogRecord) (fresh []otlp.LogRecord, err error)
}

// openTelemetry makes the receiver and mounts its paths. A server that keeps no spans takes in no traces, and says so.
func openTelemetry(c *config.Config, s any, series storage.Appendable, lines otlp.Console, tlsConfig *tls.Config, log *slog.Logger, opts *web.Options) *telemetry {
	sinks := receive.Sinks{Metrics: series, Console: lines}
	if k, ok := s.(spanKeeper); ok {
		sinks.Spans = func(ctx context.Context, spans []genai.Span) error {
			err := k.AcceptSpans(ctx, spans)
			if errors.Is(err, stream.ErrOverloaded) {
				return &receive.Retry{Err: err}
			}
			return err
		}
	}
	if k, ok := s.(evaluationKeeper); ok {
		sinks.Logs = func(ctx context.Context, records []otlp.LogRecord) ([]otlp.LogRecord, error) {
			fresh, err := k.AcceptEvaluations(ctx, records)
			if err != nil {
				return nil, &receive.Retry{Err: err}
			}
			return fresh, nil
		}
	}
	t := &telemetry{log: log, tls: tlsConfig, allow: operators(opts.Tokens), receiver: receive.New(sinks, receive.Settings{
		Limits: otlp.Limits{Body: int(c.OTLP.Request)}, InFlight: c.Limits.InFlightBytes, Connections: c.Limits.Connections, Log: log})}
	opts.OTLP = t.receiver.Handler(nil) // web asks for the token
	own := prometheus.NewRegistry()
	own.MustRegister(t.receiver)
	opts.Gatherer = prometheus.Gatherers{opts.Gatherer, own}
	return t
}

// operators lets those send who show a token of the role operator; everybody where there are no tokens.
func operators(tokens func() *web.Tokens) receive.Allow {
	if tokens == nil {
		return nil
	}
	return func(authorization string) error {
		scheme, token, _ := strings.Cut(authorization, " ")
		role := tokens().Role(strings.TrimSpace(token))
		switch {
		case !strings.EqualFold(scheme, "Bearer"), role == web.Public:
			return errors.New("send the header 'Authorization: Bearer TOKEN' with a token of the server's token file")
		case role < web.Operator:
			return fmt.Errorf("a token of the role %s may not send: use one of the role %s", role, web.Operator)
		}
		return nil
	}
}

// listen opens the addresses that are configured and hands what serves them to part.
func (t *telemetry) listen(c *config.Config, part func(string, func(context.Context) error)) error {
	for _, a := range []struct {
		key, address string
		serve        func(context.Context, net.Listener) error
	}{{"otlp.grpc", c.OTLP.GRPC, t.serveGRPC}, {"otlp.http", c.OTLP.HTTP, t.serveHTTP}} {
		if a.address == "" {
			continue
		}
		l, err := net.Listen("tcp", a.address)
		if err != nil {
			return fmt.Errorf("%s %s: %w; choose another address, or stop what listens there (a collector?)", a.key, a.address, err)
		}
		t.log.Info("taking in OpenTelemetry", "by", a.key, "address", l.Addr().String(), "tls", t.tls != nil)
		part(a.key, func(ctx context.Context) error { return a.serve(ctx, l) })
	}
	return nil
}

func (t *telemetry) serveGRPC(ctx context.Context, l net.Listener) error {
	return t.receiver.Serve(ctx, l, t.tls, t.allow)
}

func (t *telemetry) serveHTTP(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: t.receiver.Handler(t.allow), TLSConfig: t.tls, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(t.log.Handler(), slog.LevelDebug)}
	return serveUntil(ctx, s, l)
}

// faults are the requests that were refused, for doctor.
func (t *telemetry) faults() (out []api.Fault) {
	for _, r := range t.receiver.Refusals() {
		out = append(out, api.Fault{What: fmt.Sprintf("taking in OTLP %s by %s (%s)", r.Signal, r.Transport, r.Cause), Count: uint64(r.Count), Last: r.Last, At: r.At.UnixNano()})
	}
	return out
}
