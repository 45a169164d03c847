package look

import (
	"fmt"
	"math"
)

// bucketEdges tells where a histogram cannot answer: all below its first bound, or the tail above its last.
func bucketEdges(s *Scene) (facts []Fact) {
	for _, r := range s.Readings {
		if r.Signal.Kind != "histogram" || r.Signal.Unit != "s" || s.invalid[r] != "" || len(r.Hists) == 0 {
			continue
		}
		h, _ := r.Observed()
		if h.Count < 20 || len(h.Bounds) == 0 {
			continue
		}
		f := Fact{Weight: Notice, Path: r.Signal.Path, About: r.Who.String()}
		switch low, high := h.AboveMean(); {
		case h.Quantile(0.99).Floor():
			in, _ := h.AtMost(h.Bounds[0])
			f.Text = fmt.Sprintf("%s of %s: %s of %s are below %s, the floor of its buckets; mean %s. No quantile can be told from it.", r.Native.Name, r.Who, count(in), count(h.Count), seconds(h.Bounds[0]), seconds(h.Mean()))
		case h.Quantile(0.99).Cap():
			f.Text = fmt.Sprintf("%s of %s: %s of %s are above %s, its last bucket: p99 is over %s, and that is all that can be told; p50 %s, p80 %s.",
				r.Native.Name, r.Who, count(h.Above()), count(h.Count), seconds(h.Bounds[len(h.Bounds)-1]), seconds(h.Bounds[len(h.Bounds)-1]), between(h.Quantile(0.5)), between(h.Quantile(0.8)))
			if !math.IsNaN(low) {
				f.Instead = fmt.Sprintf("From the sum, those above took between %s and %s on average.", seconds(low), seconds(high))
			}
			f.Do = "Do not compare this quantile before and after, nor with an objective above the last bucket."
		default:
			continue
		}
		facts = append(facts, f)
	}
	return facts
}
