package look

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/adapter"
)

// promptThroughput tells the three rates apart that all are called prompt throughput.
func promptThroughput(s *Scene) (facts []Fact) {
	for _, w := range s.Engines() {
		taken, computed, over, ok := takenUp(s, w)
		if !ok {
			continue
		}
		for _, r := range s.about("tokens.prompt_per_request", w) {
			h, window := r.Observed()
			asked, sec := h.Sum, float64(over)/1e9
			in, amount := "in "+seconds(sec), func(n float64) string { return rate(n, sec) }
			if over == 0 {
				in, amount = "between the scrapes", func(n float64) string { return count(n) + " tokens" }
			}
			if !window || within(asked, taken, 0.2) && within(taken, computed, 0.2) {
				continue
			}
			f := Fact{Weight: Notice, Path: "token", About: w.String(),
				Text: fmt.Sprintf("%s, %s: requests that ended had prompts of %s (demand served; prefilled earlier), %s were taken up (%s of them cached), and %s were really computed: that is the load of prefill on the GPU%s. All three are right.",
					w, in, amount(asked), amount(taken), share((taken-computed)/max(taken, 1)), amount(computed), inLog(s, computed, sec))}
			if over == 0 {
				f.Do = "Say the time between them (--interval), and these are rates."
			}
			facts = append(facts, f)
		}
	}
	return facts
}

// takenUp are the prompt tokens that an engine took up while it was watched, and those of them that it computed, from whichever counters tell
// of the time when that happens: not of the end of a request.
func takenUp(s *Scene, w adapter.Who) (taken, computed float64, over int64, ok bool) {
	taken, over, ok = s.grown("tokens.prompt", w)
	computed, o, ok2 := s.grown("tokens.prompt_computed", w)
	cached, _, ok3 := s.grown("tokens.prompt_cached", w)
	late := s.late("tokens.prompt", w)
	switch {
	case ok && ok2 && !late:
		return taken, computed, over, true
	case ok2 && ok3:
		return cached + computed, computed, o, true
	case ok && ok3 && !late:
		return taken, max(taken-cached, 0), over, true
	}
	if slices.ContainsFunc(s.about("kv.prefix_queries", w), func(r *adapter.Reading) bool { return r.Native.Until != "" }) {
		return 0, 0, 0, false // they may count blocks
	}
	queried, o, ok := s.grown("kv.prefix_queries", w)
	hits, _, ok2 := s.grown("kv.prefix_hits", w)
	return queried, max(queried-hits, 0), o, ok && ok2
}

// inLog says that a log's prompt throughput is a rate too, if there is one log and it is.
func inLog(s *Scene, computed, sec float64) string {
	if sec == 0 || len(s.Logs) != 1 || s.Logs[0].load.computed.n == 0 {
		return ""
	}
	if said := s.Logs[0].load.computed; within(said.value(), computed/sec, 0.05) {
		return fmt.Sprintf(", equal to the log's %s tok/s (Avg prompt throughput, mean of %s)", tenths(said.value()), several(said.n, "line", "lines"))
	}
	return ""
}

func rate(n, sec float64) string { return count(n/sec) + " tok/s" }

func within(a, b, tolerance float64) bool { return a <= b*(1+tolerance) && b <= a*(1+tolerance) }
