package cli

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/server"
)

func (e *env) calibrate() *cobra.Command {
	c := calibrateCommand{src: source{e: e}}
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Learn from a recorded run how long an engine's iterations take",
		Long: `Learn from a recorded run how long an engine's iterations take, for simulated ones to take as long: what their work costs, and how far
the real ones lay from that. Prints how well the learned half of the run tells the other half.

With --out the calibration is kept as a file, for 'whylate simulate --time'.`,
		Example: `  whylate calibrate --from run.wlc --out calibration.json
  whylate calibrate --from demo`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(e) },
	}
	f := cmd.Flags()
	f.StringVar(&c.engine, "engine", "", "which engine (a beginning of its id), where there are several")
	f.Uint64Var(&c.first, "first", 0, "learn from this iteration on")
	f.Uint64Var(&c.last, "last", math.MaxUint64, "learn up to this iteration")
	f.Lookup("last").DefValue = ""
	f.StringVar(&c.file, "out", "", "file to write the calibration to")
	c.src.flags(cmd)
	c.out.flags(cmd)
	return cmd
}

type calibrateCommand struct {
	src         source
	out         output
	engine      string
	first, last uint64
	file        string
}

func (c *calibrateCommand) run(e *env) error {
	book, err := c.src.book()
	if err != nil {
		return err
	}
	engine, err := server.FindEngine(book, c.engine)
	if err != nil {
		return err
	}
	calibration, err := timing.Calibrate(engine, func(n uint64) bool { return c.first <= n && n <= c.last })
	if err != nil {
		return err
	}
	if c.file != "" {
		var b bytes.Buffer
		if err := calibration.Write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(c.file, b.Bytes(), 0o600); err != nil {
			return fmt.Errorf("write the calibration: %w", err)
		}
	}
	p := calibration.Provenance
	return c.out.print(e, p, func() { e.printCalibration(p, c.file) })
}

func (e *env) printCalibration(p timing.Provenance, file string) {
	fmt.Fprintf(e.out, "%s with %s: learned from %d iterations (%d to %d), %d of them with prefill; %s\n", plain(p.Engine), plain(path.Base(p.Model)), p.Rows, p.From, p.To, p.Prefill,
		counted(p.Stalls, "stall"))
	if p.Error.All.Rows == 0 {
		fmt.Fprintln(e.out, "too few iterations to hold one half against the other: its error is not known")
	} else {
		fmt.Fprintln(e.out, "\nEvery other stretch of the run, predicted from those between:")
		t := e.table("ITERATIONS", "COUNT", "ONE'S ERROR P50", "P90", "P99", "ALL: P50", "P90", "P99", "SUM")
		for _, k := range []struct {
			name string
			e    timing.Errors
		}{{"all", p.Error.All}, {"without prefill", p.Error.Decode}, {"with prefill", p.Error.Prefill}} {
			t.row(k.name, fmt.Sprint(k.e.Rows), percent(k.e.Median), percent(k.e.P90), percent(k.e.P99), signed(k.e.DrawnP50), signed(k.e.DrawnP90), signed(k.e.DrawnP99), signed(k.e.DrawnTotal))
		}
		t.end()
	}
	if file != "" {
		fmt.Fprintf(e.out, "\nwritten to %s\n", file)
	}
}

// signed is a difference as a share.
func signed(share float64) string { return fmt.Sprintf("%+.1f %%", 100*share) }

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
