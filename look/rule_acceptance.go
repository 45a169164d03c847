package look

import "fmt"

// acceptance is what drafts were worth while they were watched, which their counters since the start hide.
func acceptance(s *Scene) (facts []Fact) {
	for _, w := range s.Engines() {
		drafts, _, ok := s.grown("spec.drafts", w)
		drafted, _, ok2 := s.grown("spec.draft_tokens", w)
		accepted, _, ok3 := s.grown("spec.accepted_tokens", w)
		if !ok || !ok2 || !ok3 || drafts <= 0 || drafted <= 0 {
			continue
		}
		text := fmt.Sprintf("%s: %s of %s drafted tokens were accepted while it was watched, %s; a step brought %.2f tokens (1 + %s / %s drafts).",
			w, count(accepted), count(drafted), share(accepted/drafted), 1+accepted/drafts, count(accepted), count(drafts))
		allAccepted, _ := s.last("spec.accepted_tokens", w)
		allDrafted, _ := s.last("spec.draft_tokens", w)
		if ever := allAccepted / allDrafted; allDrafted > drafted && !within(ever, accepted/drafted, 0.1) {
			text += fmt.Sprintf(" Since its start it is %s: a mean of other times.", share(ever))
		}
		facts = append(facts, Fact{Weight: Notice, Path: "token", About: w.String(), Text: text})
	}
	return facts
}
