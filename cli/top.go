package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
)

func (e *env) top() *cobra.Command {
	src, out := source{e: e}, output{}
	var once bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the engines: batch, tokens, blocks, who waits longest and why",
		Long: `Show what every engine is doing now, again and again: its state (working, idle, stuck in an iteration, dead), the batch, tokens a
second, free KV blocks, how many wait, and the request that has waited longest, with the reason.`,
		Example: `  whylate top
  whylate top --once -o json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every <= 0 {
				return usageError{fmt.Errorf("--every %v: give a time above 0", every)}
			}
			svc, err := src.open()
			if err != nil {
				return err
			}
			if once || out.format == "json" || !e.color {
				l, err := svc.Engines(cmd.Context())
				if err != nil {
					return err
				}
				return out.print(e, l, func() { e.printEngines(l) })
			}
			return e.watchEngines(cmd.Context(), svc, every)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print once and stop; so it is too where the output is no terminal")
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look")
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

// watchEngines prints the state over and over, each time from the top of the screen, until the context ends.
func (e *env) watchEngines(ctx context.Context, svc api.Service, every time.Duration) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		l, err := svc.Engines(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprint(e.out, "\x1b[H\x1b[2J")
		e.printEngines(l)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (e *env) printEngines(l *api.EngineList) {
	fmt.Fprintf(e.out, "%s · %d engines\n\n", diagnose.Clock(l.Now), len(l.Engines))
	if len(l.Engines) == 0 {
		fmt.Fprintln(e.out, "No engine has been recorded; 'whylate doctor' says why that may be.")
		return
	}
	t := e.table("ENGINE", "STATE", "ITERATION", "BATCH", "TOKENS/S", "PREFILL/S", "FREE BLOCKS", "WAITING", "INBOX", "OLDEST WAITER", "WHY")
	for _, g := range l.Engines {
		state := string(g.Status)
		if g.Status == api.EngineStuck || g.Status == api.EngineDead {
			state = fmt.Sprintf("%s since %s", g.Status, diagnose.Clock(g.Since))
		}
		who, why := "-", "-"
		if w := g.Oldest; w != nil {
			who, why = fmt.Sprintf("%s %s", w.Request, diagnose.Span(w.Waited)), w.Why
		}
		t.row(g.ID, state, fmt.Sprint(g.Iteration), fmt.Sprintf("%d of %d", g.Members, g.Running), fmt.Sprintf("%.0f", g.Tokens), fmt.Sprintf("%.0f", g.Prefill),
			fmt.Sprint(g.Free), fmt.Sprint(g.Waiting), fmt.Sprint(g.Inbox), who, why)
	}
	t.end()
	for _, g := range l.Engines {
		if words := diagnose.UntriedWords(g.Untried); words != "" {
			fmt.Fprintln(e.out, e.dim(wrap(g.ID+": "+words, "", width)))
		}
	}
}
