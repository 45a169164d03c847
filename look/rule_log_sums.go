package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/vllm"
)

// logSums: a line is a sum of several engines, and its KV usage their mean.
type logSums struct {
	lines  span
	newest vllm.Stats
	single bool // lines of single engines are there too
}

func (a *logSums) take(e *entry) {
	s, ok := e.Record.(vllm.Stats)
	switch {
	case !ok:
	case s.Aggregated > 0:
		a.lines.add(e.Mark)
		a.newest = s
	default:
		a.single = true
	}
}

func (a *logSums) facts(l *Log) []Fact {
	if a.lines.n == 0 {
		return nil
	}
	text := fmt.Sprintf("%saggregated over %d engines %s", l.called, a.newest.Aggregated, a.lines)
	if n := a.newest; n.KVUsage.Known && n.Running.Known && n.Waiting.Known {
		text += fmt.Sprintf(" (running %d, waiting %d, KV %s)", n.Running.Value, n.Waiting.Value, share(n.KVUsage.Value))
	}
	text += ": the KV usage is an average and hides imbalance, an engine may be full."
	if a.single {
		text += " It is not added to the lines of single engines, which it contains."
	}
	return []Fact{{Weight: Notice, Path: "gpu", Text: text, Do: "See each engine in its /metrics, or run without --aggregate-engine-logging."}}
}
