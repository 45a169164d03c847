package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
)

func (e *env) changes() *cobra.Command {
	src, out := source{e: e}, output{}
	var since string
	var limit int
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "List restarts of engines, and what differs after each: version, model, settings, ranks",
		Long: `List what changed about the engines, the newest first. Each incarnation of an engine is compared with the one before it of the same
deployment, replica and rank. A change stands at the time at which the new incarnation's first recorded iteration began.`,
		Example: `  whylate changes --since 24h
  whylate changes --since 14:00 -o json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usageError{fmt.Errorf("--limit %d: give a number from 0", limit)}
			}
			svc, err := src.open()
			if err != nil {
				return err
			}
			q := api.ChangesQuery{Limit: limit}
			if since != "" {
				now, err := svc.Engines(cmd.Context())
				if err != nil {
					return err
				}
				if q.From, err = sinceOf(since, time.Unix(0, now.Now)); err != nil {
					return err
				}
			}
			l, err := svc.Changes(cmd.Context(), q)
			if err != nil {
				return err
			}
			return out.print(e, l, func() { e.printChanges(l) })
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only changes of the time since then: 24h, 14:05 (local), or RFC 3339")
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, "how many to list, 0 for all")
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

// sinceOf reads a length of time before now, a time of day, or a whole time.
func sinceOf(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := timeOf(s, now); err == nil {
		return t, nil
	}
	return time.Time{}, usageError{fmt.Errorf("--since %q: give a length of time such as 24h, a time of day such as 14:05, or a time such as 2026-11-29T14:05:00Z", s)}
}

func (e *env) printChanges(l *api.ChangeList) {
	if l.Matched == 0 {
		kinds := make([]string, len(l.Recorded))
		for i, k := range l.Recorded {
			kinds[i] = string(k)
		}
		fmt.Fprintf(e.out, "No change was recorded. Looked for: %s.\n", strings.Join(kinds, ", "))
		return
	}
	t := e.table("TIME", "ENGINE", "CHANGE", "WHAT")
	for _, c := range l.Changes {
		t.row(time.Unix(0, c.At).Format("2006-01-02 15:04:05"), c.Engine, string(c.Kind), c.Text)
	}
	t.end()
	if more := l.Matched - len(l.Changes); more > 0 {
		fmt.Fprintf(e.out, "… and %d more; --limit 0 lists all.\n", more)
	}
}
