package metrics

import (
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
		return nil, fmt.Errorf("label_replace and label_join put together labels that are too long: write shorter texts, and nest fewer of them")
	}
	return e, err
}

// mostGrowth is how many times as long label_replace and label_join, one inside the other, may make a label. The engine counts samples, and
// would hold any length of label for each.
const mostGrowth = 32

// growth is at most how many times as long as the longest stored label, which is of 200 bytes, one that comes out of e is.
func growth(e parser.Node) float64 {
	most := 1.0
	for child := range parser.ChildrenIter(e) {
		most = max(most, growth(child))
	}
	call, ok := e.(*parser.Call)
	if !ok || call.Func.Name != "label_replace" && call.Func.Name != "label_join" {
		return most
	}
	parts, text := 0, 0
	for i, arg := range call.Args {
		for {
			inner, ok := arg.(*parser.ParenExpr)
			if !ok {
				break
			}
			arg = inner.Expr
		}
		s, ok := arg.(*parser.StringLiteral)
		switch {
		case !ok || i == 0:
		case call.Func.Name == "label_join" && i >= 3: // a source
			parts++
		case call.Func.Name == "label_join" && i == 2: // what stands between the sources
			text += len(s.Val) * (len(call.Args) - 3)
		case call.Func.Name == "label_replace" && i == 2: // what is put
			parts += strings.Count(s.Val, "$")
			text += len(s.Val)
		}
	}
	return max(most, most*float64(parts)+float64(text)/longest)
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
