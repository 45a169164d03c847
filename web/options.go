package web

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options say how to serve. The zero value serves whoever can reach the address, which is right on the loopback only.
type Options struct {
	Tokens   func() *Tokens      // who may ask what, as of now; nil: everybody may ask everything
	Hosts    []string            // without tokens: names, beside localhost and plain addresses, by which this server may be called
	Log      *slog.Logger        // one line a request, and every panic; nil: slog.Default()
	Gatherer prometheus.Gatherer // further metrics for /metrics; may be nil
	PromQL   http.Handler        // answers below /prometheus/; nil: nothing is there
	// RemoteWrite takes what a Prometheus sends to /prometheus/api/v1/write; nil: nothing is taken.
	RemoteWrite http.Handler
	OTLP        http.Handler // takes in OpenTelemetry at /v1/traces, /v1/metrics and /v1/logs; nil: nothing is there
	// Ready says why the server cannot do its work yet, or any more: its log is not recovered, it is overloaded. Nil: it is always ready.
	Ready func(context.Context) error

	Timeout      time.Duration // of one question; 0 = 30 s
	Concurrent   int           // questions at once, and as many in PromQL; more are told to come later; 0 = 64
	Streams      int           // event streams and imports at once, each; 0 = 256
	MaxImport    int64         // bytes of one import; 0 = 64 GiB
	ReadTimeout  time.Duration // how long an import may send nothing; 0 = 30 s
	WriteTimeout time.Duration // how long a watcher may take nothing; 0 = 10 s
	Heartbeat    time.Duration // between comments on a quiet event stream; 0 = 15 s
	Recheck      time.Duration // how soon a token that is taken away ends what goes on under it; 0 = 1 s
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	or(&o.Timeout, 30*time.Second)
	or(&o.Concurrent, 64)
	or(&o.Streams, 256)
	or(&o.MaxImport, 64<<30)
	or(&o.ReadTimeout, 30*time.Second)
	or(&o.WriteTimeout, 10*time.Second)
	or(&o.Heartbeat, 15*time.Second)
	or(&o.Recheck, time.Second)
	return o
}

func or[T comparable](v *T, standard T) {
	var zero T
	if *v == zero {
		*v = standard
	}
}
