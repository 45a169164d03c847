package look

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// qualityPath is how answers were judged: of each evaluation the mean of each model, the lowest first, or how often which label was given where
// there are no scores. Which end of an evaluation's range is the good one is the evaluation's own, so none is called the worst.
func qualityPath(s *Scene) PathState {
	scores, labels := judgedOf(s)
	said := []string{}
	for _, name := range sortedKeys(scores) {
		said = append(said, exposition.Printable(name, 40)+" "+strings.Join(firstOf(meansOf(scores[name])), ", "))
	}
	for _, name := range sortedKeys(labels) {
		if scores[name] != nil {
			continue
		}
		var counts []string
		for _, label := range sortedKeys(labels[name]) {
			if n := labels[name][label]; n > 0 {
				counts = append(counts, count(n)+" × "+exposition.Printable(cmp.Or(label, "no label"), 30))
			}
		}
		if len(counts) > 0 {
			said = append(said, exposition.Printable(name, 40)+" "+strings.Join(firstOf(counts), ", "))
		}
	}
	if len(said) == 0 {
		return PathState{Path: signals.Quality, State: NotSeen, Switch: "no evaluation is known from what was read: send scores, per version"}
	}
	return PathState{Path: signals.Quality, State: Seen, Text: strings.Join(firstOf(said), "; ")}
}

// scored are the scores of one evaluation of one model.
type scored struct{ sum, n float64 }

// judgedOf are scores by evaluation and model, and how often each label was given, by evaluation.
func judgedOf(s *Scene) (scores map[string]map[string]*scored, labels map[string]map[string]float64) {
	scores, labels = map[string]map[string]*scored{}, map[string]map[string]float64{}
	for _, r := range s.Of("gen_ai.evaluation.score") {
		name := r.Labels.Get("gen_ai_evaluation_name")
		h, _ := r.Observed()
		if name == "" || h.Count == 0 || math.IsNaN(h.Sum) {
			continue
		}
		if scores[name] == nil {
			scores[name] = map[string]*scored{}
		}
		of := scores[name][r.Who.Model]
		if of == nil {
			of = &scored{}
			scores[name][r.Who.Model] = of
		}
		of.sum, of.n = of.sum+h.Sum, of.n+h.Count
	}
	for _, r := range s.Of("gen_ai.evaluation.results") {
		name := r.Labels.Get("gen_ai_evaluation_name")
		n, _, ok := r.Grown()
		if !ok {
			n, ok = r.Last()
		}
		if name == "" || !ok {
			continue
		}
		if labels[name] == nil {
			labels[name] = map[string]float64{}
		}
		labels[name][r.Labels.Get("gen_ai_evaluation_score_label")] += n
	}
	return scores, labels
}

// meansOf are the means of models, the lowest first.
func meansOf(models map[string]*scored) (said []string) {
	names := sortedKeys(models)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(models[a].sum/models[a].n, models[b].sum/models[b].n)
	})
	for i, m := range names {
		text := fmt.Sprintf("%.3g in %s", models[m].sum/models[m].n, count(models[m].n))
		if i == 0 {
			text = fmt.Sprintf("%.3g on average in %s", models[m].sum/models[m].n, several(int(models[m].n), "answer", "answers"))
		}
		if m != "" {
			text += " (" + exposition.Printable(m, 60) + ")"
		}
		said = append(said, text)
	}
	return said
}

// firstOf are the first three, and how many more there are.
func firstOf(said []string) []string {
	if more := len(said) - 3; more > 0 {
		return append(slices.Clone(said[:3]), fmt.Sprintf("and %d more", more))
	}
	return said
}
