package look

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/adapter"
)

// A gap before the first token is worth a word from this length (s), and this share of the whole.
const (
	worthyGap   = 0.2
	worthyShare = 0.3
)

// firstTokenGap tells of time before first tokens that neither the queue nor prefill explains: it passed outside of the scheduler.
func firstTokenGap(s *Scene) (facts []Fact) {
	mean := func(signal string, w adapter.Who) (m, n float64) {
		for _, r := range s.about(signal, w) {
			if h, window := r.Observed(); window && h.Count > 0 && !math.IsNaN(h.Mean()) {
				return h.Mean(), h.Count
			}
		}
		return 0, 0
	}
	for _, w := range s.Engines() {
		if w.Producer != "vllm" { // whose TTFT begins at the API server, and whose queue in the scheduler
			continue
		}
		first, n := mean("gen_ai.server.time_to_first_token", w)
		queue, q := mean("request.queue_time", w)
		prefill, p := mean("request.prefill_time", w)
		gap := first - queue - prefill
		if !within(n, q, 0.1) || !within(n, p, 0.1) || n < 20 || gap < worthyGap || gap < worthyShare*first {
			continue // they are observed at different moments: of other requests they would explain nothing
		}
		f := Fact{Weight: Notice, Path: "token", About: w.String(),
			Text: fmt.Sprintf("%s: TTFT is %s on average, of it queue %s and prefill %s. The other %s passed outside of the scheduler: in the API server (template, tokenizing, images, its event loop) or between the processes.", w, seconds(first), seconds(queue), seconds(prefill), seconds(gap)),
			Do:   "More GPUs do not help against that: look at the API server's processor, and at how many of them there are."}
		if cores, ok := s.cores(w.Target); ok {
			f.Text += fmt.Sprintf(" Its process used %.2f of a core.", cores)
		}
		facts = append(facts, f)
	}
	return facts
}

// cores are those that a target's process kept busy while it was watched.
func (s *Scene) cores(target string) (float64, bool) {
	for _, t := range s.family(target, "process_cpu_seconds_total") {
		if len(t.Points) < 2 {
			continue
		}
		first, last := t.Points[0], t.Points[len(t.Points)-1]
		if over := float64(last.At-first.At) / 1e9; first.At != 0 && over > 0 && last.Value >= first.Value {
			return (last.Value - first.Value) / over, true
		}
	}
	return 0, false
}
