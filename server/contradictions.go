package server

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
)

// contradictions are what the ledger and the series of one engine say differently.
func (s *Server) contradictions(scene *look.Scene, who *joined) (facts []look.Fact) {
	defer s.hot.lock()()
	byID := map[ledger.EngineID]*ledger.Engine{}
	for _, e := range s.hot.l.Book.Engines {
		byID[e.ID] = e
	}
	for _, r := range who.replicas {
		var ranks []*ledger.Engine
		for _, id := range r.ranks {
			if e := byID[id]; e != nil {
				ranks = append(ranks, e)
			}
		}
		if len(ranks) == 0 {
			continue
		}
		for _, target := range who.targets[r.ranks[0].String()] {
			facts = append(facts, runningApart(scene, r.name, target, ranks)...)
			facts = append(facts, saysApart(scene, r, target, ranks[0])...)
		}
	}
	for i := range facts {
		facts[i].ID = "contradiction"
	}
	return facts
}

// What the scheduler and the engine's gauge say is compared where both do at one moment. They differ for a moment all the time: it takes so many
// moments, over such a time, all of them apart by more than two requests and a fifth.
const (
	apartSights = 5
	apartFor    = time.Minute
)

// runningApart holds the running requests of an engine's gauge against those of its scheduler.
func runningApart(scene *look.Scene, name, target string, ranks []*ledger.Engine) []look.Fact {
	gauge := map[int64]float64{} // by time, of all ranks
	native := ""
	for _, r := range scene.Of("request.running") {
		if r.Target == target && r.Who.Producer == ranks[0].Name {
			native = r.Native.Name
			for _, p := range r.Points {
				gauge[p.At] += p.Value
			}
		}
	}
	var sights, above int
	var from, to int64
	var told, counted float64
	for _, at := range slices.Sorted(maps.Keys(gauge)) {
		running, known := runningAt(ranks, at)
		if !known {
			continue
		}
		off := gauge[at] - running
		if max(off, -off) <= max(2, running/5, gauge[at]/5) {
			return nil
		}
		if off > 0 {
			above++
		}
		if sights == 0 {
			from = at
		}
		sights, to, told, counted = sights+1, at, gauge[at], running
	}
	if sights < apartSights || to-from < int64(apartFor) || above != 0 && above != sights {
		return nil
	}
	return []look.Fact{{Weight: look.Wrong, Path: "request", About: name,
		Text: fmt.Sprintf("%s: its scheduler has %.0f requests running, its gauge %s at %s says %.0f, and so it was %d times in %s.", name, counted, native, target, told, sights, time.Duration(to-from).Round(time.Second)),
		Do:   "One of the two is of another engine. Look at 'whylate signals join'; name the right pair in identity.aliases, or give each engine a WHYLATE_REPLICA of its own."}}
}

// runningAt is how many requests the schedulers of all ranks had running at a time; false where an iteration of one is not known then.
func runningAt(ranks []*ledger.Engine, at int64) (sum float64, known bool) {
	for _, e := range ranks {
		k := sort.Search(len(e.Iterations), func(i int) bool { return e.Iterations[i].Decided > at }) - 1
		if k < 0 || e.Iterations[k].End < at {
			return 0, false
		}
		sum += float64(e.Iterations[k].Running)
	}
	return sum, true
}

// saysApart holds the version and the model that an engine told at its start against what its series say.
func saysApart(scene *look.Scene, r replica, target string, e *ledger.Engine) (facts []look.Fact) {
	differ := func(what, told, found, where, do string) {
		facts = append(facts, look.Fact{Weight: look.Wrong, Path: "request", About: r.name, Do: do,
			Text: fmt.Sprintf("%s told the %s %s at its start, and %s at %s says %s.", r.name, what, told, where, target, found)})
	}
	seen := map[string]bool{}
	for _, t := range scene.Tracks {
		if t.Target != target || seen[t.Family] || !strings.HasSuffix(t.Family, "_info") {
			continue
		}
		a := dialects.Of(t.Family)
		if t.Family != "target_info" && (a == nil || a.Producer != e.Name) {
			continue
		}
		for _, label := range []string{"version", "engine_version", e.Name + "_version", "service_version"} {
			if v := t.Labels.Get(label); v != "" && e.Version != "" && v != e.Version {
				seen[t.Family] = true
				differ("version", e.Version, v, t.Family, "One of the two is of another engine, or was not restarted after an upgrade: look at 'whylate changes' and 'whylate signals join'.")
				break
			}
		}
	}
	models := map[string]bool{}
	for _, x := range scene.Readings {
		if x.Target == target && x.Who.Producer == e.Name && x.Who.Model != "" {
			models[x.Who.Model] = true
		}
	}
	if len(models) == 1 && r.model != "" && !r.sure {
		served := slices.Collect(maps.Keys(models))[0]
		if served != r.model && path.Base(served) != path.Base(r.model) {
			differ("model", r.model, served, "model_name", "Is that its --served-model-name, or another engine? They are joined by what is only likely: say it in identity.aliases.")
		}
	}
	return facts
}
