package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
)

// logTransfers: how KV moves between engines, and what of it failed.
type logTransfers struct {
	lines                  span
	moved, failed, expired int
	slowest                vllm.Transfer // by its p90
	broken                 span          // requests of SGLang whose transfer failed
}

func (t *logTransfers) take(e *entry) {
	if _, ok := e.Record.(sglang.Failure); ok {
		t.broken.add(e.Mark)
	}
	r, ok := e.Record.(vllm.Transfer)
	if !ok {
		return
	}
	t.lines.add(e.Mark)
	t.moved += r.Transfers.Or(0)
	t.failed += r.Failed.Or(0) + r.FailedReceives.Or(0)
	t.expired += r.Expired.Or(0)
	if t.lines.n == 1 || r.P90Ms.Or(0) > t.slowest.P90Ms.Or(0) {
		t.slowest = r
	}
}

func (t *logTransfers) facts(l *Log) (facts []Fact) {
	if t.broken.n > 0 {
		facts = append(facts, Fact{Weight: Broken, Path: "request", Text: fmt.Sprintf("%sKV did not get from the prefill node to the decode node, %s: those requests failed.", l.called, t.broken),
			Do: "Look at both nodes' logs of that time, and at the network between them."})
	}
	if t.lines.n == 0 {
		return facts
	}
	text := fmt.Sprintf("%sKV transfers %s: %s succeeded, %s failed or were not fetched in time", l.called, t.lines, count(float64(t.moved)), count(float64(t.failed+t.expired)))
	if s := t.slowest; s.MeanMs.Known && s.P90Ms.Known {
		text += fmt.Sprintf("; at worst %s on average, p90 %s", seconds(s.MeanMs.Value/1e3), seconds(s.P90Ms.Value/1e3))
		if s.MiBPerSecond.Known {
			text += ", " + count(s.MiBPerSecond.Value) + " MiB/s while they ran"
		}
	}
	return append(facts, Fact{Weight: Notice, Path: "gpu", Text: text + "."})
}
