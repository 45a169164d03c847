package look

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// mixedVersions tells of engines of one kind that speak by old names beside others that speak by new ones.
func mixedVersions(s *Scene) (facts []Fact) {
	old, current := map[string]map[string]bool{}, map[string]map[string]bool{} // producer: targets
	names := map[string]map[string]string{}                                    // producer: old name: new one
	put := func(m map[string]map[string]bool, producer, target string) {
		if m[producer] == nil {
			m[producer] = map[string]bool{}
		}
		m[producer][target] = true
	}
	for _, r := range s.Readings {
		p := r.Who.Producer
		switch {
		case isDevice(r): // their history goes on under the new names: deviceRenames
		case r.Native.Until != "":
			put(old, p, r.Target)
			if names[p] == nil {
				names[p] = map[string]string{}
			}
			names[p][r.Native.Name] = successor(r.Signal.From, p)
		case renamed(r.Signal.From, p):
			put(current, p, r.Target)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(old)) {
		for t := range old[p] {
			delete(current[p], t) // one that speaks both ways is old: the new names it has are not renamed ones
		}
		if len(current[p]) == 0 {
			continue
		}
		var renames []string
		for _, o := range slices.Sorted(maps.Keys(names[p])) {
			renames = append(renames, o+" is "+names[p][o])
		}
		facts = append(facts, Fact{Weight: Notice, Path: "request", About: adapter.Title(p),
			Text: fmt.Sprintf("Mixed versions of %s: %s by old names, %s by new ones. Read as one here: %s. %s", adapter.Title(p), speak(old[p]), speak(current[p]), strings.Join(renames, "; "), sideBySide(s, p)),
			Do:   "A difference across the upgrade is no difference of one series."})
	}
	return facts
}

func speak(targets map[string]bool) string {
	var names []string
	for _, t := range slices.Sorted(maps.Keys(targets)) {
		names = append(names, exposition.Printable(t, 80))
	}
	if len(names) == 1 {
		return names[0] + " speaks"
	}
	return strings.Join(names, ", ") + " speak"
}

// sideBySide are the figures that such a fleet's dashboards lose, target by target.
func sideBySide(s *Scene, producer string) string {
	var said []string
	for _, w := range s.Engines() {
		if w.Producer != producer {
			continue
		}
		var of []string
		if v, ok := s.last("kv.usage", w); ok {
			of = append(of, "KV "+share(v))
		}
		if hits, queries := s.recent("kv.prefix_hits", w), s.recent("kv.prefix_queries", w); queries > 0 {
			of = append(of, "hit rate "+share(hits/queries))
		}
		for _, r := range s.about("itl", w) {
			if h, _ := r.Observed(); h.Count > 0 {
				of = append(of, "gap between outputs "+seconds(h.Mean()))
			}
		}
		if len(of) > 0 {
			said = append(said, fmt.Sprintf("%s: %s.", exposition.Printable(w.Target, 80), strings.Join(of, ", ")))
		}
	}
	return strings.Join(said, " ")
}
