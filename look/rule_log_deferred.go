package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/vllm"
)

// logDeferred: requests wait for something else than room.
type logDeferred struct {
	lines span
	most  vllm.Stats
}

func (d *logDeferred) take(e *entry) {
	if s, ok := e.Record.(vllm.Stats); ok && s.Deferred.Or(0) > 0 && s.Waiting.Known {
		d.lines.add(e.Mark)
		if s.Deferred.Value > d.most.Deferred.Or(0) {
			d.most = s
		}
	}
}

func (d *logDeferred) facts(l *Log) []Fact {
	if d.lines.n == 0 {
		return nil
	}
	text := fmt.Sprintf("%sup to %d of %s are deferred, %s: deferred is contained in waiting, not beside it.", l.called, d.most.Deferred.Value, several(d.most.Waiting.Value, "waiting request", "waiting requests"), d.lines)
	if n := d.most.ForRoom(); n.Known {
		text += fmt.Sprintf(" They wait for something else than room, such as remote KV; %d wait for room", n.Value)
	}
	if d.most.KVUsage.Known {
		text += " (KV " + share(d.most.KVUsage.Value) + ")"
	}
	return []Fact{{Weight: Notice, Path: "request", Text: text + ".", Do: "Look at what loads KV for them (connector, offload) before the cache is made larger."}}
}
