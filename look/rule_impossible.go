package look

import (
	"fmt"
	"math"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// impossiblyShort are means of less than this (s) for times in which an engine works.
var impossiblyShort = map[string]float64{
	"gen_ai.server.time_to_first_token": 100e-6, "gen_ai.server.request.duration": 100e-6, "gen_ai.server.time_per_output_token": 10e-6, "itl": 10e-6,
}

// ttftImpossible discredits durations that cannot be: a sum that no durations of zero and more have, and first tokens within microseconds.
func ttftImpossible(s *Scene) (facts []Fact) {
	for _, r := range s.Readings {
		if r.Signal.Kind != "histogram" || r.Signal.Unit != "s" || len(r.Hists) == 0 {
			continue
		}
		h, _ := r.Observed()
		if h.Count < 1 {
			continue
		}
		name := r.Native.Name
		switch {
		case !math.IsNaN(h.Sum) && h.Sum < h.Least()*(1-1e-9)-1e-9:
			s.doubt(r, "a negative observation")
			less := ""
			if h.Sum >= 0 {
				less = fmt.Sprintf(", less than the %s s that its buckets hold at least", significantly(h.Least()))
			}
			why := fmt.Sprintf("%s of %s: the sum of %s durations is %s s%s, so at least one of them is negative.", name, r.Who, count(h.Count), significantly(h.Sum), less)
			facts = append(facts, Fact{Weight: Wrong, Path: r.Signal.Path, About: r.Who.String(), Text: sentence(why, firstBucketGap(&h)),
				Instead: fallback(s, r), Do: "Look for a step of the host's clock, or hosts whose clocks differ: these times are differences of wall clocks. No mean and no quantile of it is shown."})
		case h.Mean() < impossiblyShort[r.Signal.Name] || r.Signal.Name == "gen_ai.server.time_to_first_token" && tooFast(s, r, &h):
			s.doubt(r, "impossibly short")
			in, _ := h.AtMost(h.Bounds[0])
			facts = append(facts, Fact{Weight: Wrong, Path: r.Signal.Path, About: r.Who.String(),
				Text: sentence(fmt.Sprintf("%s of %s cannot be: %s of %s observations are at most %s, %s on average,", name, r.Who, count(in), count(h.Count), seconds(h.Bounds[0]), seconds(h.Mean())),
					whileOthers(s, r)+fmt.Sprintf(" %s is unknown, not short.", short[r.Signal.Name])),
				Instead: fallback(s, r), Do: fmt.Sprintf("Measure %s elsewhere: at the client, or from traces.", inside[r.Signal.Name])})
		}
	}
	return facts
}

// short are the names of such times at the beginning of a sentence, and inside of one.
var (
	short  = map[string]string{"gen_ai.server.time_to_first_token": "TTFT", "gen_ai.server.request.duration": "End-to-end latency", "gen_ai.server.time_per_output_token": "The time per output token", "itl": "The time between outputs"}
	inside = map[string]string{"gen_ai.server.time_to_first_token": "TTFT", "gen_ai.server.request.duration": "end-to-end latency", "gen_ai.server.time_per_output_token": "the time per output token", "itl": "the time between outputs"}
)

// tooFast reports whether first tokens come so soon after prompts of that length that not even tokenizing them fits in.
func tooFast(s *Scene, r *adapter.Reading, h *exposition.Hist) bool {
	prompt, ok := meanPrompt(s, r)
	return ok && h.Mean() < 1e-3 && prompt/h.Mean() > 1e6
}

// meanPrompt is how many tokens the prompts of a histogram's engine have on average.
func meanPrompt(s *Scene, r *adapter.Reading) (tokens float64, ok bool) {
	n := r.Hists[len(r.Hists)-1].Count
	all, ok := s.last("tokens.prompt", r.Who.Engine())
	return all / n, ok && n > 0
}

// firstBucketGap tells of observations in the first bucket that are far from all others: that is where negative ones are counted.
func firstBucketGap(h *exposition.Hist) string {
	if len(h.Counts) == 0 || h.Counts[0] == 0 {
		return ""
	}
	for i := 1; i < len(h.Counts); i++ {
		if h.Counts[i] > h.Counts[i-1] {
			if i == 1 {
				return ""
			}
			return fmt.Sprintf("%s stand in the first bucket, up to %s, though the next that is used is %s to %s.", count(h.Counts[0]), seconds(h.Bounds[0]), seconds(h.Bounds[i-1]), seconds(h.Bounds[i]))
		}
	}
	return ""
}

// whileOthers is what the same engine says that does not go with it.
func whileOthers(s *Scene, r *adapter.Reading) string {
	var said []string
	if prompt, ok := meanPrompt(s, r); ok {
		said = append(said, fmt.Sprintf("prompts average %s tokens", count(prompt)))
	}
	for _, e := range s.about("gen_ai.server.request.duration", r.Who.Engine()) {
		if h, _ := e.Observed(); h.Count > 0 && r.Signal != e.Signal {
			said = append(said, fmt.Sprintf("requests take %s on average", seconds(h.Mean())))
		}
	}
	if len(said) == 0 {
		return "which no engine can do."
	}
	return "while " + strings.Join(said, " and ") + "."
}

func fallback(s *Scene, r *adapter.Reading) string {
	if r.Signal.Name == "gen_ai.server.request.duration" {
		return ""
	}
	for _, e := range s.about("gen_ai.server.request.duration", r.Who.Engine()) {
		if h, _ := e.Observed(); h.Count > 0 && !math.IsNaN(h.Mean()) {
			return fmt.Sprintf("End-to-end latency can be used: %s on average over %s requests.", seconds(h.Mean()), count(h.Count))
		}
	}
	return ""
}
