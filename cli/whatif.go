package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment/whatif"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/server"
)

func (e *env) whatif() *cobra.Command {
	out, engine, q := output{}, "", whatif.Question{}
	cmd := &cobra.Command{
		Use:   "whatif CAPTURE...",
		Short: "Predict what a captured run would have been like under other settings",
		Long: `Play the requests of a captured run again on a simulated engine: with the settings as they were, and with the change. The simulation
decides by the scheduler's own rules (docs/fidelity.md), and its iterations take the time that the captured ones took (docs/timing.md).

The difference between the two comes with its error, next to the sham: how far two simulations of the same settings are apart that differ in
their seed alone. SAME against OBSERVED shows how well the simulation does where nothing is changed. It is a prediction: only a run on
the engine confirms it ('whylate replay').

Settings: ` + strings.Join(whatif.Knobs, ", ") + ".",
		Example: `  whylate whatif run.wlc --set max_num_batched_tokens=1024
  whylate whatif demo --set num_gpu_blocks=800 --set max_num_seqs=64`,
		Args: args(1, 100, "captures, a run bundle, a data directory, or 'demo'"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			a := ingest.New()
			a.KeepHashes = true
			if err := e.load(paths, a); err != nil {
				return err
			}
			q.Book = a.Book()
			var err error
			if q.Engine, err = server.FindEngine(q.Book, engine); err != nil {
				return err
			}
			if err := q.Check(); err != nil {
				return usageError{err}
			}
			answer, err := whatif.Ask(cmd.Context(), q)
			if err != nil {
				return err
			}
			return out.print(e, answer, func() { e.printWhatif(answer) })
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&q.Set, "set", nil, "a setting and its value, setting=value; may be repeated")
	f.StringVar(&engine, "engine", "", "which engine, where the captures hold several: its id, or the beginning of it")
	f.IntVar(&q.Seeds, "seeds", 8, "how many simulations of each arm")
	f.Uint64Var(&q.Seed, "seed", 1, "of the first one")
	out.flags(cmd)
	return cmd
}

func (e *env) printWhatif(a *whatif.Answer) {
	var changes []string
	for _, s := range a.Changes {
		changes = append(changes, fmt.Sprintf("%s %s instead of %s", s.Name, s.To, s.From))
	}
	fmt.Fprintf(e.out, "%s (vLLM %s): %s\n%d requests, simulated %d times as it was and %d times with the change. Nothing was run on an engine.\n\n", plain(a.Engine), plain(a.Version), plain(strings.Join(changes, ", ")),
		a.Requests, a.Seeds, a.Seeds)
	t := e.table("", "OBSERVED", "SAME", "CHANGED", "DIFFERENCE", "ERROR", "SHAM", "")
	for i := range a.Figures {
		f := &a.Figures[i]
		verdict := "not told from noise"
		if f.Told {
			verdict = "more"
			if f.Difference < 0 {
				verdict = "less"
			}
		}
		sign := "+"
		if f.Difference < 0 {
			sign = "-"
		}
		t.row(f.Name, inUnit(f.Observed, f.Unit), inUnit(f.Same, f.Unit), inUnit(f.Changed, f.Unit), sign+inUnit(math.Abs(f.Difference), f.Unit), "± "+inUnit(f.Error, f.Unit), "± "+inUnit(f.Sham, f.Unit), verdict)
	}
	t.end()
	fmt.Fprintf(e.out, "\nOne iteration's time is known to %s (p50) and %s (p90), learned from %d iterations.\n", percent(a.Time.Error.All.Median), percent(a.Time.Error.All.P90), a.Time.Rows)
	for _, n := range a.Notes {
		fmt.Fprintf(e.out, "Note: %s.\n", plain(n))
	}
	if len(a.LeftOut) > 0 {
		fmt.Fprintf(e.out, "Left out: %s.\n", countsText(a.LeftOut))
	}
}

func inUnit(v float64, unit string) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case unit == "ns":
		return diagnose.Span(int64(v))
	case unit == "share":
		return percent(v)
	case unit == "":
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}
