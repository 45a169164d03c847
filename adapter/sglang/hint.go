package sglang

import (
	"fmt"

	"github.com/whylate/whylate/logline"
)

// Hint is something in a line that a reader may take for nothing, or for something else. It is no diagnosis.
type Hint struct {
	Kind HintKind
	Text string
}

// HintKind is what a hint is about.
type HintKind string

// The hints.
const (
	Stalled    HintKind = "stalled"      // requests run, and no token came
	GraphOff   HintKind = "graph off"    // a batch ran without its graph, and slower by half or more
	NotInQueue HintKind = "not in queue" // a decode node's requests wait elsewhere than in its queue
	PoolFull   HintKind = "pool full"    // one pool of a hybrid model is nearly full, another is not
)

// Hints gives hints line by line, in the order of the log. Its zero value is ready.
type Hints struct {
	before map[string]Decode // by rank
}

const (
	slower = 2   // times
	full   = 0.9 // of a pool
)

// Next are the hints of a line.
func (h *Hints) Next(e Entry) (hints []Hint) {
	hint := func(kind HintKind, format string, args ...any) {
		hints = append(hints, Hint{kind, fmt.Sprintf(format, args...)})
	}
	d, isDecode := e.Record.(Decode)
	b := d.Batch
	if p, ok := e.Record.(Prefill); ok {
		b = p.Batch
	} else if !isDecode {
		return nil
	}
	if p, ok := b.Limiting(); ok && len(b.Pools) > 1 && p.Usage.Value >= full {
		for _, other := range b.Pools {
			if other.Usage.Known && other.Usage.Value < full {
				hint(PoolFull, "the pool %s is %.0f %% full and lets nobody in, while %s is %.0f %% full", p.Name, 100*p.Usage.Value, other.Name, 100*other.Usage.Value)
			}
		}
	}
	if !isDecode {
		return hints
	}
	if d.Stalled() {
		hint(Stalled, "%d requests run, and no token came since the line before", d.Running.Value)
	}
	if n := d.Waiting(); d.Disaggregated() && d.Queue.Known && n.Value > d.Queue.Value {
		hint(NotInQueue, "%d requests wait, %d of them in the queue: %d for room, %d for their KV, %d thrown out", n.Value, d.Queue.Value, d.Prealloc.Or(0), d.Transfer.Or(0), d.Retracted.Or(0))
	}
	rank := e.Tags.Get("DP") + "/" + e.Tags.Get("PP") + "/" + e.Tags.Get("TP")
	if was, ok := h.before[rank]; ok && was.Graph.Or(false) && d.Graph.Known && !d.Graph.Value {
		if each, now := perRequest(was), perRequest(d); now.Known && each.Known && each.Value >= slower*now.Value && now.Value > 0 {
			hint(GraphOff, "without the %s graph a request gets a token %.1f times slower than in the line before", d.GraphKind, each.Value/now.Value)
		}
	}
	if h.before == nil {
		h.before = map[string]Decode{}
	}
	h.before[rank] = d
	return hints
}

// perRequest is how many tokens per second a request got.
func perRequest(d Decode) logline.Opt[float64] {
	if !d.Rate.Known || d.Running.Or(0) <= 0 {
		return logline.Opt[float64]{}
	}
	return logline.Some(d.Rate.Value / float64(d.Running.Value))
}
