package world

import (
	"slices"
	"time"

	"github.com/whylate/whylate/ledger"
)

// FrontLike is a front end whose costs are the medians of a recorded one's: what a request costs, its tokenising included, the way to the
// engine's process, and what taking up an iteration's output costs beyond [DefaultFront.Output]. What was not recorded is as in
// [DefaultFront].
func FrontLike(b *ledger.Book) Front {
	var request, hop, output []time.Duration
	for _, r := range b.Requests {
		for _, q := range r.Sequences {
			if r.Received != 0 && q.Submitted > r.Received && q.Index == 0 {
				request = append(request, time.Duration(q.Submitted-r.Received))
			}
			if q.Submitted != 0 && q.Arrived > q.Submitted && q.Index == 0 {
				hop = append(hop, time.Duration(q.Arrived-q.Submitted))
			}
			if q.FirstToken != 0 && r.FirstByte > q.FirstToken && len(r.Sequences) == 1 {
				output = append(output, time.Duration(r.FirstByte-q.FirstToken))
			}
		}
	}
	f := DefaultFront
	if len(request) > 0 {
		f.Request, f.Token = median(request), 0
	}
	if len(hop) > 0 {
		f.Hop = median(hop)
	}
	if len(output) > 0 {
		f.Batch = max(0, median(output)-f.Hop-f.Output)
	}
	return f
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
