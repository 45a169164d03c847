package look

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/exposition"
)

// twoNames tell of engines that send one signal under an outdated and a current name: whoever adds both up counts twice.
func twoNames(s *Scene) (facts []Fact) {
	type key struct{ producer, signal, old string }
	targets := map[key][]string{}
	for _, r := range s.outdone {
		if r.Native.Until != "" {
			k := key{r.Who.Producer, r.Signal.Name, r.Native.Name}
			targets[k] = with(targets[k], r.Target)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(targets), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.producer, b.producer), cmp.Compare(a.old, b.old))
	}) {
		f := Fact{Weight: Notice, About: adapter.Title(k.producer), Path: "request",
			Text: fmt.Sprintf("%s of %s comes under two names from %s: %s and %s. Only the second is read.", k.signal, adapter.Title(k.producer), list(slices.Sorted(slices.Values(targets[k])), 3, 40), k.old, s.bestName(k.producer, k.signal))}
		f.Do = fmt.Sprintf("Drop %s where it is scraped (metric_relabel_configs: action drop), and take it out of dashboards that add both up.", k.old)
		if k.producer == "vllm" {
			f.Do = fmt.Sprintf("Take --show-hidden-metrics-for-version off the engine, or drop %s where it is scraped (metric_relabel_configs: action drop).", k.old)
		}
		facts = append(facts, f)
	}
	return facts
}

// bestName is the native name under which a signal of a producer is read.
func (s *Scene) bestName(producer, signal string) string {
	for _, r := range s.Readings {
		if r.Who.Producer == producer && r.Signal.Name == signal {
			return r.Native.Name
		}
	}
	return nameOf(signal, producer)
}

// twoNodes tell of a GPU, one UUID, that several nodes claim to have.
func twoNodes(s *Scene) (facts []Fact) {
	nodes := map[string][]string{}
	for _, r := range s.Readings {
		if w := r.Who; w.Device != "" && w.Node != "" && dcgm.Identified(w) {
			nodes[w.Device] = with(nodes[w.Device], w.Node)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		if of := nodes[id]; len(of) > 1 {
			slices.Sort(of)
			facts = append(facts, Fact{Weight: Wrong, Path: "gpu", About: exposition.Printable(id, 60),
				Text: fmt.Sprintf("GPU %s is on %d nodes at once: %s.", exposition.Printable(id, 60), len(of), list(of, 4, 40)),
				Do:   "Give both exporters' targets one label for the node (Hostname or node): a relabel rule, or a container's host name, stands there for one of them."})
		}
	}
	return facts
}

// twoMeanings tell of a signal that one producer's targets send under names that do not mean the same: a version changed it.
func twoMeanings(s *Scene) (facts []Fact) {
	type key struct{ producer, signal string }
	type sense struct {
		name, means string
		targets     []string
	}
	senses := map[key][]sense{}
	for _, r := range slices.Concat(s.Readings, s.outdone) {
		means := strings.Join(slices.DeleteFunc([]string{r.Native.Begins, r.Native.Ends, r.Native.Note}, func(s string) bool { return s == "" }), ", ")
		k := key{r.Who.Producer, r.Signal.Name}
		i := slices.IndexFunc(senses[k], func(x sense) bool { return x.name == r.Native.Name })
		if i < 0 {
			i = len(senses[k])
			senses[k] = append(senses[k], sense{name: r.Native.Name, means: means})
		}
		senses[k][i].targets = with(senses[k][i].targets, r.Target)
	}
	for _, k := range slices.SortedFunc(maps.Keys(senses), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.producer, b.producer), cmp.Compare(a.signal, b.signal))
	}) {
		of := senses[k]
		if len(of) < 2 || !slices.ContainsFunc(of, func(x sense) bool { return x.means != of[0].means && !slices.Equal(x.targets, of[0].targets) }) {
			continue
		}
		var said []string
		for _, x := range of {
			said = append(said, fmt.Sprintf("%s of %s (%s)", x.name, list(slices.Sorted(slices.Values(x.targets)), 3, 40), cmp.Or(x.means, "as usual")))
		}
		facts = append(facts, Fact{Weight: Notice, Path: "request", About: adapter.Title(k.producer),
			Text: fmt.Sprintf("%s does not mean the same everywhere: %s.", k.signal, strings.Join(said, "; ")),
			Do:   "Compare targets of one version with each other alone, or bring all to one."})
	}
	return facts
}
