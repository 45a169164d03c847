package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
)

func (e *env) explain() *cobra.Command {
	src, out, sel := source{e: e}, output{}, selector{}
	var slowest string
	var way bool
	cmd := &cobra.Command{
		Use:   "explain [ID]",
		Short: "Explain why a request was slow",
		Long: `Explain one request: where each millisecond went, what stands out, who is responsible, and on what the answer rests.

ID is any id you have: your X-Request-Id, the id in the response, the engine's own, a trace id, or a beginning of one that is
unique. Without an ID the worst request that the flags select is explained. A request that has not ended is explained up to now.`,
		Example: `  whylate explain cli-7
  whylate explain 4bf92f3577b34da6          (a trace id, or its beginning)
  whylate explain --slowest ttft
  whylate explain --at 14:05 --over 2s -o json
  whylate explain --tree                    (parts of a request's time, and the metrics that tell of them)`,
		Args: args(0, 1, "one id, or none and a selector"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if way {
				list := wayOfARequest()
				return out.print(e, list, func() { e.printTree(list) })
			}
			if len(ids) == 0 && slowest == "" && sel.at == "" && sel.over == 0 && sel.class == "" && sel.tenant == "" && sel.route == "" {
				return usageError{fmt.Errorf("explain what? Give an id, or --slowest ttft|tpot|e2e, or --at TIME; 'whylate requests' lists requests")}
			}
			if len(ids) == 1 && slowest != "" {
				return usageError{fmt.Errorf("give an id or --slowest, not both")}
			}
			svc, err := src.open()
			if err != nil {
				return err
			}
			q := api.ExplainQuery{}
			if len(ids) == 1 {
				q.ID = ids[0]
			} else if q.RequestsQuery, err = sel.of(cmd.Context(), svc, cmp.Or(slowest, "e2e"), 1); err != nil {
				return err
			}
			x, err := svc.Explain(cmd.Context(), q)
			if err != nil {
				return err
			}
			return out.print(e, x, func() { e.printExplanation(x) })
		},
	}
	cmd.Flags().StringVar(&slowest, "slowest", "", "explain the request that is worst in: ttft, tpot, e2e, or a part such as queue")
	cmd.Flags().BoolVar(&way, "tree", false, "show instead the parts of a request's time, and which metric of which engine tells of each")
	sel.flags(cmd)
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

const width = 112

// printTTFT prints the two lines that follow from the account: what TTFT is made of, and how E2E follows from it.
func (e *env) printTTFT(a *account.Account) {
	if a.TTFT == 0 {
		return
	}
	var parts []string
	rest := a.TTFT
	for _, p := range []account.Part{account.Gateway, account.Frontend, account.Inbox, account.Queue, account.Prefill} {
		if l := a.Line(p); l.Seen {
			parts = append(parts, fmt.Sprintf("%s %s", p, diagnose.Span(l.NS)))
			rest -= l.NS
		}
	}
	line := fmt.Sprintf("TTFT %s (to the %s)", diagnose.Span(a.TTFT), a.TTFTEnd)
	if a.TPOT > 0 || a.Output == 1 { // otherwise it contains more than the way to the first token
		line += " = " + strings.Join(parts, " + ")
		if rest != 0 {
			line += fmt.Sprintf(" + %s from the first token to its first byte", diagnose.Span(rest))
		}
	}
	fmt.Fprintln(e.out, "\n"+wrap(line, "", width))
	if a.TPOT > 0 {
		fmt.Fprintln(e.out, wrap(fmt.Sprintf("TPOT %s; E2E %s = TTFT + TPOT × (%d output tokens − 1)", diagnose.Span(a.TPOT), diagnose.Span(a.E2E()), a.TailOutput), "", width))
	}
}

// printCall prints what spans tell of a request: its way, span by span, and its parts.
func (e *env) printCall(c *diagnose.Call) {
	head := "WHAT SPANS TELL (" + c.Level + ")"
	if c.Amendment {
		head += ", of spans that came after the call had been sealed"
	}
	fmt.Fprintln(e.out, "\n"+e.bold(head))
	fmt.Fprintln(e.out, c.Text)
	for i, s := range c.Spans {
		took := "never ended"
		if s.Duration >= 0 {
			took = diagnose.Span(s.Duration)
		}
		line := fmt.Sprintf("%s%s · %s · %s", strings.Repeat("  ", min(i, 8)), s.Name, cmp.Or(s.Scope, s.Service, "an unnamed scope"), took)
		if s.Shift != 0 {
			line += fmt.Sprintf(" · its clock corrected by %s ± %s", diagnose.Span(s.Shift), diagnose.Span(s.Half))
		}
		fmt.Fprintln(e.out, "  "+line)
	}
}

func (e *env) printExplanation(x *diagnose.Explanation) {
	r, a := x.Request, x.Account
	fmt.Fprintln(e.out, e.bold(wrap(x.Headline, "", width)))
	fmt.Fprintln(e.out, wrap("ids: "+strings.Join(r.IDs, " · "), "  ", width))
	what := fmt.Sprintf("%d prompt tokens (%d from cache), %d output tokens", r.Prompt, r.Cached, r.Output)
	if r.Sequences > 1 {
		what += fmt.Sprintf(" in %d sequences", r.Sequences)
	}
	if r.FirstIter != 0 {
		what += fmt.Sprintf(" · iterations %d to %d (in %d of them)", r.FirstIter, r.LastIter, r.Iterations)
	}
	if a.State == account.Finished {
		what += fmt.Sprintf(" · finish: %s", r.Reason)
		if r.End.String() == "client disconnected" {
			what += ", the client hung up"
		}
	}
	alone := x.Basis.Level == "L1" && len(x.Calls) > 0 // spans alone tell of it, and say below what they know
	if !alone {
		fmt.Fprintln(e.out, wrap(what, "  ", width))
	}
	if s := r.Speculation; s != nil {
		fmt.Fprintln(e.out, wrap(fmt.Sprintf("speculative decoding: %d tokens drafted, %d accepted, %d rejected (acceptance %s)", s.Drafted, s.Accepted, s.Rejected, percent(s.Rate)), "  ", width))
	}
	if l := r.Labels; l != (ledger.Labels{}) {
		var words []string
		for _, w := range []struct {
			name  string
			label ledger.Label
		}{{"tenant", l.Tenant}, {"class", l.Class}, {"route", l.Route}} {
			if w.label != 0 {
				words = append(words, w.name+" "+w.label.String())
			}
		}
		fmt.Fprintln(e.out, wrap("labels (keyed hashes): "+strings.Join(words, " · "), "  ", width))
	}
	if r.Engine != "" {
		fmt.Fprintln(e.out, wrap(fmt.Sprintf("arrived %s · engine %s", diagnose.Clock(r.Received), r.Engine), "  ", width))
	}
	fmt.Fprintln(e.out)

	t := e.table("WHERE THE TIME WENT", "TIME", "SHARE", "")
	for _, l := range a.Lines {
		if !l.Seen && l.NS == 0 {
			continue
		}
		t.row(string(l.Part), diagnose.Span(l.NS), percent(l.Share), "")
		for _, s := range l.Splits {
			note := ""
			if s.Modelled {
				note = "modelled"
			}
			if s.WithinError {
				note = "within model error"
			}
			if s.NS > 50_000 || s.NS < -50_000 {
				t.row("  "+s.Name, diagnose.Span(s.NS), percent(float64(s.NS)/float64(max(a.E2E(), 1))), note)
			}
		}
	}
	t.row("E2E", diagnose.Span(a.E2E()), percent(1), "")
	t.end()
	var unseen []string
	for _, l := range a.Lines {
		if !l.Seen && l.Part != account.Transfer {
			unseen = append(unseen, string(l.Part))
		}
	}
	if len(unseen) > 0 {
		fmt.Fprintln(e.out, e.dim("not seen, and not part of E2E: "+strings.Join(unseen, ", ")))
	}
	if !alone { // the first token of spans is counted from where each of them begins
		e.printTTFT(a)
	}
	if c := x.Client; c != nil {
		fmt.Fprintf(e.out, "The client's own clock: E2E %s, TTFT %s (%s outside the account), %s", diagnose.Span(c.E2E), orDash(c.TTFT), diagnose.Span(c.Outside), c.Outcome)
		if c.Late > 1e6 {
			fmt.Fprintf(e.out, ", sent %s later than planned", diagnose.Span(c.Late))
		}
		fmt.Fprintln(e.out)
	}
	if f := x.InFlight; f != nil {
		members := strings.Join(f.Members, ", ")
		if members == "" {
			members = "nobody"
		}
		fmt.Fprintln(e.out, wrap(fmt.Sprintf("Iteration %d was launched %s ago and is not done; members: %s.", f.Iteration, diagnose.Span(f.For), members), "", width))
	}

	fmt.Fprintln(e.out)
	switch {
	case alone:
		fmt.Fprintln(e.out, "Who made it late cannot be said from spans alone.")
	case len(x.Findings) == 0:
		fmt.Fprintln(e.out, "Nothing stands out; nobody is to blame.")
	default:
		fmt.Fprintln(e.out, e.bold("WHY"))
	}
	for i, f := range x.Findings {
		kind := "measured"
		if f.Modelled {
			kind = "modelled"
		}
		fmt.Fprintf(e.out, "%d. %s %s\n", i+1, e.red(fmt.Sprintf("%s of %s", diagnose.Span(f.NS), f.Part)), e.dim("("+kind+")"))
		fmt.Fprintln(e.out, wrap(f.Text, "   ", width-3))
		if f.See != "" {
			fmt.Fprintln(e.out, e.dim("   see: "+plain(f.See)))
		}
	}

	for i := range x.Calls {
		e.printCall(&x.Calls[i])
	}
	if len(x.Evaluations) > 0 {
		fmt.Fprintln(e.out)
		fmt.Fprintln(e.out, e.bold("HOW THE ANSWER WAS JUDGED"))
		for i := range x.Evaluations {
			fmt.Fprintln(e.out, wrap(plain(x.Evaluations[i].String()), "   ", width-3))
		}
	}
	fmt.Fprintln(e.out)
	for _, n := range x.Notes {
		fmt.Fprintln(e.out, e.dim(wrap(n, "", width)))
	}
	b := x.Basis
	line := fmt.Sprintf("Rests on level %s, %s of the records", b.Level, percent(b.Coverage))
	if b.Uncertainty > 0 {
		line += fmt.Sprintf(", clock known to ± %.1f µs", float64(b.Uncertainty)/1e3)
	}
	if b.Model != nil {
		line += fmt.Sprintf("; modelled shares: median error %s, 90th percentile %s on %d iterations not fitted on", percent(b.Model.Median), percent(b.Model.P90), b.Model.HeldOut)
	}
	fmt.Fprintln(e.out, e.dim(wrap(line+". What would sharpen it most: "+b.Sharpen+".", "", width)))
	if words := diagnose.UntriedWords(b.Untried); words != "" {
		fmt.Fprintln(e.out, e.dim(wrap(words, "", width)))
	}
	for _, g := range b.Gaps {
		fmt.Fprintln(e.out, wrap("missing: "+g.String(), "", width))
	}
}
