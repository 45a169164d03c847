package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/vllm"
)

// logCompile: kernels were compiled while requests waited. Each rank writes its own line.
type logCompile struct {
	lines   span
	kernels map[string]bool
	ranks   map[string]bool
}

const mostKernels = 1000

func (c *logCompile) take(e *entry) {
	r, ok := e.Record.(vllm.Compile)
	if !ok {
		return
	}
	if c.lines.n == 0 {
		c.kernels, c.ranks = map[string]bool{}, map[string]bool{}
	}
	c.lines.add(e.Mark)
	if len(c.kernels) < mostKernels {
		c.kernels[r.Kernel] = true
	}
	if len(c.ranks) < mostWriters {
		c.ranks[e.Tags.Get("process")+e.Tags.Get("pid")] = true
	}
}

func (c *logCompile) facts(l *Log) []Fact {
	if c.lines.n == 0 {
		return nil
	}
	return []Fact{{Weight: Notice, Path: "token", Text: fmt.Sprintf("%s%s compiled or tuned while requests waited, by %s that each wrote a line for it: %s.", l.called, plural(len(c.kernels), "kernel was", "kernels were"), plural(len(c.ranks), "process", "processes"), c.lines),
		Instead: "Requests of that time paid for it: it is warm-up, no steady state, and to be left out of percentiles and baselines.",
		Do:      "Warm these shapes up before the engine is ready, and keep its compile cache."}}
}
