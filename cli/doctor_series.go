package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/identity"
)

// linesEach is how many findings of one check are told one by one.
const linesEach = 10

// telling are the facts about what arrives that are somebody's to mend: settings, names and versions. What else is known is for 'whylate look'.
var telling = []string{"objective-unseen", "contradiction", "two-names", "two-nodes", "two-meanings", "mixed-versions", "gone-with-a-version", "gpu-renames", "labels-explode"}

// arriving looks at what a server is sent beside the probe's records, and at whether it can be joined with them.
func (d *doctor) arriving(ctx context.Context, svc api.Service) {
	o, ok := svc.(api.Observer)
	if !ok {
		d.ok("series", "could not be looked at: only a server takes in series ('whylate serve')")
		return
	}
	list, err := o.Signals(ctx)
	if err != nil {
		d.ok("series", "could not be looked at: %v", err)
		return
	}
	d.series = len(list.Arrives)+len(list.Unused) > 0
	targets := d.scraping(ctx, svc, list)
	d.facts(list)
	j, err := o.Identities(ctx)
	if err != nil {
		d.ok("identity", "could not be looked at: %v", err)
		return
	}
	d.joins(j, targets)
	for _, c := range j.Clocks {
		d.wrong("clocks", "let one time service keep both hosts' clocks (chrony); until then times of calls are corrected by this", "the clock of %s is %s", c.Clock, apart(c))
	}
}

// scraping tells where nothing is read. It returns how many targets there are.
func (d *doctor) scraping(ctx context.Context, svc api.Service, list *api.SignalList) int {
	s, ok := svc.(api.Scraper)
	if !ok {
		d.ok("scraping", "could not be looked at: this server does not tell what it reads")
		return 0
	}
	l, err := s.Targets(ctx)
	if err != nil {
		d.ok("scraping", "could not be looked at: %v", err)
		return 0
	}
	down := slices.DeleteFunc(slices.Clone(l.Targets), func(t api.Target) bool { return t.Health != api.TargetDown })
	switch n := len(l.Targets); {
	case n == 0 && len(list.Arrives)+len(list.Unused) == 0:
		d.wrong("scraping", "scrape.jobs: [{job_name: engines, static_configs: [{targets: ['HOST:8000']}]}], or send remote write to /prometheus/api/v1/write or OTLP to otlp.grpc",
			"no metrics page is read, and no series come any other way: what the probe does not tell is not known")
	case n == 0:
		d.ok("scraping", "no metrics page is read; series come by other ways")
	case len(down) == n:
		d.wrong("scraping", down[0].Remedy, "none of %d targets can be read; %s: %s", n, down[0].URL, down[0].Error)
	default:
		d.ok("scraping", "%d of %d targets are read", n-len(down), n)
	}
	return len(l.Targets)
}

// facts tells what is to be mended of what arrives.
func (d *doctor) facts(list *api.SignalList) {
	told, rest := 0, 0
	for _, f := range list.Facts {
		switch {
		case !slices.Contains(telling, f.ID):
			rest++
		case told < linesEach:
			told++
			text := f.Text
			if f.Instead != "" {
				text += " " + f.Instead
			}
			d.wrong("series", f.Do, "%s", text)
		default:
			told++
		}
	}
	if told > linesEach {
		d.wrong("series", "", "… and %d more", told-linesEach)
	}
	var refused uint64
	for _, r := range list.Refused {
		refused += r.Count
	}
	if refused > 0 {
		d.ok("series", "%d samples were not let in as they were; 'whylate signals' says whose and why", refused)
	}
	if rest > 0 {
		d.ok("series", "%d more facts about what arrives: 'whylate look'", rest)
	}
	if told+rest == 0 {
		d.ok("series", "%d signals arrive, none is in doubt", len(list.Arrives))
	}
}

// joins tells of engines that one source knows and another should.
func (d *doctor) joins(j *api.Identities, targets int) {
	with := func(group []int, is func(identity.Thing) bool) bool {
		return slices.ContainsFunc(group, func(i int) bool { return is(j.Things[i]) })
	}
	ofProbe := func(t identity.Thing) bool { return t.Kind == identity.Engine && t.Source == "probe" }
	ofMetrics := func(t identity.Thing) bool { return t.Kind == identity.Engine && t.Target != "" }
	ofTraces := func(t identity.Thing) bool { return t.Kind == identity.Engine && t.Source == "traces" }
	var probes, metrics, told []string
	for i, t := range j.Things {
		group := []int{i}
		if k := slices.IndexFunc(j.Groups, func(g []int) bool { return slices.Contains(g, i) }); k >= 0 {
			group = j.Groups[k]
		}
		switch {
		case ofProbe(t) && !with(group, ofMetrics):
			probes = append(probes, t.Name)
		case ofMetrics(t) && !with(group, ofProbe):
			metrics = append(metrics, t.Name)
		case ofTraces(t) && len(group) == 1:
			told = append(told, t.Name)
		}
	}
	hasProbes, hasSeries := slices.ContainsFunc(j.Things, ofProbe), slices.ContainsFunc(j.Things, ofMetrics)
	alias := func(a, b []string) string {
		if len(a) == 0 || len(b) == 0 {
			return ""
		}
		return fmt.Sprintf("if they are one, identity.aliases: ['%s = %s']; else ", a[0], b[0])
	}
	if targets > 0 || hasSeries {
		d.each("identity", probes, alias(probes, metrics)+"add its /metrics to scrape.jobs", "engine %s has no series that could be joined with it")
	}
	if hasProbes {
		d.each("identity", metrics, alias(probes, metrics)+"put the probe into it (docs/probe.md), or give it a WHYLATE_REPLICA that its labels name", "%s has no engine that the probe tells of")
	}
	if hasProbes || hasSeries {
		d.each("identity", told, "give its spans host.name, k8s.pod.name or service.instance.id (OTEL_RESOURCE_ATTRIBUTES) as the engine's other sources have them, or identity.aliases", "spans of engine %s match nothing else that is known")
	}
	for _, n := range j.Notes {
		d.wrong("identity", "identity.aliases: 'whylate signals join' prints the names", "%s", n)
	}
	likely := 0
	for _, l := range j.Links {
		if !l.Certain {
			likely++
		}
	}
	if likely > 0 {
		d.ok("identity", "%d joins are only likely; 'whylate signals join' shows them, identity.aliases makes them certain", likely)
	}
}

// each tells the same of several things.
func (d *doctor) each(check string, names []string, remedy, format string) {
	for i, name := range names {
		if i == linesEach {
			d.wrong(check, "", "… and so it is with %d more", len(names)-i)
			return
		}
		d.wrong(check, remedy, format, name)
	}
}
