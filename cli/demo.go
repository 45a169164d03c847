package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
)

func (e *env) demo() *cobra.Command {
	out := output{}
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it on a recorded run of a real engine",
		Long: `Read a recorded run of a real vLLM that is built into this program, list its slowest requests and explain the worst. Nothing
is simulated, and nothing is written.`,
		Example: `  whylate demo
  whylate demo --once -o json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			src := source{e: e, from: []string{demoName}}
			svc, err := src.open()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
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
				e.printRequests(list, "ttft")
				fmt.Fprintf(e.out, "\n%s\n\n", e.bold("The worst of them, explained"))
				e.printExplanation(x)
				fmt.Fprintf(e.out, "\n%s\n", e.bold("Try next"))
				t := e.table()
				t.row("  whylate iterations --odd --from demo", "iterations that took far longer than their work")
				t.row("  whylate explain --slowest tpot --from demo", "the slowest between tokens")
				t.row("  whylate capture", "record your own engine (probes/vllm/README.md says how)")
				t.end()
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print and stop; without it the demo will also serve, once there is a server")
	out.flags(cmd)
	return cmd
}
