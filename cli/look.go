package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"
	"golang.org/x/term"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/look"
)

func (e *env) look() *cobra.Command {
	out, in := output{}, lookFlags{}
	cmd := &cobra.Command{
		Use:   "look [URL|FILE...]",
		Short: "See in half a minute how engines and GPUs are, from what they already emit",
		Long: `Read what is already there, without configuration, and leave nothing behind: an engine's or an exporter's /metrics, a Prometheus or
whatever speaks its API, saved scrapes, answers of that API, engines' logs, OTLP traces in files, forward-pass metrics, captures, a folder, a zip or a run bundle of them. Prints what it found, the four paths
(request, token, gpu, quality) with the worst segment of each, what is certainly wrong, what changed meanwhile, and the next command.

An address that speaks metrics is watched for --for; a Prometheus is asked for --history. Saved scrapes of one target are those whose names
differ in their order alone (engine.t0.prom, engine.t1.prom); --interval says the time between them. A file of queries (*.promql, one a
line) is checked against what is there.

Without an address or a file it looks at the running server (--server): its own series and requests of the last hour, or of --history.`,
		Example: `  whylate look
  whylate look http://vllm-0:8000/metrics
  whylate look https://prometheus.example --token-file token --ca-file ca.pem
  whylate look before.t0.prom before.t1.prom --interval 60s
  whylate look engine.log --zone Europe/Berlin`,
		Args: args(0, 10_000, "addresses or files"),
		RunE: func(cmd *cobra.Command, given []string) error {
			read := func() (*look.Scene, error) { return e.read(cmd.Context(), given, in) }
			if len(given) == 0 {
				if !cmd.Flags().Changed("history") {
					in.history = time.Hour
				}
				read = func() (*look.Scene, error) { return e.readServer(cmd.Context(), in) }
			}
			scene, err := read()
			if err != nil {
				return err
			}
			e.atOnce()
			r := look.Judge(scene)
			if unusable := out.print(e, r, func() { err = r.Text(e.out, e.columns()) }); unusable != nil {
				return unusable
			}
			if r.Nothing() && err == nil {
				return fmt.Errorf("%w that is known in %s", errNoSource, exposition.Printable(strings.Join(given, " "), 200))
			}
			return err
		},
	}
	in.flags(cmd)
	out.flags(cmd)
	return cmd
}

// lookFlags say how addresses and files are read.
type lookFlags struct {
	watch, every, history, interval, ttft, tpot                    time.Duration
	zone, tokenFile, user, passwordFile, caFile, certFile, keyFile string
	server                                                         string
	headers                                                        []string
}

func (l *lookFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&l.watch, "for", 30*time.Second, "how long an engine is watched; 0 = one look")
	f.DurationVar(&l.every, "every", 10*time.Second, "how often it is read meanwhile")
	f.DurationVar(&l.history, "history", 24*time.Hour, "how far back a Prometheus is read; 0 = addresses are no Prometheus")
	f.DurationVar(&l.interval, "interval", 0, "time between two saved scrapes of one target, where nothing says it")
	f.DurationVar(&l.ttft, "ttft", 0, "objective of the time to the first token: how many requests met it is then said")
	f.DurationVar(&l.tpot, "tpot", 0, "objective of the time per output token after it")
	f.StringVar(&l.zone, "zone", "", "zone of times in logs that come without one: UTC, Europe/Berlin")
	f.StringVar(&l.server, "server", os.Getenv("WHYLATE_SERVER"), "server to ask where no address or file is given ($WHYLATE_SERVER); default "+defaultServer)
	f.StringVar(&l.tokenFile, "token-file", "", "file with a bearer token; for the server also $WHYLATE_TOKEN_FILE")
	f.StringVar(&l.user, "user", "", "user of basic authentication")
	f.StringVar(&l.passwordFile, "password-file", "", "file with its password")
	f.StringArrayVar(&l.headers, "header", nil, "a header for addresses, as 'X-Scope-OrgID: team-a' for a tenant of Mimir; may be given more than once")
	f.StringVar(&l.caFile, "ca-file", "", "file with the certificate authorities that addresses are trusted by")
	f.StringVar(&l.certFile, "cert-file", "", "file with the client's certificate")
	f.StringVar(&l.keyFile, "key-file", "", "file with its key")
}

// read reads addresses and files into a scene.
func (e *env) read(ctx context.Context, given []string, l lookFlags) (*look.Scene, error) {
	zone, err := l.location()
	if err != nil {
		return nil, err
	}
	inputs, err := e.inputs(ctx, given, l)
	if err != nil {
		return nil, err
	}
	return look.Read(ctx, inputs, look.Options{Interval: l.interval, Zone: zone, Good: look.Objectives{TTFT: l.ttft, TPOT: l.tpot}, Now: time.Now()})
}

// inputs are what addresses and files hold.
func (e *env) inputs(ctx context.Context, given []string, l lookFlags) ([]look.Input, error) {
	switch {
	case l.watch < 0 || l.every <= 0 || l.history < 0 || l.interval < 0 || l.ttft < 0 || l.tpot < 0:
		return nil, usageError{fmt.Errorf("--for, --history, --interval, --ttft and --tpot take 0 or more, --every a time above 0")}
	case l.tokenFile != "" && l.user != "":
		return nil, usageError{fmt.Errorf("give --token-file or --user, not both")}
	case (l.certFile == "") != (l.keyFile == ""):
		return nil, usageError{fmt.Errorf("--cert-file and --key-file belong together")}
	}
	ask, err := l.address()
	if err != nil {
		return nil, err
	}
	var addresses []look.Address
	var paths []string
	for _, g := range given {
		if address(g) {
			a := ask
			a.URL = g
			addresses = append(addresses, a)
		} else {
			paths = append(paths, g)
		}
	}
	inputs, err := look.Files(paths...)
	if err != nil {
		return nil, err
	}
	if len(addresses) > 0 {
		p := e.progress("watching")
		read, err := look.Watch(ctx, addresses, look.Watching{For: l.watch, Every: l.every, History: l.history, Now: time.Now, Sleep: sleep,
			Told: func(elapsed, all time.Duration) { p.update(int64(elapsed), int64(all)) }})
		p.end()
		if err != nil && len(read)+len(inputs) == 0 {
			return nil, err
		}
		if err != nil {
			fmt.Fprintf(e.err, "whylate: %v\n", err)
		}
		inputs = append(inputs, read...)
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("%w in %s", errNoSource, exposition.Printable(strings.Join(given, " "), 200))
	}
	return inputs, nil
}

// asked is the server to ask where neither address nor file is given. Its own variables say what addresses must not be told.
func (l *lookFlags) asked() *serverFlags {
	return &serverFlags{address: l.server, tokenFile: cmp.Or(l.tokenFile, os.Getenv("WHYLATE_TOKEN_FILE")), caFile: cmp.Or(l.caFile, os.Getenv("WHYLATE_CA_FILE"))}
}

// readServer reads what a running server has: its series, and the requests of the same time.
func (e *env) readServer(ctx context.Context, l lookFlags) (*look.Scene, error) {
	s := l.asked()
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	l.tokenFile, l.caFile = s.tokenFile, s.caFile
	ask := api.RequestsQuery{Sort: "ttft", From: time.Now().Add(-l.history), Limit: 1}
	list, err := c.Requests(ctx, ask)
	if err != nil {
		return nil, err
	}
	scene, err := e.read(ctx, []string{c.Address() + "/prometheus"}, l)
	if errors.Is(err, look.ErrNothingKnown) {
		scene, err = look.Of(nil, time.Now()), nil
	}
	if err != nil {
		return nil, err
	}
	scene.Recorded = &look.Recorded{Server: c.Address(), Over: l.history, Requests: list.Matched}
	if len(list.Requests) > 0 && list.Requests[0].TTFT > 0 {
		scene.Recorded.Slowest, scene.Recorded.TTFT = list.Requests[0].Name, list.Requests[0].TTFT
	}
	return scene, nil
}

// location is the zone of times in logs; nil where none is given.
func (l *lookFlags) location() (*time.Location, error) {
	if l.zone == "" {
		return nil, nil
	}
	zone, err := time.LoadLocation(l.zone)
	if err != nil {
		return nil, usageError{fmt.Errorf("--zone %s: give a name such as UTC or Europe/Berlin: %w", exposition.Printable(l.zone, 60), err)}
	}
	return zone, nil
}

// address reports whether an argument is one, and no file: it has a scheme, or is host:port and there is no such file.
func address(s string) bool {
	if strings.Contains(s, "://") {
		return true
	}
	_, err := os.Stat(s)
	return err != nil && strings.Contains(s, ":")
}

func (l *lookFlags) address() (a look.Address, err error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if l.caFile != "" {
		if transport.TLSClientConfig.RootCAs, err = authorities(l.caFile); err != nil {
			return a, err
		}
	}
	if l.certFile != "" {
		cert, err := tls.LoadX509KeyPair(l.certFile, l.keyFile)
		if err != nil {
			return a, fmt.Errorf("--cert-file %s, --key-file %s: %w", l.certFile, l.keyFile, err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{cert}
	}
	a = look.Address{Client: &http.Client{Transport: transport, Timeout: 20 * time.Second}, User: l.user}
	if a.Token, err = readToken(l.tokenFile); err != nil {
		return a, err
	}
	if a.Header, err = l.header(); err != nil {
		return a, err
	}
	a.Secret, err = readToken(l.passwordFile)
	return a, err
}

// header are the headers that were given. A secret is not among them: others of the host see the arguments of a command.
func (l *lookFlags) header() (http.Header, error) {
	h := http.Header{}
	for _, given := range l.headers {
		name, value, ok := strings.Cut(given, ":")
		name = strings.TrimSpace(name)
		switch {
		case !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return nil, usageError{fmt.Errorf("--header %s: give 'NAME: VALUE'", exposition.Printable(given, 60))}
		case strings.EqualFold(name, "Authorization"):
			return nil, usageError{fmt.Errorf("--header %s: every user of this host could read it: give --token-file, or --user and --password-file", name)}
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// columns is the width of the terminal; 110 where there is none.
func (e *env) columns() int {
	if f, ok := e.out.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return min(n, 140)
		}
	}
	return 110
}
