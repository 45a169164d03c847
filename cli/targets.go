package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
)

func (e *env) targets() *cobra.Command {
	src, out := serverFlags{}, output{}
	var down bool
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "List whose metrics pages the server reads, and how that goes",
		Long: `List every address that the server scrapes, with how the last scrape went: what it brought, how long it took, which lines of the page had to be
left out, and where there was no page, why, and what to do. docs/scrape.md says how to set them up.`,
		Example: `  whylate targets
  whylate targets --down -o json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := src.client()
			if err != nil {
				return err
			}
			l, err := c.Targets(cmd.Context())
			if err != nil {
				return err
			}
			if down {
				l.Targets = failing(l.Targets)
			}
			return out.print(e, l, func() { e.printTargets(l, down) })
		},
	}
	cmd.Flags().BoolVar(&down, "down", false, "only those that bring nothing, or not all of their page")
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

func failing(all []api.Target) []api.Target {
	out := []api.Target{}
	for _, t := range all {
		if t.Health == api.TargetDown || len(t.Problems) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func (e *env) printTargets(l *api.TargetList, down bool) {
	switch {
	case len(l.Targets) > 0:
		t := e.table("JOB", "TARGET", "HEALTH", "LAST SCRAPE", "TOOK", "SAMPLES", "LEFT OUT")
		for _, x := range l.Targets {
			last, took := "never", ""
			if x.LastAt != 0 {
				last, took = time.Unix(0, x.LastAt).Format(time.TimeOnly), time.Duration(x.TookNs).Round(time.Millisecond).String()
			}
			t.row(x.Job, x.URL, string(x.Health), last, took, strconv.Itoa(x.Samples), strconv.FormatUint(x.LeftOut, 10))
		}
		t.end()
	case down:
		fmt.Fprintln(e.out, "Every target brings its whole page.")
	default:
		fmt.Fprintf(e.out, "There is no target: %v.\n", errScrapesNothing)
	}
	for _, x := range l.Targets {
		if x.Error != "" {
			fmt.Fprintf(e.out, "\n%s %s: %s\n  %s\n", x.Job, x.URL, plain(x.Error), plain(x.Remedy))
		}
		for _, p := range x.Problems {
			fmt.Fprintf(e.out, "\n%s %s: %s\n", x.Job, x.URL, plain(p))
		}
	}
	for _, n := range l.NotTaken {
		fmt.Fprintf(e.out, "\nnot taken: %s %s\n  %s\n", plain(n.Job), plain(n.What), plain(n.Remedy))
	}
}

var errScrapesNothing = errors.New("the server scrapes nothing; set scrape.jobs or scrape.prometheus_file (docs/scrape.md)")
