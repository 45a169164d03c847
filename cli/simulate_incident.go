package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/experiment/incident"
	"github.com/whylate/whylate/experiment/simulate/dialect"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/server"
)

// incidentCommand is 'whylate simulate' with an incident in place of a workload.
type incidentCommand struct {
	*simulateCommand
	p       incident.Params
	list    bool
	without []string
}

func (c *incidentCommand) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	d := incident.Defaults()
	f.BoolVar(&c.list, "list", false, "list the incidents")
	f.Float64Var(&c.p.Severity, "severity", d.Severity, "of an incident: above 0, up to 1")
	f.DurationVar(&c.p.Onset, "onset", d.Onset, "of an incident: when the fault begins")
	f.DurationVar(&c.p.Duration, "duration", d.Duration, "of an incident: how long the fault lasts")
	f.DurationVar(&c.p.Length, "length", d.Length, "of an incident: how long requests arrive")
	f.IntVar(&c.p.Scope, "scope", 0, "of an incident: the replica that has the fault, from 0, where it is one replica's")
	f.BoolVar(&c.p.Sham, "sham", false, "of an incident: play all but the fault")
	f.StringSliceVar(&c.without, "without", nil, "of an incident: evidence to leave out: scrape, log, otlp, wlc, changes")
}

// means reports whether an argument is meant as an incident: it is the name of one, or there is no such file and it does not look like one.
func (c *incidentCommand) means(name string) bool {
	if incident.Named(name) != nil {
		return true
	}
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "./")
}

// incidentNamed finds an incident, or says which name is near.
func incidentNamed(name string) (*incident.Incident, error) {
	if i := incident.Named(name); i != nil {
		return i, nil
	}
	var names []string
	for _, i := range incident.Catalogue() {
		names = append(names, i.Name)
	}
	if near := config.Nearest(name, names); near != "" {
		return nil, usageError{fmt.Errorf("there is no incident %q, did you mean %s? 'whylate simulate --list' lists them", name, near)}
	}
	return nil, usageError{fmt.Errorf("there is no incident %q, and no such file; 'whylate simulate --list' lists the incidents", name)}
}

func (c *incidentCommand) run(cmd *cobra.Command, name string) error {
	i, err := incidentNamed(name)
	if err != nil {
		return err
	}
	keep, err := evidence(c.without)
	if err != nil {
		return err
	}
	on, err := c.engineOf()
	if err != nil {
		return err
	}
	c.p.Seed, c.p.Replicas, c.p.Version = c.seed, c.replicas, numbered()
	p, err := i.Prepare(c.p, on)
	if err != nil {
		return usageError{err}
	}
	dir := c.path
	if !cmd.Flags().Changed("out") {
		dir = name
	}
	summary, err := p.Bundle(dir, keep)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: give another directory with -o", err)
	}
	if err != nil {
		return err
	}
	answer := struct {
		Bundle  string         `json:"bundle"`
		Truth   incident.Truth `json:"truth"`
		Summary world.Summary  `json:"summary"`
	}{dir, p.Truth, summary}
	return c.out.print(c.e, answer, func() { c.printPlayed(i, p, dir, &summary) })
}

func (c *incidentCommand) printPlayed(i *incident.Incident, p *incident.Play, dir string, s *world.Summary) {
	e, t := c.e, &p.Truth
	fmt.Fprintln(e.out, e.bold(i.Name)+": "+i.What)
	what := "mechanism " + t.Mechanism
	switch {
	case t.Sham:
		what = "without the fault"
	case t.TwinOf != "":
		what = "harmless; it looks like " + t.TwinOf
	case t.Telemetry:
		what = "the service is healthy, the evidence is not"
	}
	onset, lasts := p.Fault()
	fmt.Fprintf(e.out, "%s · severity %v · from %s for %s · %s\n", what, t.Severity, onset, lasts, t.Engine)
	fmt.Fprintf(e.out, "%d requests in %d attempts: %d answered, %d refused, %d timed out, %d broken off; %d iterations, %d tokens.\n", s.Requests, s.Attempts, s.Complete, s.Refused, s.TimedOut, s.Broken, s.Iterations, s.Tokens)
	fmt.Fprintf(e.out, "written: %s; 'whylate look %s' and 'whylate explain --slowest ttft --from %s' read it, %s/truth.json says what they should find\n", dir, dir, dir, dir)
}

// evidence is what of a run is kept.
func evidence(without []string) (dialect.Evidence, error) {
	kinds := map[string]dialect.Evidence{"scrape": dialect.Scrapes, "log": dialect.Logs, "otlp": dialect.Traces, "wlc": dialect.Captures, "changes": dialect.Changes}
	keep := dialect.Everything
	for _, w := range without {
		k, ok := kinds[w]
		if !ok {
			return 0, usageError{fmt.Errorf("--without %q: give scrape, log, otlp, wlc or changes", w)}
		}
		keep &^= k
	}
	if keep&^dialect.Changes == 0 {
		return 0, usageError{errors.New("--without: something must be left as evidence")}
	}
	return keep, nil
}

// engineOf is the engine that an incident is played on: the demo's unless --like or --preset say otherwise.
func (c *incidentCommand) engineOf() (incident.Engine, error) {
	if c.preset != "" && c.like != "" {
		return incident.Engine{}, usageError{errors.New("--preset: give it without --like")}
	}
	if c.preset != "" {
		on, err := incident.Preset(c.preset)
		if err != nil {
			err = usageError{err}
		}
		return on, err
	}
	return c.e.likeEngine(c.like, c.engine)
}

// likeEngine is an engine as a capture has it; "" = the demo.
func (e *env) likeEngine(path, id string) (incident.Engine, error) {
	a := ingest.New()
	err := ingest.ReadCapture(bytes.NewReader(demoCapture), "the built-in demo", a)
	if path != "" {
		a = ingest.New()
		err = e.load([]string{path}, a)
	}
	if err != nil {
		return incident.Engine{}, err
	}
	g, err := server.FindEngine(a.Book(), id)
	if err != nil {
		return incident.Engine{}, fmt.Errorf("--like %s: %w", cmp.Or(path, demoName), err)
	}
	return incident.Calibrated(g)
}

// catalogued is a line of --list.
type catalogued struct {
	Name      string                 `json:"name"`
	Mechanism string                 `json:"mechanism,omitempty"`
	What      string                 `json:"what"`
	Twin      string                 `json:"twin,omitempty"`
	TwinOf    string                 `json:"twin_of,omitempty"`
	Needs     string                 `json:"needs,omitempty"`
	Moves     []incident.Movement    `json:"moves,omitempty"`
	Keeps     []string               `json:"must_not_move,omitempty"`
	Cure      *incident.Intervention `json:"cure,omitempty"`
}

// printList lists the catalogue: incidents by mechanism, then faults of telemetry. In the table a twin stands beside its incident.
func (c *incidentCommand) printList() error {
	var all []catalogued
	for _, i := range incident.Catalogue() {
		l := catalogued{Name: i.Name, Mechanism: i.Mechanism, What: i.What, TwinOf: i.TwinOf, Needs: i.Needs, Moves: i.Moves, Keeps: i.Keeps, Cure: i.Cure}
		if twin := i.Twin(); twin != nil {
			l.Twin = twin.Name
		}
		all = append(all, l)
	}
	return c.out.print(c.e, all, func() {
		shown := slices.DeleteFunc(slices.Clone(all), func(l catalogued) bool { return l.TwinOf != "" })
		slices.SortStableFunc(shown, func(a, b catalogued) int {
			return cmp.Compare(cmp.Or(a.Mechanism, "—"), cmp.Or(b.Mechanism, "—"))
		})
		t := c.e.table("INCIDENT", "OF", "WHAT", "HARMLESS TWIN", "TOLD APART BY")
		for _, l := range shown {
			t.row(l.Name, cmp.Or(l.Mechanism, "telemetry"), l.What, cmp.Or(l.Twin, "—"), cmp.Or(l.Needs, "—"))
		}
		t.end()
	})
}
