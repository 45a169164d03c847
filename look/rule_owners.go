package look

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// owners tell which engine works on which GPU, and of which GPU nobody says whose it is.
func owners(s *Scene) (facts []Fact) {
	ds := s.devices()
	podded := slices.ContainsFunc(s.whole(), func(e adapter.Who) bool { return e.Workload != "" })
	var joined, unknown, alone, order []string
	works := map[string][]*device{}
	for _, d := range ds {
		if len(d.instances) > 0 { // each has its own
			continue
		}
		var of []string
		for _, o := range d.owners {
			if w, how, ok := s.engineOf(o); ok && how == byPod {
				o += fmt.Sprintf(" (%s)", w)
			} else if ok && how == byName {
				o += fmt.Sprintf(" (%s, %s)", w, how)
			} else if podded {
				alone = append(alone, o)
			}
			of = append(of, o)
		}
		switch pod := d.exporterPod(); {
		case len(of) > 0:
			whose := strings.Join(of, ", ")
			order = with(order, whose)
			works[whose] = append(works[whose], d)
		case pod != "":
			unknown = append(unknown, fmt.Sprintf("%s: owner unknown; its labels name only the exporter itself (%s).", d.withID(), exposition.Printable(pod, 60)))
		}
	}
	for _, whose := range order {
		joined = append(joined, whose+" on "+together(works[whose])+".")
	}
	if len(unknown) > 0 || len(joined) > 0 && podded {
		f := Fact{Weight: Notice, Path: "gpu", Text: sentence("Who works on which GPU (joined "+byPod+"):", few(joined, 4), few(unknown, 4), sameIndex(ds), links(ds))}
		if len(joined) == 0 {
			f.Text = sentence(few(unknown, 4), sameIndex(ds), links(ds))
		}
		if len(alone) > 0 {
			f.Instead = "No engine was read of " + list(alone, 4, 60) + "."
		}
		facts = append(facts, f)
	}
	return facts
}

// together names devices: one with its identity, several by their names.
func together(ds []*device) string {
	if len(ds) == 1 {
		return ds[0].withID()
	}
	var names []string
	for _, d := range ds {
		names = append(names, ofMany(ds, d))
	}
	text := list(names, 8, 80)
	if node := ds[0].who.Node; node != "" && !strings.Contains(names[0], node) {
		text += " of " + exposition.Printable(node, 60)
	}
	return text
}

// exporterPod is the pod in a device's labels that is the exporter's.
func (d *device) exporterPod() string {
	for _, r := range d.readings {
		if pod := adapter.Workload(r.Labels.Without("exported_pod")); pod != "" {
			return pod
		}
	}
	return ""
}

// sameIndex tells that GPUs of different hosts have one index, which is no identity.
func sameIndex(ds []*device) string {
	byIndex := map[string]int{}
	for _, d := range ds {
		if identified(d) {
			byIndex[d.who.Index]++
		}
	}
	for _, index := range sortedKeys(byIndex) {
		if n := byIndex[index]; n > 1 && index != "" {
			return fmt.Sprintf("%d different GPUs are called gpu=\"%s\": they are told apart by UUID, else by address and node.", n, index)
		}
	}
	return ""
}

// links tell that a metric of links belongs to a GPU, by its UUID.
func links(ds []*device) string {
	for _, d := range ds {
		for _, r := range d.readings {
			if r.Labels.Get("gpu_uuid") == "" {
				continue
			}
			text := fmt.Sprintf("%s has other labels: its gpu_uuid is that of %s", r.Family, d)
			if model := r.Labels.Get("model_name"); model != "" {
				text += fmt.Sprintf(", its model_name (%s) is the board's, no language model's", exposition.Printable(model, 40))
			}
			return text + "."
		}
	}
	return ""
}
