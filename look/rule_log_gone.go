package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/logline"
)

// logGone: exchanges that the web server ended with an error, or whose client had gone.
type logGone struct {
	all, gone, failed span
}

func (g *logGone) take(e *entry) {
	var a logline.Access
	switch r := e.Record.(type) {
	case vllm.Access:
		a = logline.Access(r)
	case sglang.Access:
		a = logline.Access(r)
	default:
		return
	}
	g.all.add(e.Mark)
	switch {
	case a.Status == 499:
		g.gone.add(e.Mark)
	case a.Status >= 500:
		g.failed.add(e.Mark)
	}
}

func (g *logGone) facts(l *Log) (facts []Fact) {
	say := func(s span, what string) {
		if s.n > 0 {
			facts = append(facts, Fact{Weight: Notice, Path: "request", Text: fmt.Sprintf("%sof %s to the web server, %s %s, %s.", l.called, several(g.all.n, "request", "requests"), count(float64(s.n)), what, s)})
		}
	}
	say(g.failed, "ended with a status of 500 or above")
	say(g.gone, "ended with 499, its client had gone")
	return facts
}
