package metrics

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// mostWords is how many words and signs of PromQL one question may have. Prometheus's parser and engine take time that grows with the square
// of how deep a query is, and look at no clock meanwhile: 5,000 take a quarter of a second, a million an hour.
const mostWords = 5000

// Parser is of the PromQL that is understood: what Prometheus takes without feature flags, as far as it is no longer than a person or a
// dashboard writes.
func Parser() parser.Parser { return brief{parser.NewParser(parser.Options{})} }

type brief struct{ parser.Parser }

// ParseExpr implements [parser.Parser].
func (b brief) ParseExpr(input string) (parser.Expr, error) {
	if err := isBrief(input); err != nil {
		return nil, err
	}
	return b.Parser.ParseExpr(input)
}

// ParseMetricSelector implements [parser.Parser].
func (b brief) ParseMetricSelector(input string) ([]*labels.Matcher, error) {
	if err := isBrief(input); err != nil {
		return nil, err
	}
	return b.Parser.ParseMetricSelector(input)
}

// ParseMetricSelectors implements [parser.Parser].
func (b brief) ParseMetricSelectors(inputs []string) ([][]*labels.Matcher, error) {
	if err := isBrief(inputs...); err != nil {
		return nil, err
	}
	return b.Parser.ParseMetricSelectors(inputs)
}

func isBrief(inputs ...string) error {
	n := 0
	for _, input := range inputs {
		var word parser.Item
		for l := parser.Lex(input); ; n++ {
			if n > mostWords {
				return fmt.Errorf("more than %d words and signs: ask for less at once", mostWords)
			}
			if l.NextItem(&word); word.Typ == parser.EOF || word.Typ == parser.ERROR {
				break
			}
		}
		n++ // each is a question of its own, even an empty one
	}
	return nil
}
