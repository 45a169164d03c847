package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/look"
)

func (e *env) signals() *cobra.Command {
	out, in := output{}, lookFlags{}
	cmd := &cobra.Command{
		Use:   "signals [URL|FILE...]",
		Short: "See what is measured: what arrives, what is missing and which questions that leaves open",
		Long: `List the registered signals (docs/signals.md) that addresses or files send: under which native name, how many series, how fresh, and which
are no evidence and why. Then what those producers could send and do not, with the question that stays unanswered; and what arrives without a use.

Without an address or a file the running server (--server) is asked what arrives at it: also by which way it came, how old it is, what it costs
and what was refused.`,
		Example: `  whylate signals
  whylate signals http://vllm-0:8000/metrics --for 0
  whylate signals https://prometheus.example -o json`,
		Args: args(0, 10_000, "addresses or files"),
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				c, err := in.asked().client()
				if err != nil {
					return err
				}
				list, err := c.Signals(cmd.Context())
				if err != nil {
					return err
				}
				return out.print(e, list, func() { e.printArriving(list) })
			}
			scene, err := e.read(cmd.Context(), given, in)
			if err != nil {
				return err
			}
			inv := look.TakeInventory(scene)
			return out.print(e, inv, func() { e.printInventory(inv) })
		},
	}
	in.flags(cmd)
	out.flags(cmd)
	cmd.AddCommand(e.signalsJoin())
	return cmd
}

// unusedShown is how many unused metrics the table shows; JSON has all.
const unusedShown = 10

func (e *env) printInventory(inv *look.Inventory) {
	t := e.table("SIGNAL", "UNIT", "FROM", "NATIVE", "TARGETS", "SERIES", "NEWEST", "")
	for _, a := range inv.Arrives {
		newest := "-"
		if a.Newest > int64(24*time.Hour) { // else it counts from the first scrape
			newest = diagnose.Clock(a.Newest)
		}
		note := a.Doubt
		if a.Unknown > 0 {
			note = cmp.Or(note, fmt.Sprintf("%d samples are no values", a.Unknown))
		}
		t.row(a.Signal, a.Unit, a.Producer, a.Native, fmt.Sprint(a.Targets), fmt.Sprint(a.Series), newest, note)
	}
	t.end()
	e.printMissing(inv)
	if n := len(inv.Unused); n > 0 {
		fmt.Fprintf(e.out, "\nArrives without a use (%d metrics; the most series first)\n", n)
		t := e.table()
		for _, u := range inv.Unused[:min(n, unusedShown)] {
			t.row(u.Family, fmt.Sprintf("%d series", u.Series))
		}
		t.end()
	}
}

func (e *env) printMissing(inv *look.Inventory) {
	if len(inv.Missing) > 0 {
		fmt.Fprintln(e.out, "\nNot sent, and what that leaves unanswered")
		t := e.table()
		for _, m := range inv.Missing {
			t.row(m.Signal, m.Producer, m.Native, m.Question)
		}
		t.end()
	}
}
