// Command signalsgen writes signals/registry.go and docs/signals.md from signals/signals.yaml. It is what 'make signals' runs, in the folder
// signals.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

type native struct {
	Name, Kind, Until, Note, Begins, Ends string
	Times                                 float64
	Late                                  bool
	Where                                 map[string]string
}

type signal struct {
	Name, Kind, Unit, Scope, Path, Part, Owner, Question, Keep, Add string
	Series                                                          int
	Range                                                           []float64
	Fastest                                                         float64
	From                                                            map[string][]native
}

type derived struct {
	Name, Unit, Scope, Path, Question, Formula, Unable string
	Inputs                                             []string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "signalsgen:", err)
		os.Exit(1)
	}
}

func run() error {
	b, err := os.ReadFile("signals.yaml")
	if err != nil {
		return err
	}
	code, page, err := generate(b)
	if err != nil {
		return fmt.Errorf("signals.yaml: %w", err)
	}
	if err := os.WriteFile("registry.go", code, 0o644); err != nil {
		return err
	}
	return os.WriteFile("../docs/signals.md", page, 0o644)
}

func generate(b []byte) (code, page []byte, err error) {
	var file struct {
		Signals []signal
		Derived []derived
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for _, s := range file.Signals {
		if err := s.check(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		if seen[s.Name] {
			return nil, nil, fmt.Errorf("%s is there twice", s.Name)
		}
		seen[s.Name] = true
	}
	for _, d := range file.Derived {
		if err := d.check(seen); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.Name, err)
		}
		if seen[d.Name] {
			return nil, nil, fmt.Errorf("%s is there twice", d.Name)
		}
	}
	code, err = format.Source(append(goFile(file.Signals), goDerived(file.Derived)...))
	return code, append(markdown(file.Signals), derivedTable(file.Derived)...), err
}

func (d *derived) check(registered map[string]bool) error {
	for _, f := range []struct{ field, value string }{{"name", d.Name}, {"unit", d.Unit}, {"question", d.Question}, {"formula", d.Formula}, {"unable", d.Unable}} {
		if f.value == "" {
			return fmt.Errorf("%s must be given", f.field)
		}
	}
	if !slices.Contains([]string{"gateway", "engine", "device"}, d.Scope) || !slices.Contains([]string{"request", "token", "gpu", "quality"}, d.Path) {
		return fmt.Errorf("scope is %q and path %q; they are those of a signal", d.Scope, d.Path)
	}
	if len(d.Inputs) == 0 {
		return fmt.Errorf("it is derived from nothing")
	}
	for _, name := range d.Inputs {
		if !registered[name] {
			return fmt.Errorf("its input %q is not registered", name)
		}
	}
	return nil
}

func goDerived(list []derived) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\nvar derived = []Derived{\n")
	for _, d := range list {
		fmt.Fprintf(&b, "{Name: %q, Unit: %q, Scope: %q, Path: %q, Question: %q, Formula: %q, Inputs: %#v, Unable: %q},\n", d.Name, d.Unit, d.Scope, d.Path, d.Question, d.Formula, d.Inputs, d.Unable)
	}
	fmt.Fprintf(&b, "}\n")
	return b.Bytes()
}

func derivedTable(list []derived) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n## Derived\n\nComputed from the signals above. Δ is growth over the time looked at.\n\n| signal | unit | question | formula | what it cannot say |\n|---|---|---|---|---|\n")
	for _, d := range list {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.Name, d.Unit, d.Question, d.Formula, d.Unable)
	}
	return b.Bytes()
}

func (s *signal) check() error {
	for _, c := range []struct {
		field, value string
		allowed      string
	}{
		{"kind", s.Kind, "counter gauge histogram info"}, {"scope", s.Scope, "gateway engine device"}, {"path", s.Path, "request token gpu quality"},
		{"keep", s.Keep, "detail rollup"}, {"add", s.Add, "sum mean none"}, {"part", cmp.Or(s.Part, "none"), "none gateway frontend inbox queue prefill decode transfer stream"},
	} {
		if !slices.Contains(strings.Fields(c.allowed), c.value) {
			return fmt.Errorf("%s is %q; allowed are %s", c.field, c.value, c.allowed)
		}
	}
	switch {
	case s.Name == "" || s.Unit == "" || s.Owner == "" || s.Question == "":
		return fmt.Errorf("name, unit, owner and question must be given")
	case s.Series <= 0:
		return fmt.Errorf("series is %d; a budget is at least 1", s.Series)
	case s.Range != nil && (len(s.Range) != 2 || s.Range[0] >= s.Range[1]):
		return fmt.Errorf("range is %v; it is a least and a most value", s.Range)
	case s.Fastest < 0 || s.Fastest > 0 && s.Kind != "counter":
		return fmt.Errorf("fastest is %v; it is a counter's growth a second, above 0", s.Fastest)
	case len(s.From) == 0:
		return fmt.Errorf("nobody sends it")
	}
	for producer, ns := range s.From {
		for _, n := range ns {
			if n.Name == "" {
				return fmt.Errorf("%s sends it without a name", producer)
			}
		}
	}
	return nil
}

const generated = "generated by internal/signalsgen from signals/signals.yaml"

func goFile(signals []signal) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code %s; DO NOT EDIT.\n\npackage signals\n\nvar registry = []Signal{\n", generated)
	for _, s := range signals {
		fmt.Fprintf(&b, "{Name: %q, Kind: %q, Unit: %q, Scope: %q, Path: %q, Part: %q, Owner: %q, Question: %q, Keep: %q, Series: %d, Add: %q, ",
			s.Name, s.Kind, s.Unit, s.Scope, s.Path, s.Part, s.Owner, s.Question, s.Keep, s.Series, s.Add)
		if s.Range != nil {
			fmt.Fprintf(&b, "Range: &Range{%v, %v}, ", s.Range[0], s.Range[1])
		}
		if s.Fastest > 0 {
			fmt.Fprintf(&b, "Fastest: %v, ", s.Fastest)
		}
		fmt.Fprintf(&b, "From: []Native{\n")
		for _, producer := range slices.Sorted(maps.Keys(s.From)) {
			for _, n := range s.From[producer] {
				times := n.Times
				if times == 0 {
					times = 1
				}
				fmt.Fprintf(&b, "{Producer: %q, Name: %q, Times: %v", producer, n.Name, times)
				for _, f := range []struct{ name, value string }{{"Kind", n.Kind}, {"Until", n.Until}, {"Note", n.Note}, {"Begins", n.Begins}, {"Ends", n.Ends}} {
					if f.value != "" {
						fmt.Fprintf(&b, ", %s: %q", f.name, f.value)
					}
				}
				if n.Late {
					fmt.Fprintf(&b, ", Late: true")
				}
				if len(n.Where) > 0 {
					fmt.Fprintf(&b, ", Where: map[string]string{")
					for _, k := range slices.Sorted(maps.Keys(n.Where)) {
						fmt.Fprintf(&b, "%q: %q,", k, n.Where[k])
					}
					fmt.Fprintf(&b, "}")
				}
				fmt.Fprintf(&b, "},\n")
			}
		}
		fmt.Fprintf(&b, "}},\n")
	}
	fmt.Fprintf(&b, "}\n")
	return b.Bytes()
}

func markdown(signals []signal) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Signals\n\n<!-- %s -->\n\nWhat whylate measures, under one name whoever sends it. A name without a producer's prefix is ours, or OpenTelemetry's.\n", generated)
	for _, path := range []string{"request", "token", "gpu", "quality"} {
		wrote := false
		for _, s := range signals {
			if s.Path != path {
				continue
			}
			if !wrote {
				fmt.Fprintf(&b, "\n## The %s path\n\n| signal | kind, unit | question | across ranks | from |\n|---|---|---|---|---|\n", path)
				wrote = true
			}
			var from []string
			for _, producer := range slices.Sorted(maps.Keys(s.From)) {
				for _, n := range s.From[producer] {
					from = append(from, n.words())
				}
			}
			fmt.Fprintf(&b, "| %s | %s, %s | %s | %s | %s |\n", s.Name, s.Kind, s.Unit, s.Question, s.Add, strings.Join(from, "<br>"))
		}
	}
	return b.Bytes()
}

func (n *native) words() string {
	text := "`" + n.Name + "`"
	for _, k := range slices.Sorted(maps.Keys(n.Where)) {
		text += fmt.Sprintf(" with %s=%s", k, n.Where[k])
	}
	var notes []string
	if n.Times != 0 && n.Times != 1 {
		notes = append(notes, fmt.Sprintf("times %g", n.Times))
	}
	if n.Until != "" {
		notes = append(notes, "before "+n.Until)
	}
	if n.Begins != "" {
		notes = append(notes, n.Begins+" → "+n.Ends)
	}
	if n.Late {
		notes = append(notes, "moves when a request ends")
	}
	if n.Note != "" {
		notes = append(notes, n.Note)
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	return text
}
