package look

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// iterationStatistics says what TensorRT-LLM's list of iterations means, and what it does not.
func iterationStatistics(s *Scene) (facts []Fact) {
	for _, it := range s.Iterations {
		name := exposition.Printable(it.Target, 60)
		if it.Count == 0 {
			facts = append(facts, Fact{Weight: Notice, Path: "request", About: name, Text: fmt.Sprintf("%s: no new iterations since the last read. The engine is idle, or another reader has emptied the list: neither an error nor a load of zero.", name)})
			continue
		}
		var ranks []string
		for _, w := range s.Engines() {
			if w.Producer != "trtllm" || w.Target != it.Target {
				continue
			}
			text := iterationText(s, w)
			if w.Rank != "" {
				text = "rank " + w.Rank + ": " + text
			}
			ranks = append(ranks, text)
		}
		facts = append(facts, Fact{Weight: Notice, Path: "gpu", About: name, Text: fmt.Sprintf("%s: %s; in the last one %s.", name, plural(it.Count, "iteration", "iterations"), strings.Join(ranks, "; "))})
		if it.Overlap {
			w := adapter.Who{Producer: "trtllm", Target: it.Target}
			get := func(signal string) float64 { v, _ := s.last(signal, w); return v }
			var loops []string
			for _, r := range s.about("iteration.loop_time", w) {
				for _, p := range r.Points {
					loops = append(loops, seconds(p.Value))
				}
			}
			facts = append(facts, Fact{Weight: Notice, Path: "token", About: name,
				Text: fmt.Sprintf("%s: under the overlap scheduler iterLatencyMS spans about two turns of the loop (%s) and is no step time: the host takes %s a step, the device %s.", name, strings.Join(loops[max(0, len(loops)-3):], ", "), seconds(get("iteration.host_time")), seconds(get("iteration.device_time")))})
		}
		if it.Last != "" {
			facts = append(facts, Fact{Weight: Notice, Path: "request", About: name, Text: fmt.Sprintf("%s: its times have no zone (%s): the order is kept, the time of day is unknown until somebody names the zone.", name, exposition.Printable(it.Last, 40))})
		}
	}
	return facts
}

// iterationText is what one engine's last iteration says; what it does not say is left out.
func iterationText(s *Scene, w adapter.Who) string {
	var said []string
	add := func(signal, text string) {
		if v, ok := s.last(signal, w); ok {
			said = append(said, count(v)+text)
		}
	}
	add("request.running", " requests active")
	add("request.waiting", " queued")
	used, ok := s.last("kv.blocks_used", w)
	all, ok2 := s.last("kv.blocks", w)
	if ok && ok2 && all > 0 {
		text := fmt.Sprintf("KV %s of %s blocks", count(used), count(all))
		if tokens, ok := s.last("kv.block_tokens", w); ok {
			text += fmt.Sprintf(" of %s tokens", count(tokens))
		}
		said = append(said, text+" ("+share(used/all)+")")
	}
	return strings.Join(said, ", ")
}
