package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/query"
)

func (e *env) requests() *cobra.Command {
	src, out, sel := source{e: e}, output{}, selector{}
	var sort string
	var limit int
	var labels bool
	cmd := &cobra.Command{
		Use:   "requests",
		Short: "List requests, the worst first",
		Long: `List the requests that were recorded, with the largest part of each one's time, and where the time of all that match went.
TTFT ends at the first byte to the client where the front end was recorded, else at the completion of the emitting iteration.`,
		Example: `  whylate requests --sort ttft --limit 10
  whylate requests --at 14:05 --over 2s
  whylate requests --sort queue --from run.wlc -o json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := src.open()
			if err != nil {
				return err
			}
			q, err := sel.of(cmd.Context(), svc, sort, limit)
			if err != nil {
				return err
			}
			list, err := svc.Requests(cmd.Context(), q)
			if err != nil {
				return err
			}
			return out.print(e, list, func() { e.printRequests(list, sort, labels) })
		},
	}
	cmd.Flags().StringVar(&sort, "sort", "e2e", "sort by: "+strings.Join(query.Keys(), ", ")+"; 'arrival' for the newest first")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "list at most so many, 0 = all")
	cmd.Flags().BoolVar(&labels, "labels", false, "also list the beginnings of tenant's, class's and route's labels, which are keyed hashes")
	sel.flags(cmd)
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

// of makes the query, asking the service for the newest time only if a time of day needs it.
func (s *selector) of(ctx context.Context, svc api.Service, sort string, limit int) (api.RequestsQuery, error) {
	if sort == "arrival" {
		sort = ""
	}
	if s.at == "" {
		return s.query(sort, limit, 0)
	}
	o, err := svc.Overview(ctx)
	if err != nil {
		return api.RequestsQuery{}, err
	}
	return s.query(sort, limit, o.To)
}

func (e *env) printRequests(l *api.RequestList, sort string, labels bool) {
	if l.Matched == 0 {
		fmt.Fprintln(e.out, "no request matches")
	} else {
		part := slices.Contains(account.Parts[:], account.Part(sort)) // one that no other column shows
		head := []string{"REQUEST", "CLASS", "ARRIVED", "E2E", "TTFT", "TPOT", "PROMPT", "OUTPUT", "PREEMPTED", "END", "MOST OF IT"}
		if part {
			head = append(head, strings.ToUpper(sort))
		}
		if labels {
			head = append(head, "TENANT", "CLASS'S LABEL", "ROUTE")
		}
		t := e.table(head...)
		for _, r := range l.Requests {
			end := r.Reason.String()
			if r.State != "finished" {
				end = string(r.State)
			}
			name := r.Name
			if r.Level == 1 {
				name += " (L1)"
			}
			if r.Sequences > 1 {
				name += fmt.Sprintf(" (n=%d)", r.Sequences)
			}
			row := []string{name, dash(r.Class), diagnose.Clock(r.Received), diagnose.Span(r.E2E), orDash(r.TTFT), orDash(r.TPOT), fmt.Sprint(r.Prompt), fmt.Sprint(r.Output),
				count(r.Preemptions), end, fmt.Sprintf("%s %.0f %%", r.Largest, 100*r.Share)}
			if part {
				row = append(row, diagnose.Span(r.Sorted))
			}
			if labels {
				row = append(row, dash(r.Labels.Tenant.Short()), dash(r.Labels.Class.Short()), dash(r.Labels.Route.Short()))
			}
			t.row(row...)
		}
		t.end()
	}
	if n := l.Matched - len(l.Requests); n > 0 {
		fmt.Fprintf(e.out, "… and %d more (--limit 0 lists all)\n", n)
	}
	if c := l.Calls; c != nil {
		fmt.Fprintf(e.out, "L1: %d of these are told by spans alone (mean E2E %s); %s\n", c.Calls, diagnose.Span(c.E2E), c.Denominator)
	}
	if l.ClientOnly > 0 {
		fmt.Fprintf(e.out, "%d more were sent by a client and recorded by no server\n", l.ClientOnly)
	}
	if n := l.Statement.Requests; n > 1 {
		these := fmt.Sprintf("these %d requests", n)
		if n < l.Matched { // a server adds up what is in its memory
			these = fmt.Sprintf("the %d of them that are not sealed yet", n)
		}
		fmt.Fprintf(e.out, "\nWhere the time of %s went (mean %s):\n", these, diagnose.Span(l.Statement.E2E))
		t := e.table()
		for _, p := range l.Statement.Parts {
			if p.NS != 0 || p.Part == "unexplained" {
				t.row("  "+string(p.Part), diagnose.Span(p.NS), percent(float64(p.NS)/float64(max(l.Statement.E2E, 1))))
			}
		}
		t.end()
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orDash(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return diagnose.Span(ns)
}

func count(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
