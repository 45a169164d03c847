package look

import (
	"fmt"

	"github.com/whylate/whylate/exposition"
)

// noFirstToken bounds TTFT for TGI, which does not export it, and keeps its mean time per token from being taken for time per output token.
func noFirstToken(s *Scene) (facts []Fact) {
	for _, w := range s.Engines() {
		if w.Producer != "tgi" {
			continue
		}
		mean := func(signal, method string) (float64, bool) {
			for _, r := range s.about(signal, w) {
				if h, _ := r.Observed(); r.Labels.Get("method") == method && h.Count > 0 {
					return h.Mean(), true
				}
			}
			return 0, false
		}
		validation, validated := mean("request.validation_time", "")
		queue, ok := mean("request.queue_time", "")
		inference, ok2 := mean("request.inference_time", "")
		if ok && ok2 {
			before := fmt.Sprintf("queue (%s)", seconds(queue))
			if validated {
				before = fmt.Sprintf("validation (%s) and ", seconds(validation)) + before
			}
			f := Fact{Weight: Notice, Path: "token", About: w.String(),
				Text: fmt.Sprintf("%s does not export TTFT. On average the first token comes after %s, and within the inference of %s.", w, before, seconds(inference))}
			if prefill, ok := mean("batch.inference_time", "prefill"); ok {
				f.Instead = fmt.Sprintf("Estimate, no measurement: with the prefill of a batch (%s) about %s.", seconds(prefill), seconds(validation+queue+prefill))
			}
			facts = append(facts, f)
		}
		for _, r := range s.about("request.mean_time_per_token", w) {
			s.doubt(r, "the prefill is in it")
			h, _ := r.Observed()
			if h.Count == 0 {
				continue
			}
			f := Fact{Weight: Notice, Path: "token", About: w.String(),
				Text: fmt.Sprintf("%s of %s is the time of inference divided by the tokens, prefill included (%s): it is no time per output token.", r.Native.Name, w, perToken(&h))}
			if step, ok := mean("batch.forward_time", "decode"); ok {
				f.Instead = fmt.Sprintf("A decode step takes %s: a time per output token is nearer to that.", seconds(step))
			}
			facts = append(facts, f)
		}
	}
	return facts
}

func perToken(h *exposition.Hist) string { return "mean " + seconds(h.Mean()) }
