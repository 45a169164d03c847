package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
)

func (e *env) change() *cobra.Command {
	srv, out := serverFlags{}, output{}
	var c api.Change
	var kind, at string
	cmd := &cobra.Command{
		Use:   "change SUBJECT [TEXT]",
		Short: "Tell the server of a change that no engine tells: a deployment, a flag, weights, a prompt template",
		Long: `Put a change on the time line, from a person or from a pipeline. SUBJECT is what changed: a service, a replica, a route, a flag. Restarts,
versions, models and settings of engines with the probe need not be told: 'whylate changes' lists them by itself.

A change that is told twice under the same --id is kept once.`,
		Example: `  whylate change chat --kind deployment --from v41 --to v42
  whylate change summarise --kind prompt --to sha-1f3a "shorter system prompt"`,
		Args: args(1, 2, "what changed, and perhaps a sentence"),
		RunE: func(cmd *cobra.Command, given []string) error {
			c.Kind, c.Subject = api.ChangeKind(kind), given[0]
			if len(given) > 1 {
				c.Text = given[1]
			}
			if at != "" {
				t, err := sinceOf(at, time.Now())
				if err != nil {
					return usageError{fmt.Errorf("--at %q: give a time of day such as 14:05, a time such as 2026-11-29T14:05:00Z, or how long ago, such as 10m", at)}
				}
				c.At = t.UnixNano()
			}
			cl, err := srv.client()
			if err != nil {
				return err
			}
			kept, err := cl.Tell(cmd.Context(), c)
			if err != nil {
				return err
			}
			return out.print(e, kept, func() {
				fmt.Fprintf(e.out, "%s  %s\n", time.Unix(0, kept.At).Format("2006-01-02 15:04:05"), plain(kept.Text))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&kind, "kind", string(api.ChangeDeployment), "deployment, version, setting, model, weights, adapter, prompt, retrieval or other")
	f.StringVar(&c.From, "from", "", "what it was")
	f.StringVar(&c.To, "to", "", "what it is")
	f.StringVar(&c.Engine, "engine", "", "the engine that it concerns, if it is one")
	f.StringVar(&c.ID, "id", "", "its own id: told again under it, it is the same")
	f.StringVar(&c.Source, "source", strings.TrimSuffix("whylate change by "+os.Getenv("USER"), " by "), "who says so")
	f.StringVar(&at, "at", "", "when it happened; now if not given")
	srv.flags(cmd)
	out.flags(cmd)
	return cmd
}
