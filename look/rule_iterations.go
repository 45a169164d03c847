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
		w := adapter.Who{Producer: "trtllm", Target: it.Target}
		get := func(signal string) float64 { v, _ := s.last(signal, w); return v }
		used, all := get("kv.blocks_used"), get("kv.blocks")
		facts = append(facts, Fact{Weight: Notice, Path: "gpu", About: name,
			Text: fmt.Sprintf("%s: %d iterations; in the last one %s requests active, %s queued, KV %s of %s blocks of %s tokens (%s).", name, it.Count, count(get("request.running")), count(get("request.waiting")), count(used), count(all), count(get("kv.block_tokens")), share(used/max(all, 1)))})
		if it.Overlap {
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
