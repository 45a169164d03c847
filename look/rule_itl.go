package look

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/adapter"
)

// severalTokens an observation are no accident of when a page was read.
const severalTokens = 1.3

// followers are the tokens of an engine that followed a first one; 0 where that is not known.
func followers(s *Scene, w adapter.Who) float64 {
	for _, r := range s.about("gen_ai.server.time_to_first_token", w) {
		if h, _ := r.Observed(); h.Count > 0 {
			return max(s.recent("tokens.generated", w)-h.Count, 0)
		}
	}
	if ended := s.recent("request.finished", w); ended > 0 {
		return max(s.recent("tokens.generated", w)-ended, 0)
	}
	return 0
}

// itlPerStep tells where gaps between outputs are gaps between steps: with speculation a step brings several tokens.
func itlPerStep(s *Scene) (facts []Fact) {
	for _, r := range s.Of("itl") {
		w := r.Who.Engine()
		gaps, _ := r.Observed()
		if r.Who.Producer != "vllm" || gaps.Count == 0 {
			continue
		}
		f := Fact{Weight: Notice, Path: "token", About: w.String(), Do: "Compare speed per token, before and after, by the time per output token of requests."}
		drafts, accepted := s.recent("spec.drafts", w), s.recent("spec.accepted_tokens", w)
		tokens := followers(s, w)
		length := tokens / gaps.Count // tokens a step
		switch {
		case drafts > 0:
			length = 1 + accepted/drafts
			f.Text = fmt.Sprintf("%s: with speculative decoding %s is the time of a step (%s on average, %s observations), not of a token. A step brought %.2f tokens on average (1 + %s accepted / %s drafts).",
				w, r.Native.Name, seconds(gaps.Mean()), count(gaps.Count), length, count(accepted), count(drafts))
		case length > severalTokens:
			f.Text = fmt.Sprintf("%s: %s is the time of a step (%s on average, %s observations), not of a token: %s tokens came after the first ones, about %.2f a step.",
				w, r.Native.Name, seconds(gaps.Mean()), count(gaps.Count), count(tokens), length)
		default:
			continue
		}
		for _, p := range s.about("gen_ai.server.time_per_output_token", w) {
			if h, _ := p.Observed(); h.Count > 0 && !math.IsNaN(h.Mean()) {
				f.Instead = fmt.Sprintf("A token took %s on average (%s, %s requests): %.2f times less than a step", seconds(h.Mean()), p.Native.Name, count(h.Count), gaps.Mean()/h.Mean())
				if within(gaps.Mean()/h.Mean(), length, 0.15) {
					f.Instead += ", so the two agree."
				} else {
					f.Instead += ": they are not of the same requests."
				}
			}
		}
		s.doubt(r, "one observation a step, and steps bring several tokens")
		facts = append(facts, f)
	}
	return facts
}
