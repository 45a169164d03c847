package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/export"
	"github.com/whylate/whylate/query"
)

func (e *env) export() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Give requests to other systems",
		Args:  args(0, 0, "a format: otlp"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(e.exportOTLP())
	return cmd
}

func (e *env) exportOTLP() *cobra.Command {
	src, out := source{e: e}, output{}
	var to string
	var last time.Duration
	x := config.Export{}
	cmd := &cobra.Command{
		Use:   "otlp [ID]",
		Short: "Send requests as OTLP spans, or write them to a file",
		Long: `Send one request, or all that ended in the last so many minutes, as OTLP spans: to a receiver, or as OTLP/JSON to a file, a line a batch.
The span of the request has one child for each part of its time, and the parts sum to it. What is sent again has the same ids.

'whylate serve' sends by itself what section export of its settings asks for.`,
		Example: `  whylate export otlp cli-7 --to http://localhost:4318
  whylate export otlp --last 10m --to grpcs://otel.example:4317 --headers-file otel.headers
  whylate export otlp --last 24h --from demo --to demo.jsonl`,
		Args: args(0, 1, "one id, or none and --last"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if (len(ids) == 1) == (last != 0) {
				return usageError{errors.New("export what? Give an id, or --last 10m")}
			}
			if to == "" {
				return usageError{errors.New("export where to? Give --to http://host:4318, grpc://host:4317, or a file ending in .jsonl")}
			}
			svc, err := src.open()
			if err != nil {
				return err
			}
			spanner, ok := svc.(api.Spanner)
			if !ok {
				return &api.Unsupported{What: "this server gives no spans", Remedy: "update it, or name what it reads with --from"}
			}
			send, done, err := spanSink(cmd.Context(), to, &x)
			if err != nil {
				return err
			}
			r := exportResult{To: to}
			err = r.run(cmd.Context(), svc, spanner, ids, last, x.IDs, send)
			if err = errors.Join(err, done()); err != nil {
				return err
			}
			return out.print(e, r, func() {
				fmt.Fprintf(e.out, "%d requests, %d spans → %s\n", r.Requests, r.Spans, to)
				for _, s := range r.Skipped {
					fmt.Fprintln(e.err, "not exported: "+s)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "receiver (http://host:4318, https://…, grpc://host:4317, grpcs://…), or a file ending in .jsonl, which must not exist")
	f.DurationVar(&last, "last", 0, "all that ended and arrived in so long before the newest that is known, such as 10m")
	f.StringVar(&x.HeadersFile, "headers-file", "", "file with headers for the receiver, 'name: value' a line")
	f.StringVar(&x.TLS.CA, "tls-ca", "", "file with the authorities that the receiver is trusted by")
	f.StringVar(&x.TLS.Cert, "tls-cert", "", "file with this side's certificate, where the receiver asks for one")
	f.StringVar(&x.TLS.Key, "tls-key", "", "file with the private key of --tls-cert")
	f.StringVar(&x.TLS.Name, "tls-name", "", "name that the receiver's certificate must carry")
	f.StringVar(&x.Compression, "compression", "gzip", "gzip or none")
	f.DurationVar(&x.Timeout, "timeout", 10*time.Second, "how long sending one batch may take, retries included")
	f.BoolVar(&x.IDs, "ids", true, "let ids leave, and sentences that may hold some")
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

// exportResult is what an export came to.
type exportResult struct {
	To       string   `json:"to"`
	Requests int      `json:"requests"`
	Spans    int      `json:"spans"`
	Skipped  []string `json:"skipped,omitempty"` // requests that could not be exported, and why
}

// exportBatch is how many spans are sent at once.
const exportBatch = 2000

// sender takes spans.
type sender func(context.Context, []*tracepb.ResourceSpans) error

// run exports the requests with the given ids, else all of the last so long.
func (r *exportResult) run(ctx context.Context, svc api.Service, spanner api.Spanner, ids []string, last time.Duration, withIDs bool, send sender) error {
	var chosen [][]string // of each request its ids
	if len(ids) == 1 {
		chosen = [][]string{ids}
	} else {
		o, err := svc.Overview(ctx)
		if err != nil {
			return err
		}
		list, err := svc.Requests(ctx, api.RequestsQuery{From: time.Unix(0, o.To).Add(-last)})
		if err != nil {
			return err
		}
		for _, row := range list.Requests {
			if row.State == account.Finished {
				chosen = append(chosen, row.IDs)
			}
		}
		if list.Next != "" {
			return fmt.Errorf("more than %d requests in %s: give a shorter --last", len(list.Requests), last)
		}
	}
	var batch []*tracepb.ResourceSpans
	waiting := 0
	flush := func() error {
		if waiting == 0 {
			return nil
		}
		if err := send(ctx, batch); err != nil {
			return fmt.Errorf("%w (%d spans had been sent before)", err, r.Spans)
		}
		r.Spans += waiting
		batch, waiting = nil, 0
		return nil
	}
	for _, names := range chosen {
		spans, n, err := spansOf(ctx, spanner, names, withIDs)
		var argument *api.InvalidArgument
		var several *query.Ambiguous
		if len(ids) == 0 && (errors.As(err, &argument) || errors.As(err, &several)) {
			first, _, _ := strings.Cut(err.Error(), "\n")
			r.Skipped = append(r.Skipped, first)
			continue
		}
		if err != nil {
			return err
		}
		r.Requests++
		batch, waiting = append(batch, spans...), waiting+n
		if waiting >= exportBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// spansOf asks for a request by its ids, the first that no other has.
func spansOf(ctx context.Context, spanner api.Spanner, ids []string, withIDs bool) (spans []*tracepb.ResourceSpans, n int, err error) {
	var answer *api.Spans
	for _, id := range ids {
		var several *query.Ambiguous
		if answer, err = spanner.Spans(ctx, api.SpansQuery{ID: id, IDs: withIDs}); !errors.As(err, &several) {
			break
		}
	}
	if err != nil {
		return nil, 0, err
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(answer.OTLP, &data); err != nil {
		return nil, 0, fmt.Errorf("the server's answer is no OTLP: %w", err)
	}
	for _, rs := range data.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			n += len(ss.Spans)
		}
	}
	return data.ResourceSpans, n, nil
}

// spanSink opens where spans go: a receiver, or a file.
func spanSink(ctx context.Context, to string, x *config.Export) (send sender, done func() error, err error) {
	if strings.HasSuffix(to, ".jsonl") && !strings.Contains(to, "://") {
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			return nil, nil, fmt.Errorf("--to %s: it exists; name another file, or remove it", to)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--to: %w", err)
		}
		c, err := export.Lines(ctx, f)
		if err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		return c.Send, func() error { return errors.Join(c.Close(), f.Close()) }, nil
	}
	x.Endpoint = to
	target, err := exportTarget(x, func(name string) string {
		if name == export.SettingEndpoint {
			return "--to"
		}
		return "--" + strings.NewReplacer(".", "-", "_", "-").Replace(name)
	})
	if err != nil {
		return nil, nil, usageError{err}
	}
	c, err := export.Dial(ctx, target)
	if err != nil {
		return nil, nil, usageError{err}
	}
	return c.Send, c.Close, nil
}
