package look

import (
	"fmt"
	"math"
)

// itlPerStep tells where gaps between outputs are gaps between steps: with speculation a step brings several tokens.
func itlPerStep(s *Scene) (facts []Fact) {
	for _, r := range s.Of("itl") {
		w := r.Who.Engine()
		gaps, _ := r.Observed()
		drafts, accepted := s.recent("spec.drafts", w), s.recent("spec.accepted_tokens", w)
		if r.Who.Producer != "vllm" || gaps.Count == 0 || drafts == 0 {
			continue
		}
		length := 1 + accepted/drafts
		f := Fact{Weight: Notice, Path: "token", About: w.String(),
			Text: fmt.Sprintf("%s: with speculative decoding %s is the time of a step (%s on average, %s observations), not of a token. A step brought %.2f tokens on average (1 + %s accepted / %s drafts).",
				w, r.Native.Name, seconds(gaps.Mean()), count(gaps.Count), length, count(accepted), count(drafts)),
			Do: "Compare speed per token, before and after, by the time per output token of requests."}
		for _, p := range s.about("gen_ai.server.time_per_output_token", w) {
			if h, _ := p.Observed(); h.Count > 0 && !math.IsNaN(h.Mean()) {
				f.Instead = fmt.Sprintf("A token took %s on average (%s, %s requests): %.2f times less than a step, so the two agree.", seconds(h.Mean()), p.Native.Name, count(h.Count), gaps.Mean()/h.Mean())
			}
		}
		s.doubt(r, "one observation a step, and steps bring several tokens")
		facts = append(facts, f)
	}
	return facts
}
