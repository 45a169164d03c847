package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
)

func (e *env) iterations() *cobra.Command {
	src, out := source{e: e}, output{}
	var odd bool
	var q api.IterationsQuery
	cmd := &cobra.Command{
		Use:   "iterations [N]",
		Short: "Show what the scheduler did, iteration by iteration",
		Long: `List an engine's iterations, or show iteration N with everybody in it: who was a member, what each cost, what was new, who
waited for it and why.`,
		Example: `  whylate iterations --odd                 those far above what their work explains
  whylate iterations 3                     who was in iteration 3, and who waited for it
  whylate iterations --request cli-7       the life of one request
  whylate iterations --first 100 --last 140`,
		Args: args(0, 1, "one iteration number, or none"),
		RunE: func(cmd *cobra.Command, ns []string) error {
			svc, err := src.open()
			if err != nil {
				return err
			}
			switch {
			case len(ns) == 1:
				n, err := iterationNumber(ns[0])
				if err != nil {
					return err
				}
				d, err := svc.Iteration(cmd.Context(), api.IterationQuery{Engine: q.Engine, Number: n})
				if err != nil {
					return err
				}
				return out.print(e, d, func() { e.printIteration(d) })
			case odd:
				l, err := svc.Odd(cmd.Context())
				if err != nil {
					return err
				}
				return out.print(e, l, func() { e.printOdd(l) })
			}
			l, err := svc.Iterations(cmd.Context(), q)
			if err != nil {
				return err
			}
			return out.print(e, l, func() { e.printIterations(l) })
		},
	}
	cmd.Flags().BoolVar(&odd, "odd", false, "only those far above what their work explains, with what was new in them")
	cmd.Flags().StringVar(&q.Request, "request", "", "only those in the life of this request (any id)")
	cmd.Flags().StringVar(&q.Engine, "engine", "", "which engine (a beginning of its id), where there are several")
	cmd.Flags().Uint64Var(&q.From, "first", 0, "from this iteration on")
	cmd.Flags().Uint64Var(&q.To, "last", 0, "up to this iteration")
	cmd.Flags().IntVarP(&q.Limit, "limit", "n", 50, "list at most so many, 0 = all")
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

func (e *env) printIterations(l *api.IterationList) {
	last := "WAITS FOR"
	withOf := len(l.Iterations) > 0 && l.Iterations[0].Of != ""
	if withOf {
		last = "THE REQUEST"
	}
	head := []string{"ITERATION", "DECIDED", "TOOK", "EXPECTED", "GAP", "MEMBERS", "TOKENS", "PREFILL", "WAITING", "FREE BLOCKS"}
	evicted := slices.ContainsFunc(l.Iterations, func(r api.IterationRow) bool { return r.Evicted > 0 })
	if evicted {
		head = append(head, "EVICTED")
	}
	t := e.table(append(head, last)...)
	for _, r := range l.Iterations {
		took := diagnose.Span(r.Duration)
		switch {
		case r.InFlight:
			took = "in flight"
		case !r.Complete:
			took = "unknown"
		}
		word := stopWord(r)
		if withOf {
			word = r.Of
		}
		row := []string{fmt.Sprint(r.Number), diagnose.Clock(r.Decided), took, orDash(r.Expected), orDash(r.Gap), fmt.Sprint(r.Members), fmt.Sprint(r.Tokens), fmt.Sprint(r.Prefill),
			fmt.Sprint(r.Waiting), fmt.Sprint(r.Free)}
		if evicted {
			row = append(row, count(int(r.Evicted)))
		}
		t.row(append(row, word)...)
	}
	t.end()
	if n := l.Matched - len(l.Iterations); n > 0 {
		fmt.Fprintf(e.out, "… and %d more (--limit 0 lists all; --first and --last choose)\n", n)
	}
	if l.Matched == 0 {
		fmt.Fprintln(e.out, "no iteration matches")
	}
}

// stopWord says what those who wait in an iteration wait for.
func stopWord(r api.IterationRow) string {
	if r.Waiting == 0 || r.Stop == 0 {
		return "-"
	}
	w := r.Stop.String()
	if r.Head != "" {
		w += ", head " + r.Head
		if r.Need > 0 {
			w += fmt.Sprintf(" needs %d", r.Need)
		}
	}
	return w
}

func (e *env) printOdd(l *api.OddList) {
	if len(l.Odd) == 0 {
		fmt.Fprintln(e.out, "No iteration took far longer than its work explains.")
		return
	}
	t := e.table("ITERATION", "DECIDED", "TOOK", "EXPECTED", "MEMBERS", "WAITED FOR IT", "NEW IN IT", "ENGINE")
	for _, o := range l.Odd {
		t.row(fmt.Sprint(o.Number), diagnose.Clock(o.Decided), diagnose.Span(o.Duration), diagnose.Span(o.Expected), fmt.Sprint(o.Members), fmt.Sprintf("%d requests", o.Waited), newWords(o.New), o.Engine)
	}
	t.end()
	fmt.Fprintf(e.out, "\n'whylate iterations %d' shows who was in the first of them.\n", l.Odd[0].Number)
}

func newWords(ns []api.NewRow) string {
	var words []string
	for _, n := range ns {
		by := strings.Join(n.By, ", ")
		if len(n.By) > 3 {
			by = fmt.Sprintf("%s and %d more", strings.Join(n.By[:3], ", "), len(n.By)-3)
		}
		w := n.What
		if n.First {
			w = "first " + n.What
		}
		words = append(words, w+": "+by)
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " · ")
}

// tokenWords are a member's tokens, and how many of them were drafts. What became of those is known when the iteration is complete.
func tokenWords(m api.MemberRow, complete bool) string {
	switch {
	case m.Drafts == 0:
		return fmt.Sprint(m.Tokens)
	case !complete:
		return fmt.Sprintf("%d (%d drafts)", m.Tokens, m.Drafts)
	}
	return fmt.Sprintf("%d (%d drafts, %d rejected)", m.Tokens, m.Drafts, m.Rejected)
}

// executionWords say how the ranks executed the batch. What nobody measured is left out.
func executionWords(x *api.ExecutionRow) string {
	w := "executed by 1 rank"
	host := ""
	if x.Ranks > 1 {
		w = fmt.Sprintf("executed by %d ranks", x.Ranks)
		host = fmt.Sprintf(" (rank %d, the slowest)", x.Slowest)
	}
	if x.Device > 0 {
		w += " · device " + diagnose.Span(x.Device)
	}
	w += " · host " + diagnose.Span(x.Host) + host
	if x.Wait > 0 {
		w += " · " + diagnose.Span(x.Wait) + " in collectives"
	}
	w += " · graph: " + x.Graph.String()
	if x.Eager {
		w += ", an eager fallback"
	}
	if x.Padded > 0 {
		w += fmt.Sprintf(" · padded to %d tokens", x.Padded)
	}
	if x.Peak > 0 {
		w += fmt.Sprintf(" · peak memory %.2f GB", float64(x.Peak)/1e9)
	}
	return w
}

// evictionWords say whose blocks were evicted, those of one last user together.
func evictionWords(vs []api.EvictionRow) string {
	var users []string
	blocks := map[string]uint32{}
	for _, v := range vs {
		if blocks[v.LastUser] == 0 {
			users = append(users, v.LastUser)
		}
		blocks[v.LastUser] += v.Blocks
	}
	slices.SortStableFunc(users, func(a, b string) int { return cmp.Compare(blocks[b], blocks[a]) })
	var words []string
	for i, u := range users {
		if i == 5 {
			words = append(words, fmt.Sprintf("and of %d more requests", len(users)-i))
			break
		}
		words = append(words, fmt.Sprintf("%d of %s", blocks[u], cmp.Or(u, "nobody who is known")))
	}
	return "evicted from the prefix cache, by last user: " + strings.Join(words, ", ") + " (those of up to 16 iterations are told together, at the last of them)"
}

func (e *env) printIteration(d *api.IterationDetail) {
	r := d.Row
	fmt.Fprintln(e.out, e.bold(wrap(d.Statement, "", width)))
	fmt.Fprintln(e.out, wrap(fmt.Sprintf("decided %s · %d tokens (%d prefill) for %d members · %d running, %d waiting · %d KV blocks free · engine %s, its own index %d",
		diagnose.Clock(r.Decided), r.Tokens, r.Prefill, r.Members, r.Running, r.Waiting, r.Free, d.Engine, r.Alias), "  ", width))
	if w := stopWord(r); w != "-" {
		fmt.Fprintln(e.out, wrap("those who wait, wait for: "+w, "  ", width))
	}
	if x := d.Execution; x != nil {
		fmt.Fprintln(e.out, wrap(executionWords(x), "  ", width))
	}
	fmt.Fprintln(e.out)
	t := e.table("MEMBER", "PHASE", "TOKENS", "COMPUTED BEFORE", "SHARE OF TIME", "WITH MINUS WITHOUT", "SPECIAL")
	for _, m := range d.Members {
		name := m.Request
		if m.Joined {
			name += " (joined)"
		}
		t.row(name, m.Phase.String(), tokenWords(m, r.Complete), fmt.Sprint(m.Before), orDash(m.Share), orDash(m.Marginal), strings.Join(m.Special, ", "))
	}
	t.end()
	fmt.Fprintln(e.out, e.dim("shares sum to the iteration's time; 'with minus without' is each member's marginal cost and is never added up"))
	for _, n := range d.New {
		if n.First {
			fmt.Fprintln(e.out, wrap(fmt.Sprintf("first iteration with %s: %s", n.What, strings.Join(n.By, ", ")), "", width))
		}
	}
	for _, p := range d.Preemptions {
		fmt.Fprintln(e.out, wrap(fmt.Sprintf("preempted: %s lost %d tokens and %d blocks to %s, with %d blocks free", p.Victim, p.Lost, p.Blocks, dash(p.Preemptor), p.Free), "", width))
	}
	if len(d.Evictions) > 0 {
		fmt.Fprintln(e.out, wrap(evictionWords(d.Evictions), "", width))
	}
	if len(d.Holders) > 0 {
		fmt.Fprintln(e.out, "\nwho held the KV pool:")
		t := e.table()
		for _, h := range d.Holders {
			t.row("  "+h.Request, fmt.Sprintf("%d blocks", h.Blocks))
		}
		t.end()
	}
	if len(d.Waiters) > 0 {
		fmt.Fprintf(e.out, "\nwho waited while it ran (%d):\n", len(d.Waiters))
		t := e.table()
		for i, w := range d.Waiters {
			if i == 20 {
				t.row(fmt.Sprintf("  … and %d more", len(d.Waiters)-i))
				break
			}
			t.row("  "+w.Request, diagnose.Span(w.NS), "in the "+string(w.Where))
		}
		t.end()
	}
	for _, g := range d.Gaps {
		fmt.Fprintln(e.out, wrap("missing: "+g.String(), "", width))
	}
}
