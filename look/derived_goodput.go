package look

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/adapter"
)

// Objectives are what a request must keep to be good; 0 = none.
type Objectives struct {
	TTFT time.Duration // time to first token
	TPOT time.Duration // per output token after it
}

func goodputShare(s *Scene, w adapter.Who) (d Derived, ok bool) {
	low, high := 1.0, 1.0
	met := 0
	for _, o := range []struct {
		signal string
		bound  time.Duration
	}{{"gen_ai.server.time_to_first_token", s.objectives.TTFT}, {"gen_ai.server.time_per_output_token", s.objectives.TPOT}} {
		if o.bound == 0 {
			continue
		}
		least, most, ok := s.within(o.signal, w, o.bound)
		if !ok {
			return d, false // who is not seen to keep one may break it
		}
		low, high, met = low+least-1, min(high, most), met+1
	}
	if met == 0 {
		return d, false
	}
	d = Derived{Low: max(0, low), High: high, worse: -high}
	d.Text = fmt.Sprintf("between %s and %s of the requests met every objective", share(d.Low), share(d.High))
	return d, true
}

// within is between which shares of what a histogram observed of an engine lie at or below a bound.
func (s *Scene) within(signal string, w adapter.Who, bound time.Duration) (low, high float64, ok bool) {
	var least, most, all float64
	for _, r := range s.about(signal, w) {
		h, _ := r.Observed()
		l, m := h.AtMost(bound.Seconds())
		least, most, all = least+l, most+m, all+h.Count
	}
	if all == 0 {
		return 0, 0, false
	}
	return least / all, most / all, true
}
