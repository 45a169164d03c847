package look

import "fmt"

// promptThroughput tells the three rates apart that all are called prompt throughput.
func promptThroughput(s *Scene) (facts []Fact) {
	for _, w := range s.Engines() {
		taken, over, ok := s.grown("tokens.prompt", w)
		computed, _, ok2 := s.grown("tokens.prompt_computed", w)
		if !ok || !ok2 || over == 0 {
			continue
		}
		for _, r := range s.about("tokens.prompt_per_request", w) {
			h, window := r.Observed()
			asked, sec := h.Sum, float64(over)/1e9
			if !window || within(asked, taken, 0.2) && within(taken, computed, 0.2) {
				continue
			}
			f := Fact{Weight: Notice, Path: "token", About: w.String(),
				Text: fmt.Sprintf("%s, in %s: requests that ended had prompts of %s (demand served; prefilled earlier), %s were taken up (%s of them cached), and %s were really computed: that is the load of prefill on the GPU%s. All three are right.",
					w, seconds(sec), rate(asked, sec), rate(taken, sec), share((taken-computed)/max(taken, 1)), rate(computed, sec), inLog(s, computed/sec))}
			facts = append(facts, f)
		}
	}
	return facts
}

// inLog says that a log's prompt throughput is a rate too, if there is one log and it is.
func inLog(s *Scene, computed float64) string {
	if len(s.Logs) != 1 || s.Logs[0].load.computed.n == 0 {
		return ""
	}
	if said := s.Logs[0].load.computed; within(said.value(), computed, 0.05) {
		return fmt.Sprintf(", equal to the log's %s tok/s (Avg prompt throughput, mean of %s)", tenths(said.value()), several(said.n, "line", "lines"))
	}
	return ""
}

func rate(n, sec float64) string { return count(n/sec) + " tok/s" }

func within(a, b, tolerance float64) bool { return a <= b*(1+tolerance) && b <= a*(1+tolerance) }
