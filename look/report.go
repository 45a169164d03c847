package look

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/exposition"
)

// Report is what a look shows: what is there, the four paths, what is certain, and what to do next.
type Report struct {
	Recorded   *Recorded   `json:"recorded,omitempty"` // of the whylate server that was asked
	Found      []Found     `json:"found"`
	Bundles    []Bundled   `json:"bundles,omitempty"`
	Captured   *Captured   `json:"captured,omitempty"` // what captures hold
	Paths      []PathState `json:"paths"`
	Derived    []Derived   `json:"derived,omitempty"`     // signals that are computed from others, of each engine
	NotDerived []string    `json:"not_derived,omitempty"` // what cannot be computed of a device, and why
	Facts      []Fact      `json:"facts"`
	Changed    []Changed   `json:"changed,omitempty"` // in the time that was looked at
	Traces     *genai.View `json:"traces,omitempty"`  // model calls, and where the time of each went
	Logs       []LogReport `json:"logs,omitempty"`
	Read       []Source    `json:"read"`               // every input, what it was taken for, and what of it could not be taken
	Problems   []string    `json:"problems,omitempty"` // the latter, of all
	Next       string      `json:"next"`
}

// Nothing reports whether nobody was recognised, and nothing was found.
func (r *Report) Nothing() bool { return len(r.Found)+len(r.Facts) == 0 && r.Traces == nil }

// Found is something that speaks.
type Found struct {
	Producer string   `json:"producer"`
	Versions []string `json:"versions,omitempty"` // from logs: metrics tell none
	Models   []string `json:"models,omitempty"`
	Unnamed  bool     `json:"unnamed,omitempty"` // some of it names no model where it should
	Targets  []string `json:"targets"`
	Ranks    int      `json:"ranks,omitempty"` // data-parallel ranks; they are no replicas
	Devices  int      `json:"devices,omitempty"`
	Logs     int      `json:"logs,omitempty"`
}

// Judge makes the report of a scene.
func Judge(s *Scene) *Report {
	r := &Report{Recorded: s.Recorded, Found: found(s), Bundles: bundled(s), Captured: inCaptures(s), Facts: judge(s), Traces: s.Traces, Read: append([]Source{}, s.Sources...)}
	offerWaits(s)
	r.Changed, r.Derived, r.NotDerived = changesIn(s), derivedIn(s), notDerived(s)
	r.Paths = paths(s, r.Facts)
	for _, src := range s.Sources {
		for _, p := range src.Problems {
			r.Problems = append(r.Problems, exposition.Printable(src.Name, 80)+": "+p)
		}
	}
	for _, l := range s.Logs {
		r.Logs = append(r.Logs, l.report())
	}
	r.Next = next(s, r)
	return r
}

func found(s *Scene) (fs []Found) {
	ranks := map[string]map[string]bool{}
	devices := s.devices()
	of := func(producer string) *Found {
		i := slices.IndexFunc(fs, func(f Found) bool { return f.Producer == producer })
		if i < 0 {
			i = len(fs)
			fs = append(fs, Found{Producer: producer, Targets: []string{}})
			ranks[producer] = map[string]bool{}
		}
		return &fs[i]
	}
	for _, r := range s.Readings {
		f := of(r.Who.Producer)
		f.Models, f.Targets = with(f.Models, r.Who.Model), with(f.Targets, r.Target)
		f.Unnamed = f.Unnamed || !isDevice(r) && r.Who.Model == "" && r.Labels.Get("model_name") != ""
		if r.Who.Rank != "" {
			ranks[f.Producer][r.Target+"\xff"+r.Who.Rank] = true
		}
	}
	for _, l := range s.Logs {
		f := of(l.Producer)
		f.Versions, f.Models, f.Logs = with(f.Versions, l.started.version), with(f.Models, l.started.model), f.Logs+1
	}
	for _, e := range s.captured() {
		f := of(e.Name)
		f.Versions, f.Models = with(f.Versions, e.Version), with(f.Models, e.Model)
	}
	for i := range fs {
		slices.Sort(fs[i].Models) // not in the order in which a page has them
		slices.Sort(fs[i].Targets)
		if n := len(ranks[fs[i].Producer]); n > len(fs[i].Targets) {
			fs[i].Ranks = n
		}
		of, _ := known(slices.DeleteFunc(slices.Clone(devices), func(d *device) bool { return !d.from(fs[i].Producer) }))
		fs[i].Devices = len(of)
	}
	return fs
}

func with(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func next(s *Scene, r *Report) string {
	watched := slices.ContainsFunc(s.Readings, func(r *adapter.Reading) bool { return len(r.Points) > 1 || len(r.Hists) > 1 })
	switch {
	case r.Captured != nil && r.Captured.Worst != nil:
		return fmt.Sprintf("'%s' explains the slowest request millisecond by millisecond.", r.Captured.Worst.Command)
	case r.Recorded != nil && r.Recorded.Slowest != "":
		return fmt.Sprintf("'whylate explain %s' says who shared its iterations, and why it waited.", exposition.Printable(r.Recorded.Slowest, 60))
	case r.Recorded != nil && len(r.Found) == 0:
		return "The server has neither series nor requests of that time: 'whylate doctor' says why that may be."
	case len(r.Found) == 0 && r.Traces == nil:
		return "No engine, gateway or GPU was recognised. 'whylate look http://HOST:PORT/metrics' reads an engine itself."
	case len(s.Readings) == 0 && len(s.Logs) > 0:
		return "A log has no histogram and hides what it does not print. 'whylate look http://HOST:PORT/metrics' reads the engine itself; give its metrics and this log together."
	case !watched && len(r.Found) > 0:
		return "One scrape of each is counters since their start. Give two of the same target, or its address, to see what happens now."
	}
	return "To see who shared which iteration, and why a request waited, put the probe into the engine: docs/probe.md, then 'whylate explain REQUEST'."
}

// Text prints the report for a terminal of that many columns.
func (r *Report) Text(w io.Writer, columns int) error {
	p := &printer{w: w, columns: max(columns, 60)}
	for _, b := range r.Bundles {
		p.row("bundle", b.Text)
	}
	if r.Recorded != nil {
		p.row("asked", exposition.Printable(r.Recorded.Server, 80)+": "+r.Recorded.String())
	}
	for _, f := range r.Found {
		var of []string
		if len(f.Models) > 0 {
			if len(f.Models) > 1 {
				of = append(of, plural(len(f.Models), "model", "models"))
			}
			of = append(of, list(f.Models, 4, 60))
		}
		if f.Unnamed {
			of = append(of, "a model that the server does not know")
		}
		if len(f.Targets) > 0 {
			of = append(of, plural(len(f.Targets), "target", "targets"))
		}
		if f.Logs > 0 {
			of = append(of, plural(f.Logs, "log", "logs"))
		}
		if f.Ranks > 0 {
			of = append(of, plural(f.Ranks, "data-parallel rank", "data-parallel ranks"))
		}
		if f.Devices > 0 {
			of = append(of, plural(f.Devices, "GPU", "GPUs"))
		}
		name := strings.TrimSpace(adapter.Title(f.Producer) + " " + list(f.Versions, 4, 40))
		p.row("found", name+": "+strings.Join(of, ", "))
	}
	if r.Traces != nil {
		p.row("found", traced(r.Traces))
	}
	if r.Captured != nil {
		p.row("captured", r.Captured.Text)
	}
	if len(r.Found) == 0 && r.Traces == nil {
		p.row("found", "nothing that is known")
	}
	for i, l := range r.Logs {
		if i == mostLogs && len(r.Logs) > mostLogs+1 {
			p.row("log", plural(len(r.Logs)-i, "more", "more")+"; -o json has them all")
			break
		}
		p.row("log", l.Text)
	}
	p.line("")
	for _, s := range r.Paths {
		text := s.Text
		if s.Text == "" {
			text = "not seen: " + s.Switch
		} else if s.Switch != "" {
			text += "; " + s.Switch
		}
		p.row(string(s.Path), text)
	}
	for i, d := range worstDerived(r.Derived) {
		if i == 0 {
			p.line("")
		}
		p.row("derived", d.Text+" ("+d.About+")")
	}
	shown := map[string]int{} // facts of a rule and weight
	for i, f := range r.Facts {
		if i == 0 {
			p.line("")
		}
		kind := fmt.Sprint(f.ID, f.Weight)
		if shown[kind]++; shown[kind] <= mostAlike {
			p.row(mark[f.Weight], sentence(f.Text, f.Instead, f.Do))
		}
		if last := i+1 == len(r.Facts) || fmt.Sprint(r.Facts[i+1].ID, r.Facts[i+1].Weight) != kind; last && shown[kind] > mostAlike {
			p.row("", fmt.Sprintf("%d more like it; -o json has them all", shown[kind]-mostAlike))
		}
	}
	for i, c := range r.Changed {
		if i == 0 {
			p.line("")
		}
		if i == mostChanged && len(r.Changed) > mostChanged+1 {
			p.row("changed", plural(len(r.Changed)-i, "more", "more")+"; -o json has them all")
			break
		}
		p.row("changed", c.text())
	}
	if r.Traces != nil && p.err == nil {
		p.line("")
		p.err = r.Traces.Text(w)
	}
	if len(r.Problems) > 0 {
		p.line("")
		for i, s := range r.Problems {
			if i == 10 {
				p.row("", plural(len(r.Problems)-i, "more", "more")+"; -o json has them all")
				break
			}
			p.row("not read", s)
		}
	}
	p.line("")
	p.row("next", r.Next)
	return p.err
}

// mostAlike are as many facts of one kind as are told on one screen.
const mostAlike = 5

// mostChanged are as many changes as are told on one screen.
const mostChanged = 12

// mostLogs are as many as are described on one screen.
const mostLogs = 4

var mark = map[Weight]string{Broken: "BROKEN", Wrong: "wrong", Notice: "note"}

func list(names []string, most, width int) string {
	var shown []string
	for i, n := range names {
		if i == most && len(names) > most+1 {
			shown = append(shown, fmt.Sprintf("%d more", len(names)-most))
			break
		}
		shown = append(shown, exposition.Printable(n, width))
	}
	return strings.Join(shown, ", ")
}

// printer writes rows of a narrow first column and wrapped text.
type printer struct {
	w       io.Writer
	columns int
	err     error
}

const margin = 10

func (p *printer) line(s string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(s, " "))
	}
}

func (p *printer) row(name, text string) {
	line := fmt.Sprintf("%-*s", margin, name)
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > p.columns {
			p.line(line)
			line, empty = strings.Repeat(" ", margin), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.line(line)
}
