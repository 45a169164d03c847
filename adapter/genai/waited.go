package genai

import "fmt"

// Waited is what an engine's metrics say of all requests that left its queue between two scrapes.
type Waited struct {
	Metric string
	MeanNS int64
	Count  int64
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
