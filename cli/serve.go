package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/renew"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
	"github.com/whylate/whylate/web"
)

func (e *env) serve() *cobra.Command {
	flags := config.NewFlags(config.Server)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Follow engines live, keep what they tell, and answer",
		Long: `Read the rings of this host and take in what agents of other hosts send, keep it (a write-ahead log, then sealed periods), and
answer over HTTP (/api/v1, /healthz, /readyz, /metrics). The other commands ask the server when one runs.

Settings come from flags, environment variables, the file and defaults, in this order; docs/config.md lists them all, and
'whylate config check' says what is wrong with them. It listens on the loopback unless told otherwise.`,
		Example: `  whylate serve
  whylate serve --config /etc/whylate/whylate.yaml
  WHYLATE_DATA_DIR=/var/lib/whylate whylate serve`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(config.Input{Environ: os.Environ(), Flags: flags})
			if err != nil {
				return usageError{err}
			}
			return serve(cmd.Context(), c, logger(c, e))
		},
	}
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.AddTo(set)
	cmd.Flags().AddGoFlagSet(set)
	return cmd
}

func logger(c *config.Config, e *env) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(c.Log.Level)) // config has checked it
	opts := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(e.err, opts))
	}
	return slog.New(slog.NewTextHandler(e.err, opts))
}

// serve runs a server until ctx ends: parts start in order, and stop in reverse.
func serve(ctx context.Context, c *config.Config, log *slog.Logger) (err error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // most of a server's memory is the hot period: as much again for what is garbage would be gigabytes
	}
	st, err := embedded.Open(filepath.Join(c.DataDir, "store"), embedded.Options{SegmentBytes: c.Store.WAL.SegmentBytes, Writer: named()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	set := server.Settings{DataDir: c.DataDir, SealEvery: c.Store.SealEvery, HotPeriod: c.Store.HotPeriod, HotIterations: c.Store.HotIterations, InFlight: c.Limits.InFlightBytes, Log: log,
		SpanQuiet: c.Spans.Quiet, SpanAge: c.Spans.Age, HotSpans: c.Spans.InMemory,
		Retention: store.Policy{Detail: unlimited(c.Store.Retention.Iterations), Requests: unlimited(c.Store.Retention.Requests)}}
	files := renew.NewGroup(log, nil)
	var agents *stream.Server
	set.Sends = func(source string) bool { return agents.Sends(source) }
	if set.Told, err = server.OpenTold(vfs.OS{}, c.DataDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Told.Close()) }()
	if set.Judged, err = server.OpenJudged(vfs.OS{}, c.DataDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Judged.Close()) }()
	var pages scraping
	set.Targets = pages.targets
	var series *timeSeries
	if err := observe(c, &set, func() *timeSeries { return series }); err != nil {
		return err
	}
	var otel *telemetry
	var spans *spansOut
	set.Faults = func() []api.Fault {
		return slices.Concat(faultsOf(files), refusals(agents.Stats()), pages.faults(), series.faults(), otel.faults(), spans.faults())
	}
	if c.Rings.Follow {
		set.Rings = c.Rings.Dir
		set.GPU = gpuSettings(c, log)
	}
	counted, figures := meter(c, time.Now())
	set.Outlets = append(set.Outlets, counted)
	if spans, err = openSpansOut(ctx, c, &set, log); err != nil {
		return err
	}
	s := server.New(st, set)

	var tlsConfig *tls.Config
	if c.TLS.Cert != "" {
		if tlsConfig, err = (renew.TLS{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.ClientCA}).Server(files, "h2", "http/1.1"); err != nil {
			return err
		}
	}
	opts := web.Options{Log: log, Ready: s.Ready, Gatherer: prometheus.Gatherers{spans.metrics(s.Metrics()), figures}, MaxImport: c.Limits.RequestBody}
	agents = &stream.Server{Accept: s.AcceptBatches, Durable: s.Durable, TLS: tlsConfig, Version: Version, Log: log,
		Settings: stream.Settings{MaxConnections: c.Limits.Connections, QueueBytes: c.Limits.InFlightBytes}}
	if c.TokensFile != "" {
		_, warning, err := web.LoadTokens(c.TokensFile)
		if err != nil {
			return err
		}
		if warning != "" {
			log.Warn(warning)
		}
		tokens, err := renew.Open(files, "tokens "+c.TokensFile, func(b ...[]byte) (*web.Tokens, error) { return web.ParseTokens(c.TokensFile, b[0]) }, c.TokensFile)
		if err != nil {
			return err
		}
		opts.Tokens = tokens.Get
	}
	if c.Listen.AgentsTokens != "" {
		tokens, err := stream.OpenTokens(files, c.Listen.AgentsTokens)
		if err != nil {
			return err
		}
		agents.Tokens = func() ([]string, error) { return tokens.Get(), nil }
	}
	if series, err = openSeries(c, files, log, &opts, pages.asOfPrometheus); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, series.db.Close()) }()
	if err := pages.open(c, series.db, files, log, &opts); err != nil {
		return err
	}
	lines := &console{to: series.db.Appendable("logs"), seen: s.Seen, log: log}
	otel = openTelemetry(c, s, series.db.Appendable("otlp"), lines.take, tlsConfig, log, &opts)
	devices := &deviceSeries{to: series.db.Appendable("gpu"), log: log}
	s.OnSample(devices.take)
	handler := web.New(newImports(s, series.db, c.DataDir), opts)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	part("server", s.Run)
	part("time series", func(ctx context.Context) error { return series.run(ctx, handler.Gatherer()) })
	if pages.scraper != nil {
		part("scraping", pages.scraper.Run)
	}
	part("changes", func(ctx context.Context) error { return keepChanges(ctx, series.db.Detail(), s.Seen, log) })
	part("export", spans.run)
	part("samples of GPUs", devices.run)
	part("logs", lines.run)
	parts.Go(func() { files.Run(ctx, renew.Every, func() { agents.Recheck(); pages.renew(log) }) })
	if c.Listen.HTTP != "" {
		l, err := net.Listen("tcp", c.Listen.HTTP)
		if err != nil {
			return fmt.Errorf("listen.http %s: %w; choose another address, or stop what listens there", c.Listen.HTTP, err)
		}
		log.Info("answering", "address", l.Addr().String(), "tls", tlsConfig != nil)
		part("http", func(ctx context.Context) error { return serveHTTP(ctx, handler, l, tlsConfig) })
	}
	if c.Listen.Agents != "" {
		l, err := net.Listen("tcp", c.Listen.Agents)
		if err != nil {
			return fmt.Errorf("listen.agents %s: %w; choose another address, or stop what listens there", c.Listen.Agents, err)
		}
		log.Info("taking in agents", "address", l.Addr().String())
		part("agents", func(ctx context.Context) error { return agents.Serve(ctx, l) })
	}
	if c.Listen.Unix != "" {
		os.Remove(c.Listen.Unix) // of a former run; a live one holds the store's lock, and we would not be here
		l, err := net.Listen("unix", c.Listen.Unix)
		if err != nil {
			return fmt.Errorf("listen.unix %s: %w", c.Listen.Unix, err)
		}
		part("agents of this host", func(ctx context.Context) error { return agents.Serve(ctx, l) })
	}
	if err := otel.listen(c, part); err != nil {
		return err
	}
	<-ctx.Done()
	parts.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// faultsOf tells of files whose newest contents could not be taken up, as long as that is so.
func faultsOf(files *renew.Group) (out []api.Fault) {
	for _, b := range files.Broken() {
		out = append(out, api.Fault{What: "renew " + b.What, Count: b.Count, Last: b.Err.Error() + "; what was read before stays in force", At: b.At.UnixNano()})
	}
	return out
}

// unlimited is a retention as the store wants it, for which 0 is for ever.
func unlimited(d time.Duration) time.Duration {
	if d == config.Forever {
		return 0
	}
	return d
}

func serveHTTP(ctx context.Context, h *web.Handler, l net.Listener, t *tls.Config) error {
	return serveUntil(ctx, h.Server(t), l)
}

// serveUntil serves until ctx ends, and lets what is under way end for ten seconds.
func serveUntil(ctx context.Context, s *http.Server, l net.Listener) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		s.Shutdown(grace)
	}()
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return err
}
