package look

import (
	"fmt"
	"slices"
	"strings"
)

// deviceRenames tell of GPUs that were read under old names and under new ones: their history is one. So is a fleet of both kinds.
func deviceRenames(s *Scene) (facts []Fact) {
	names := map[string]string{} // old: new
	var goOn, old, current []string
	for _, d := range s.devices() {
		var before, after, both []string // signals
		for _, r := range d.readings {
			switch {
			case r.Who.Producer != "dcgm":
			case r.Native.Until != "":
				before = with(before, r.Signal.Name)
				names[r.Native.Name] = successor(r.Signal.From, r.Who.Producer)
			case renamed(r.Signal.From, r.Who.Producer):
				after = with(after, r.Signal.Name)
			}
		}
		for _, signal := range before {
			if slices.Contains(after, signal) {
				both = append(both, signal)
			}
		}
		switch {
		case len(both) > 0:
			goOn = append(goOn, fmt.Sprintf("%s: %s.", d, d.continued(s, both)))
		case len(before) > 0 && len(after) == 0:
			old = append(old, d.String())
		case len(before) == 0 && len(after) > 0:
			current = append(current, d.String())
		}
	}
	var text string
	switch {
	case len(goOn) > 0:
		text = "DCGM changed its names: these GPUs were read under old ones (before 4.6) and under new ones. Each is one series across the change (before → after, or one number for both): " + few(goOn, 4)
	case len(old) > 0 && len(current) > 0:
		text = fmt.Sprintf("Mixed versions of DCGM: %s by old names, %s by new ones (4.6).", list(old, 4, 80), list(current, 4, 80))
	default:
		return nil
	}
	var renames []string
	for _, o := range sortedKeys(names) {
		renames = append(renames, strings.TrimPrefix(o, "DCGM_FI_")+" is "+strings.TrimPrefix(names[o], "DCGM_FI_"))
	}
	return []Fact{{Weight: Notice, Path: "gpu", Text: sentence(text, "Read as one: "+strings.Join(renames, "; ")+"."),
		Do: "The field decides the unit, not the suffix: GPU_UTIL_RATIO counts from 0 to 100, PROF_*_RATIO and FB_USED_RATIO from 0 to 1; here all are in %."}}
}

// continued is what a device's signals read at first, under the old name, and at last.
func (d *device) continued(s *Scene, of []string) string {
	var said []string
	for _, signal := range of {
		if signal == "gpu.clock_events" || signal == "gpu.xid" {
			continue
		}
		if ps := d.series(s, signal, ""); len(ps) > 0 {
			before, after := inUnit(signal, ps[0].Value), inUnit(signal, ps[len(ps)-1].Value)
			if before != after {
				after = before + " → " + after
			}
			said = append(said, call(signal)+" "+after)
		}
	}
	return strings.Join(said, ", ")
}
