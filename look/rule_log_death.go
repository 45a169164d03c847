package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/vllm"
)

// logDeath: the engine has died; whatever else its log says is of the time before.
type logDeath struct {
	lines span
	alive span // iterations and states that came after
}

func (d *logDeath) take(e *entry) {
	switch e.Record.(type) {
	case vllm.Death:
		d.lines.add(e.Mark)
		d.alive = span{}
	case vllm.Stats, vllm.Iteration:
		d.alive.add(e.Mark)
	}
}

func (d *logDeath) facts(l *Log) []Fact {
	if d.lines.n == 0 {
		return nil
	}
	f := Fact{Weight: Broken, Path: "request", Text: fmt.Sprintf("%sthe engine died, %s, and every request in it.", l.called, d.lines), Do: "Read the first error before that line: what follows it is its consequence."}
	if d.alive.n > 0 {
		f.Weight = Notice
		f.Text += fmt.Sprintf(" An engine writes again %s.", d.alive)
	}
	return []Fact{f}
}
