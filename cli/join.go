package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/look"
)

func (e *env) signalsJoin() *cobra.Command {
	out, in := output{}, lookFlags{}
	cmd := &cobra.Command{
		Use:   "join [URL|FILE...]",
		Short: "Show how sources were joined: what is one engine or GPU, by what, and where that is only likely",
		Long: `List the engines, gateways and GPUs that addresses or files speak of, each under the names that its sources give it. What names one thing
(an incarnation, a GPU's UUID, an address, a namespace with a pod) joins for certain; a host, a pod's name alone or a model joins only
where no other thing could be meant, and is said to be likely. Then what was joined with nothing, and why, and whose clocks are apart.

Without an address or a file the running server (--server) is asked: it also knows the engines that the probe tells of, and what identity.aliases says.`,
		Example: `  whylate signals join
  whylate signals join scrapes/ traces.otlp.json
  whylate signals join https://prometheus.example -o json`,
		Args: args(0, 10_000, "addresses or files"),
		RunE: func(cmd *cobra.Command, given []string) error {
			j, err := e.identities(cmd.Context(), given, in)
			if err != nil {
				return err
			}
			return out.print(e, j, func() { e.printJoined(&j.Joined); e.printClocks(j.Clocks) })
		},
	}
	in.flags(cmd)
	out.flags(cmd)
	return cmd
}

// identities are those of addresses and files, or of the server where none is given.
func (e *env) identities(ctx context.Context, given []string, in lookFlags) (*api.Identities, error) {
	if len(given) == 0 {
		c, err := in.asked().client()
		if err != nil {
			return nil, err
		}
		return c.Identities(ctx)
	}
	scene, err := e.read(ctx, given, in)
	if err != nil {
		return nil, err
	}
	j := &api.Identities{Joined: *look.Join(scene), Clocks: []api.ClockShift{}}
	if scene.Traces != nil {
		j.Clocks = api.ShiftsOf(scene.Traces.Shifts)
	}
	return j, nil
}

func (e *env) printClocks(clocks []api.ClockShift) {
	if len(clocks) == 0 {
		return
	}
	fmt.Fprintln(e.out, "Clocks that are apart")
	t := e.table()
	for _, c := range clocks {
		t.row("  "+c.Clock, apart(c))
	}
	t.end()
}

// apart says how far a clock is off, with the bound.
func apart(c api.ClockShift) string {
	side, low, high := "behind", c.Low, c.High
	if low+high < 0 {
		side, low, high = "ahead of", -high, -low
	}
	return fmt.Sprintf("%s to %s %s that of %s (no answer before its question: %d pairs of spans)", diagnose.Span(low), diagnose.Span(high), side, c.From, c.Pairs)
}

func (e *env) printJoined(j *identity.Joined) {
	if len(j.Things) == 0 {
		fmt.Fprintln(e.out, "No engine, gateway or GPU is spoken of.")
		return
	}
	name := func(i int) string {
		if t := j.Things[i]; !strings.HasPrefix(t.Source, "metrics") {
			return t.Name + " (" + t.Source + ")"
		}
		return j.Things[i].Name
	}
	for _, g := range j.Groups {
		fmt.Fprintf(e.out, "One %s\n", j.Things[g[0]].Kind)
		t := e.table()
		t.row("  "+name(g[0]), "")
		for _, i := range g[1:] {
			k := slices.IndexFunc(j.Links, func(l identity.Link) bool { return !l.WorksOn && (l.A == i || l.B == i) })
			t.row("  "+name(i), because(j.Links[k]))
		}
		t.end()
	}
	e.printOwned(j, name)
	if len(j.Loose) > 0 {
		fmt.Fprintln(e.out, "Joined with nothing")
		t := e.table()
		for _, l := range j.Loose {
			t.row("  "+name(l.Thing), l.Why)
		}
		t.end()
	}
	if len(j.Things) == 1 {
		fmt.Fprintf(e.out, "Only one: %s\n", plain(name(0)))
	}
	for _, n := range j.Notes {
		fmt.Fprintln(e.out, plain(n))
	}
}

func (e *env) printOwned(j *identity.Joined, name func(int) string) {
	t := e.table()
	said := false
	for _, l := range j.Links {
		if !l.WorksOn {
			continue
		}
		if !said {
			fmt.Fprintln(e.out, "Who works on which GPU")
			said = true
		}
		t.row("  "+name(l.A), name(l.B), because(l))
	}
	t.end()
}

// because says why two things are one.
func because(l identity.Link) string {
	how := "certain"
	if !l.Certain {
		how = "only likely"
	}
	text := fmt.Sprintf("%s: %s %s (%s; %s)", how, l.Attr, l.Value, l.FromA, l.FromB)
	if l.Attr == identity.Told {
		text = "told: " + l.Value
	}
	if l.Disagree != "" {
		text += fmt.Sprintf("; but they differ in %s", l.Disagree)
	}
	return text
}
