package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store/embedded"
	"github.com/whylate/whylate/web"
)

func (e *env) demo() *cobra.Command {
	out := output{}
	var once bool
	var listen string
	live := liveIncident{e: e}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it on a recorded run of a real engine",
		Long: `Put a recorded run of a real vLLM, which is built into this program, into a store of its own in a temporary folder, list its slowest
requests and explain the worst; then serve it until Ctrl-C, so that the other commands and the HTTP API can be tried on it. Nothing is
simulated, and nothing stays behind.

With --scenario an incident is played live instead ('whylate simulate --list' lists them): simulated engines write rings, as probes do, and
serve metrics pages, and a server follows them.`,
		Example: `  whylate demo
  whylate demo --once -o json
  whylate demo --listen 127.0.0.1:8080
  whylate demo --scenario long-prefill --speed 5`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if live.name != "" {
				return live.run(cmd.Context(), listen, once)
			}
			d, err := startDemo(cmd.Context())
			if err != nil {
				return err
			}
			defer d.stop()
			if err := e.showDemo(cmd.Context(), d.server, out); err != nil || once {
				return err
			}
			return e.serveDemo(cmd.Context(), d, listen)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print and stop: do not serve")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7700", "where to serve; a port that is taken is replaced by another")
	live.flags(cmd)
	out.flags(cmd)
	return cmd
}

// demonstration is a server that leaves nothing behind.
type demonstration struct {
	server *server.Server
	stop   func()
}

// startDemo starts a server and imports the built-in run.
func startDemo(ctx context.Context) (*demonstration, error) {
	dir, err := os.MkdirTemp("", "whylate-demo-")
	if err != nil {
		return nil, err
	}
	d, err := startTemporary(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	if _, err := d.server.Import(ctx, api.ImportQuery{Name: demoName}, bytes.NewReader(demoCapture)); err != nil {
		d.stop()
		return nil, err
	}
	return d, nil
}

// startTemporary makes a store in a folder, and starts a server on it that follows the rings in another, "" = none. The folder is removed
// when it stops.
func startTemporary(ctx context.Context, dir, rings string) (*demonstration, error) {
	st, err := embedded.Open(filepath.Join(dir, "store"), embedded.Options{Writer: named()})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s := server.New(st, server.Settings{DataDir: dir, Rings: rings, Log: slog.New(slog.DiscardHandler)})
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- s.Run(running) }()
	d := &demonstration{s, func() {
		cancel()
		<-done
		st.Close()
		os.RemoveAll(dir)
	}}
	for s.Ready(ctx) != nil { // an empty log is read at once
		select {
		case err := <-done:
			done <- err
			d.stop()
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
	return d, nil
}

// showDemo prints the slowest requests and the worst of them explained.
func (e *env) showDemo(ctx context.Context, svc api.Service, out output) error {
	o, err := svc.Overview(ctx)
	if err != nil {
		return err
	}
	list, err := svc.Requests(ctx, api.RequestsQuery{Sort: "ttft", Limit: 8})
	if err != nil {
		return err
	}
	x, err := svc.Explain(ctx, api.ExplainQuery{RequestsQuery: api.RequestsQuery{Sort: "ttft"}})
	if err != nil {
		return err
	}
	answer := struct {
		Overview    *api.Overview    `json:"overview"`
		Requests    *api.RequestList `json:"requests"`
		Explanation any              `json:"explanation"`
	}{o, list, x}
	return out.print(e, answer, func() {
		for _, g := range o.Engines {
			fmt.Fprintln(e.out, wrap(fmt.Sprintf("A recorded run of %s on a CPU, as %s saw it: %d requests, %d iterations, %d preemptions in %s.",
				g.Engine, g.Producer, o.Requests, g.Iterations, g.Preemptions, diagnose.Span(o.To-o.From)), "", width))
		}
		fmt.Fprintf(e.out, "\n%s\n", e.bold("The slowest to their first token"))
		e.printRequests(list, "ttft", false)
		fmt.Fprintf(e.out, "\n%s\n\n", e.bold("The worst of them, explained"))
		e.printExplanation(x)
		fmt.Fprintf(e.out, "\n%s\n", e.bold("Try next"))
		t := e.table()
		t.row("  whylate iterations --odd --from demo", "iterations that took far longer than their work")
		t.row("  whylate explain --slowest tpot --from demo", "the slowest between tokens")
		t.row("  whylate serve", "follow your own engines (probes/vllm/README.md says how)")
		t.end()
	})
}

// listenNear listens on an address, or on another port if that one is taken.
func listenNear(listen string) (net.Listener, error) {
	l, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		host, _, serr := net.SplitHostPort(listen)
		if serr != nil {
			return nil, usageError{fmt.Errorf("--listen %s: %w", listen, serr)}
		}
		l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", listen, err)
	}
	return l, nil
}

// serveDemo answers over HTTP until the context ends.
func (e *env) serveDemo(ctx context.Context, d *demonstration, listen string) error {
	l, err := listenNear(listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.err, "\nserving this run at http://%s/api/v1 until Ctrl-C; in another terminal: whylate requests --server http://%s\n", l.Addr(), l.Addr())
	return serveHTTP(ctx, d.handler(), l, nil)
}

func (d *demonstration) handler() *web.Handler {
	return web.New(d.server, web.Options{Log: slog.New(slog.DiscardHandler), Ready: d.server.Ready, Gatherer: d.server.Metrics()})
}
