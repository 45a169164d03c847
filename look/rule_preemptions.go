package look

import "fmt"

// preemptionsCounted tells of preemptions while an engine was watched: its log may not have a line for them, and all since its start hide them.
func preemptionsCounted(s *Scene) (facts []Fact) {
	for _, w := range s.Engines() {
		n, over, ok := s.grown("preemptions", w)
		if !ok || n <= 0 {
			continue
		}
		text := fmt.Sprintf("%s preempted %s", w, plural(int(n), "time", "times"))
		if over > 0 {
			text += fmt.Sprintf(" in %s, %s a second", seconds(float64(over)/1e9), significant(n*1e9/float64(over)))
		} else {
			text += " between the first scrape and the last"
		}
		if ended, _, ok := s.grown("request.finished", w); ok && ended > 0 {
			text += fmt.Sprintf("; %s ended meanwhile, %s preemptions for each", plural(int(ended), "request", "requests"), significant(n/ended))
		}
		if usage, ok := s.last("kv.usage", w); ok {
			text += fmt.Sprintf("; KV cache %s", share(usage))
		}
		facts = append(facts, Fact{Weight: Notice, Path: "request", About: w.String(),
			Text: text + ". The KV cache had no room: who is preempted waits again and its tokens are computed again, which no prompt throughput shows.",
			Do:   "Fewer requests at once (vLLM: max_num_seqs, SGLang: max_running_requests), shorter outputs, or more memory for KV."})
	}
	return facts
}
