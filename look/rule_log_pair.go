package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/logline"
)

// logDecodeNode: on the decode node of a pair, requests wait elsewhere than in its queue.
type logDecodeNode struct {
	lines       span
	of          writers
	first, last sglang.Decode
}

func (n *logDecodeNode) take(e *entry) {
	d, ok := e.Record.(sglang.Decode)
	if !ok || !d.Disaggregated() || !d.Queue.Known || d.Waiting().Value <= d.Queue.Value {
		return
	}
	if n.lines.n == 0 {
		n.first = d
	}
	n.lines.add(e.Mark)
	n.of.take(e)
	if n.last = d; n.of.several {
		n.first = d
	}
}

func (n *logDecodeNode) facts(l *Log) []Fact {
	if n.lines.n == 0 {
		return nil
	}
	a, b := n.first, n.last
	f := Fact{Weight: Notice, Path: "request", Text: fmt.Sprintf("%sthe decode node of a prefill/decode pair, %s: its queue (%d) does not mean that nobody waits: prealloc (for room) %s, transfer (for their KV) %s, thrown out %s.",
		l.called, n.lines, b.Queue.Value, change(a.Prealloc, b.Prealloc), change(a.Transfer, b.Transfer), change(a.Retracted, b.Retracted))}
	if p, ok := b.Limiting(); ok && p.Usage.Value >= crowded && b.Prealloc.Or(0) > 0 {
		f.Text += fmt.Sprintf(" It has no room: %s usage %.2f.", p.Name, p.Usage.Value)
		f.Do = "Give the decode side more room for KV: replicas, memory, shorter outputs. More prefill nodes do not help against that."
	}
	return []Fact{f}
}

// logPrefillNode: on the prefill node of a pair, requests wait for the decode node.
type logPrefillNode struct {
	lines       span
	of          writers
	first, last sglang.Prefill
}

func (n *logPrefillNode) take(e *entry) {
	p, ok := e.Record.(sglang.Prefill)
	if !ok || p.Bootstrap.Or(0)+p.Inflight.Or(0) == 0 {
		return
	}
	if n.lines.n == 0 {
		n.first = p
	}
	n.lines.add(e.Mark)
	n.of.take(e)
	if n.last = p; n.of.several {
		n.first = p
	}
}

func (n *logPrefillNode) facts(l *Log) []Fact {
	if n.lines.n == 0 {
		return nil
	}
	a, b := n.first, n.last
	text := fmt.Sprintf("%sthe prefill node of a prefill/decode pair, %s: requests that wait for the decode node (bootstrap) %s, whose KV is on its way (inflight) %s, in the queue %s",
		l.called, n.lines, change(a.Bootstrap, b.Bootstrap), change(a.Inflight, b.Inflight), change(a.Queue, b.Queue))
	if a.Rate.Known && b.Rate.Known {
		text += fmt.Sprintf("; prompts of %s computed", changed(a.Rate.Value, b.Rate.Value, func(v float64) string { return count(v) + " tok/s" }))
	}
	if p, ok := b.Limiting(); ok {
		text += fmt.Sprintf("; its own %s usage %.2f", p.Name, p.Usage.Value)
	}
	return []Fact{{Weight: Notice, Path: "request", Text: text + "."}}
}

// change is "3 → 61", one number where it stayed, or "unknown".
func change(a, b logline.Opt[int]) string {
	switch {
	case !b.Known:
		return "unknown"
	case !a.Known:
		return count(float64(b.Value))
	}
	return changed(float64(a.Value), float64(b.Value), count)
}
