package look

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
)

// impossiblySmall is a mean (s) that no way between two hosts has.
const impossiblySmall = 1e-6

// clocksApart discredits times between two hosts: they are a difference of wall clocks, and never shown below zero.
func clocksApart(s *Scene) (facts []Fact) {
	edge, edges := meanOf(s, "gen_ai.server.time_to_first_token", func(w adapter.Who) bool { return dialects.IsGateway(w) })
	for _, r := range s.All("network.transit") {
		h, _ := r.Observed()
		if h.Count == 0 || len(h.Bounds) == 0 {
			continue
		}
		engine, engines := meanOf(s, "gen_ai.server.time_to_first_token", func(w adapter.Who) bool { return w.Target == r.Target && !dialects.IsGateway(w) })
		in, _ := h.AtMost(h.Bounds[0])
		f := Fact{Weight: Wrong, Path: "request", About: r.Who.String(), Do: "Check that both hosts' clocks are kept in step. Until then use only durations that one process measured."}
		switch {
		case in == h.Count && h.Mean() < impossiblySmall:
			sum := "exactly 0"
			if h.Sum != 0 {
				sum = "only " + seconds(h.Sum)
			}
			f.Text = fmt.Sprintf("%s of %s is no measurement: %s of %s observations lie in the first bucket, and their sum is %s. Negative differences are cut off at 0, so that host's clock is behind the sender's.",
				r.Native.Name, target(r), count(in), count(h.Count), sum)
		case edges > 0 && engines > 0 && engine+h.Mean() > edge:
			f.Text = fmt.Sprintf("%s of %s cannot be: %s on average, all of %s between %s, and the engine's own TTFT of %s make %s, more than the %s that the front end saw in all. That host's clock is ahead, by at least %s.",
				r.Native.Name, target(r), seconds(h.Mean()), count(h.Count), spread(&h), seconds(engine), seconds(engine+h.Mean()), seconds(edge), seconds(engine+h.Mean()-edge))
		case edges > 0 && h.Mean() > edge:
			f.Text = fmt.Sprintf("%s of %s cannot be: %s on average, all of %s between %s, more than the %s that the front end saw until the first token in all. That host's clock is ahead, by at least %s.",
				r.Native.Name, target(r), seconds(h.Mean()), count(h.Count), spread(&h), seconds(edge), seconds(h.Mean()-edge))
		default:
			continue
		}
		s.doubt(r, "the hosts' clocks are apart")
		facts = append(facts, f)
	}
	if len(facts) > 0 && edges > 0 {
		if engine, n := meanOf(s, "gen_ai.server.time_to_first_token", func(w adapter.Who) bool { return !dialects.IsGateway(w) }); n > 0 && edge > engine {
			facts = append(facts, Fact{Weight: Notice, Path: "request", Text: fmt.Sprintf("Between the front end's TTFT (%s on average) and the engines' (%s) lie %s that nothing measured: they are unattributed, not network.", seconds(edge), seconds(engine), seconds(edge-engine))})
		}
	}
	return facts
}

// target is who a reading is about by its address alone.
func target(r *adapter.Reading) string { return exposition.Printable(r.Target, 60) }

// spread is the interval between buckets in which all observations lie.
func spread(h *exposition.Hist) string {
	low := h.Quantile(1e-9)
	return seconds(max(low.Low, 0)) + " and " + seconds(h.Quantile(1).High)
}

// meanOf is the mean over all observations of a duration that some engines made, and their number.
func meanOf(s *Scene, signal string, of func(adapter.Who) bool) (mean, n float64) {
	sum := 0.0
	for _, r := range s.Of(signal) {
		if h, _ := r.Observed(); of(r.Who) && h.Count > 0 && !math.IsNaN(h.Mean()) {
			sum, n = sum+h.Sum, n+h.Count
		}
	}
	return sum / max(n, 1), n
}
