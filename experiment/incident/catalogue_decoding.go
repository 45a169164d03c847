package incident

import "github.com/whylate/whylate/experiment/simulate/world"

// ofDecoding are incidents of speculative decoding.
var ofDecoding = []Incident{
	{
		Name: "speculation-collapse", Mechanism: "M23",
		What:  "The drafts no longer fit what is asked for: each step brings fewer tokens, and takes as long.",
		Needs: "drafts and what became of them",
		Moves: append(up(TPOT), down(Accepted)...), Keeps: []string{Arrivals, Preemptions, Residual, Clock, HeldHeat},
		Cure:  &Intervention{"setting", "num_speculative_tokens", "0", "Nothing is drafted."},
		stage: func(s *stage) { s.drafts(s.between(0.5, 0.1)) },
	},
	{
		Name: "speculation-dips", TwinOf: "speculation-collapse",
		What:  "A little less is accepted than before, as it is from hour to hour.",
		Moves: down(Accepted), Keeps: []string{TTFT, ITL, TPOT, Step, Preemptions, Residual, Clock},
		stage: func(s *stage) { s.drafts(s.between(0.88, 0.86)) },
	},
}

// drafts lets three tokens be drafted for each, of which the model accepts nine in ten; with the fault, another part.
func (s *stage) drafts(accept float64) {
	s.set("num_speculative_tokens", 3)
	const usual = 0.9
	for i := range s.config.Replicas {
		s.config.Replicas[i].Ranks[0].Accept = usual
	}
	s.add(ordinary(3))
	s.during(func(w *world.World) { w.Engine(s.Scope, 0).Accept(accept) }, func(w *world.World) { w.Engine(s.Scope, 0).Accept(usual) })
	s.blameEngine()
}
