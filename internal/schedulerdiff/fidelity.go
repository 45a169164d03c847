package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/experiment/simulate/fidelity"
	"github.com/whylate/whylate/internal/figure"
)

// simulations is what the simulated scheduler showed in all runs of one version, in all and by kind of run.
type simulations struct {
	all   simulation
	kinds map[string]*simulation
	runs  int
	left  map[string]int // why: runs that were not simulated
}

func (s *simulations) add(c *comparison) {
	one := c.simulation
	if one == nil {
		return
	}
	if one.refused != "" {
		if s.left == nil {
			s.left = map[string]int{}
		}
		s.left[one.refused]++
		return
	}
	s.runs++
	for _, kind := range kindsOf(&c.run) {
		if s.kinds == nil {
			s.kinds = map[string]*simulation{}
		}
		if s.kinds[kind] == nil {
			s.kinds[kind] = &simulation{}
		}
		s.kinds[kind].sum(one)
	}
	s.all.sum(one)
	if one.wrongReason != "" {
		fmt.Printf("simulate, run %d (%s), left out for another reason, %s\n", c.run.Number, c.run.Weather, one.wrongReason)
	}
	for _, way := range []struct {
		name string
		of   *fidelity.Score
	}{{"one step", &one.oneStep}, {"free running", &one.free}} {
		for _, e := range way.of.Examples {
			fmt.Printf("simulate, run %d (%s), %s, %s\n", c.run.Number, c.run.Weather, way.name, e)
		}
	}
}

func (s *simulation) sum(o *simulation) {
	s.oneStep.Sum(o.oneStep)
	s.free.Sum(o.free)
	s.baseline.Sum(o.baseline)
	s.reasons += o.reasons
	s.rightReasons += o.rightReasons
}

// kindsOf says under which headings a run is counted.
func kindsOf(run *line) []string {
	var s struct {
		Asynchronous bool
		Policy       string
		Groups       float64
	}
	kinds := []string{"synchronous"}
	if json.Unmarshal(run.Settings, &s) != nil {
		return nil
	}
	if s.Asynchronous {
		kinds[0] = "asynchronous"
	}
	if s.Policy == "priority" {
		kinds = append(kinds, "priority")
	}
	if s.Groups > 0 {
		kinds = append(kinds, "n_above_1")
	}
	return kinds
}

// figures prints how much of what was decided the simulation decided, too. Their budgets are those of issue 7.
func (s *simulations) figures(sheet *figure.Sheet, version string) bool {
	for why, n := range s.left {
		fmt.Printf("simulate: vLLM %s: %d runs not simulated: %s\n", version, n, why)
	}
	ok := true
	judge := func(name string, part, of int, budget float64) {
		if of == 0 {
			return
		}
		ok = sheet.AtLeast("simulate/"+name, 100*float64(part)/float64(of), "%", budget) && ok
	}
	both := func(suffix string, c *simulation) {
		judge("one_step_"+suffix, c.oneStep.Right, c.oneStep.Decisions, 99.9)
		judge("one_step_nontrivial_"+suffix, c.oneStep.RightOfThem, c.oneStep.Nontrivial, 99.9)
		judge("free_"+suffix, c.free.Right, c.free.Decisions, 99)
		judge("free_nontrivial_"+suffix, c.free.RightOfThem, c.free.Nontrivial, 99)
	}
	both(version, &s.all)
	for _, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		both(version+"_"+kind, s.kinds[kind])
	}
	judge("reasons_"+version, s.all.rightReasons, s.all.reasons, 99.9)
	sheet.Report("simulate/reasons_compared_"+version, float64(s.all.reasons), "count")
	sheet.Report("simulate/decisions_"+version, float64(s.all.free.Decisions), "count")
	sheet.Report("simulate/decisions_one_step_"+version, float64(s.all.oneStep.Decisions), "count")
	sheet.Report("simulate/baseline_"+version, percent(s.all.baseline.Right, s.all.baseline.Decisions), "%")
	sheet.Report("simulate/baseline_nontrivial_"+version, percent(s.all.baseline.RightOfThem, s.all.baseline.Nontrivial), "%")
	for _, way := range []struct {
		name string
		of   *fidelity.Score
	}{{"one step", &s.all.oneStep}, {"free running", &s.all.free}} {
		for _, kind := range slices.Sorted(maps.Keys(way.of.Kinds)) {
			fmt.Printf("simulate: vLLM %s, %s: parted %d times in: %s\n", version, way.name, way.of.Kinds[kind], kind)
		}
	}
	return ok
}

func percent(part, of int) float64 { return 100 * float64(part) / float64(max(of, 1)) }
