package metrics

import (
	"errors"
	"fmt"
	"strings"

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
	e, err := b.Parser.ParseExpr(input)
	if err == nil && growth(e) > mostGrowth {
		return nil, errors.New("label_replace, label_join or count_values makes labels that are too long: write shorter texts, and nest fewer of them")
	}
	return e, err
}

// mostGrowth is how many times as long a query may make a label. The engine counts samples, and would hold any length of label for each.
const mostGrowth = 32

// growth is at most how many times as long as the longest stored label, which is of 200 bytes, one that comes out of e is.
func growth(e parser.Node) float64 {
	most := 1.0
	for child := range parser.ChildrenIter(e) {
		most = max(most, growth(child))
	}
	parts, written := 0, 0
	switch e := e.(type) {
	case *parser.AggregateExpr: // count_values names a label
		written = len(literal(e.Param))
	case *parser.Call:
		if e.Func.Name != "label_replace" && e.Func.Name != "label_join" {
			return most
		}
		texts := e.Args[1:]
		written = len(literal(texts[0])) + len(literal(texts[1]))
		if parts = strings.Count(literal(texts[1]), "$"); e.Func.Name == "label_join" { // the second stands between the others
			parts = len(texts) - 2
			written += parts * len(literal(texts[1]))
		}
	}
	return max(most, most*float64(parts)+float64(written)/longest)
}

// literal is the text that an argument is, "" where it is none.
func literal(e parser.Expr) string {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return literal(e.Expr)
	case *parser.StringLiteral:
		return e.Val
	}
	return ""
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
