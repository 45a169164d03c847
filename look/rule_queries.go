package look

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// checkQueries checks a dashboard's queries against what is there: names that are gone, and names that mean something else.
func checkQueries(s *Scene) (facts []Fact) {
	grammar := parser.NewParser(parser.Options{})
	empty := 0
	for _, q := range s.Queries {
		where := fmt.Sprintf("%s line %d", exposition.Printable(q.Source, 60), q.Line)
		if q.Panel != "" {
			where += fmt.Sprintf(" (%s)", exposition.Printable(q.Panel, 60))
		}
		expr, err := grammar.ParseExpr(q.Text)
		if err != nil {
			facts = append(facts, Fact{Weight: Notice, Path: "request", About: where, Text: where + " is no PromQL: " + exposition.Printable(err.Error(), 160)})
			continue
		}
		var gone, nowhere []string
		better := q.Text
		for _, name := range selected(expr) {
			family, producer := trim(name), producerOf(name)
			if producer == "" {
				continue
			}
			if lacking := s.lacking(producer, family); len(lacking) > 0 {
				gone, nowhere = append(gone, name), lacking
				if next := signals.Successor(producer, family); next != "" {
					better = word(family).ReplaceAllString(better, next+"$1")
				}
				continue
			}
			if m := signals.Named(producer, family); len(m) > 0 && m[0].Signal.Name == "tokens.prompt_per_request" && strings.HasSuffix(name, "_sum") && !slices.Contains(selected(expr), family+"_count") { // divided by the count it is a mean, and right
				facts = append(facts, Fact{Weight: Notice, Path: "token", About: where,
					Text: fmt.Sprintf("%s calls the prompts of requests that ended prompt throughput: %s moves when they end, minutes after the prefill.", where, name),
					Do:   "For what prefill costs the GPU take " + nameOf("tokens.prompt_computed", producer) + ", for what is taken up " + nameOf("tokens.prompt", producer) + "."})
			}
		}
		if len(gone) > 0 {
			empty++
			f := Fact{Weight: Notice, Path: "request", About: where, Text: fmt.Sprintf("%s finds nothing on %s: no %s there.", where, strings.Join(nowhere, ", "), strings.Join(gone, ", "))}
			if better != q.Text {
				f.Do = "Replace it by: " + better
			}
			facts = append(facts, f)
		}
	}
	if empty > 0 {
		all := Fact{Weight: Notice, Path: "request", Text: fmt.Sprintf("%d of %d queries find nothing on a part of the fleet.", empty, len(s.Queries))}
		facts = append([]Fact{all}, facts...)
	}
	return facts
}

// selected are the metric names that an expression reads.
func selected(expr parser.Expr) (names []string) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := v.Name
		for _, m := range v.LabelMatchers {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				name = m.Value
			}
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		return nil
	})
	return names
}

func trim(name string) string {
	base, _ := exposition.Split(name)
	return base
}

func word(family string) *regexp.Regexp {
	return regexp.MustCompile(regexp.QuoteMeta(family) + `((?:_bucket|_sum|_count)?\b)`)
}

// lacking are the targets of a producer that have no series of a family.
func (s *Scene) lacking(producer, family string) (targets []string) {
	has := map[string]bool{}
	for _, t := range s.Tracks {
		if producerOf(t.Family) == producer {
			has[t.Target] = has[t.Target] || t.Family == family
		}
	}
	for t, ok := range has {
		if !ok {
			targets = append(targets, exposition.Printable(t, 80))
		}
	}
	slices.Sort(targets)
	return targets
}

func producerOf(family string) string {
	if a := dialects.Of(family); a != nil {
		return a.Producer
	}
	return ""
}
