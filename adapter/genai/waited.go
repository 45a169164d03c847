package genai

import (
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/exposition"
)

// queueTimes are the histograms in which engines count how long requests waited in the scheduler's queue, in seconds.
var queueTimes = []string{"sglang:queue_time_seconds", "sglang_queue_time_seconds", "vllm:request_queue_time_seconds", "trtllm_request_queue_time_seconds", "trtllm:request_queue_time_seconds"}

// Waited is what an engine's metrics say of all requests that left its queue between two scrapes.
type Waited struct {
	Metric string
	MeanNS int64
	Count  int64
}

// WaitedIn reads it from two pages of one engine. Every tensor-parallel rank counts the same requests, so one rank is read.
func WaitedIn(before, after *exposition.Page) (w Waited, ok bool) {
	for _, name := range queueTimes {
		f, g := before.Family(name), after.Family(name)
		if g == nil {
			continue
		}
		sum, count := 0.0, 0.0
		for i := range g.Histograms {
			h := &g.Histograms[i]
			if r := h.Labels.Get("tp_rank"); r != "" && r != "0" {
				continue
			}
			var earlier *exposition.Hist
			if f != nil {
				if k := slices.IndexFunc(f.Histograms, func(e exposition.Hist) bool { return e.Labels.Key() == h.Labels.Key() }); k >= 0 {
					earlier = &f.Histograms[k]
				}
			}
			d, _ := h.Since(earlier)
			sum, count = sum+d.Sum, count+d.Count
		}
		if count >= 1 && sum >= 0 && !math.IsInf(sum, 0) {
			return Waited{name, int64(math.Round(sum / count * 1e9)), int64(count)}, true
		}
	}
	return Waited{}, false
}

// Offer puts what the metrics of the same time say beside calls whose trace lacks the scheduler. It is an inference about a population and
// becomes no part of any call's account.
func (v *View) Offer(w Waited) {
	for _, c := range v.Calls {
		if c.Gap.Why == "" {
			continue
		}
		so := "so waiting is the likely part of it"
		if w.MeanNS < c.Gap.NS/10 {
			so = "so waiting in the queue is not likely to be most of it"
		}
		c.Gap.Evidence = fmt.Sprintf("%s of that time: queue time mean %s over %s; %s (inferred from all requests, not a measured stage of this one)", w.Metric, millis(w.MeanNS), counted(int(w.Count), "request"), so)
	}
}
