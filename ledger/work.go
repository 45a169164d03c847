package ledger

// MemberWork is the work that one member adds to iterations from … to of its stint s (both inside the stint). Running sums are
// made of the same [IterationWork], and the marginal cost of a member is its dot product with the coefficients, so that "with it
// minus without it" can never disagree with the sums.
func MemberWork(s *Stint, from, to uint64) Work {
	var w Work
	if s.Phase == Decode && s.Tokens == nil { // one token an iteration: the sums have a closed form
		n := float64(to - from + 1)
		first := float64(s.ComputedBefore(from))
		w[WorkDecodeSeqs] = n
		w[WorkDecodeContext] = n*first + n*(n-1)/2
		w.rows(s.Seq, n)
		return w
	}
	context := s.ComputedBefore(from)
	for i := from; i <= to; i++ {
		tokens := s.TokensIn(i)
		if tokens > 0 {
			w = w.Add(IterationWork(s.Seq, s.Phase, tokens, context, s.Final && i == s.Last))
		}
		_, rejected := s.DraftsIn(i)
		context += uint64(tokens - rejected)
	}
	return w
}

// IterationWork is the work that one member adds to one iteration: tokens scheduled on top of a context of computed ones. final
// says that a prefill or recompute ends in it and samples a token. It is the only definition of the features.
func IterationWork(q *Sequence, phase Phase, tokens uint32, context uint64, final bool) Work {
	var w Work
	if phase == Decode {
		w[WorkDecodeSeqs] = 1
		w[WorkDecodeContext] = float64(context)
		w.rows(q, 1)
		return w
	}
	chunk := float64(tokens)
	w[WorkPrefillSeqs] = 1
	w[WorkPrefillTokens] = chunk
	w[WorkPrefillContext] = chunk * (float64(context) + chunk/2)
	if q.PromptLogprobs >= 0 && phase == Prefill {
		w[WorkPromptLogprobs] = chunk
	}
	if final {
		w.rows(q, 1)
	}
	return w
}

// rows counts n sampled rows of q under what makes them dearer than plain sampling.
func (w *Work) rows(q *Sequence, n float64) {
	if q.Logprobs >= 0 {
		w[WorkLogprobRows] += n
	}
	if q.Features&FeaturePenalties != 0 {
		w[WorkPenaltyRows] += n
	}
	if q.Features&FeatureGrammar != 0 {
		w[WorkGrammarRows] += n
	}
}
