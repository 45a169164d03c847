package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
)

// logProgress: requests ran, and no token came.
type logProgress struct {
	lines   span
	running int             // in the last of them
	now     map[string]bool // engines whose last word it is
}

func (p *logProgress) take(e *entry) {
	var running int
	var stalled bool
	switch r := e.Record.(type) {
	case vllm.Stats:
		running = r.Running.Or(0)
		stalled = running > 0 && r.GenerationRate.Known && r.GenerationRate.Value == 0 && r.PromptRate.Known && r.PromptRate.Value == 0
	case sglang.Decode:
		running, stalled = r.Running.Or(0), r.Stalled()
	default:
		return
	}
	if !stalled {
		delete(p.now, e.Writer)
		return
	}
	p.lines.add(e.Mark)
	p.running = running
	if p.now == nil {
		p.now = map[string]bool{}
	}
	if len(p.now) < mostWriters {
		p.now[e.Writer] = true
	}
}

func (p *logProgress) facts(l *Log) []Fact {
	of := "the engine"
	if len(p.now) > 1 {
		of = several(len(p.now), "engine", "engines")
	}
	switch {
	case p.lines.n == 0:
		return nil
	case len(p.now) > 0:
		return []Fact{{Weight: Broken, Path: "token", Text: fmt.Sprintf("%s%s run, and not one token came (throughput is 0, %s), up to the last stat line of %s.", l.called, several(p.running, "request", "requests"), p.lines, of),
			Do: "The throughput of the lines before is no answer. A prefill that is longer than the interval looks the same in one line; if no better line follows, take a stack of the worker before restarting it."}}
	}
	return []Fact{{Weight: Notice, Path: "token", Text: fmt.Sprintf("%sa throughput of exactly 0 while %s ran, %s: a stall, and tokens came again later.", l.called, several(p.running, "request", "requests"), p.lines)}}
}
