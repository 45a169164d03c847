package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
)

// logGraph: batches ran without their graph, and slower.
type logGraph struct {
	lines span
	first string
}

func (g *logGraph) take(e *entry) {
	for _, h := range e.Hints {
		if h.Kind == sglang.GraphOff {
			if g.lines.n == 0 {
				g.first = h.Text
			}
			g.lines.add(e.Mark)
		}
	}
}

func (g *logGraph) facts(l *Log) []Fact {
	if g.lines.n == 0 {
		return nil
	}
	of := ""
	if g.lines.n > 1 {
		of = " (in the first of them)"
	}
	return []Fact{{Weight: Notice, Path: "token", Text: fmt.Sprintf("%sthe graph is off and throughput falls %s: %s%s.", l.called, g.lines, g.first, of),
		Do: "See which batch sizes have a graph (cuda_graph_max_bs), and what the batch was."}}
}
