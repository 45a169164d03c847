package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/logline"
)

// logRetractions: requests are thrown out for want of memory, and computed again.
type logRetractions struct {
	events          span
	of              writers
	thrown, aborted int
	from, to        logline.Opt[float64] // share of the possible output that is held free
	before, first   sglang.Decode        // the newest decode batch, and the one before the first event
	after           sglang.Decode
}

func (r *logRetractions) take(e *entry) {
	switch x := e.Record.(type) {
	case sglang.Decode:
		r.before, r.after = x, x
	case sglang.Retraction:
		if r.events.n == 0 {
			r.from, r.first = x.RatioFrom, r.before
		}
		r.events.add(e.Mark)
		r.of.take(e)
		r.thrown, r.aborted = r.thrown+x.Requests.Or(0), r.aborted+x.Aborted.Or(0)
		newer(&r.to, x.RatioTo)
	}
}

func (r *logRetractions) facts(l *Log) []Fact {
	if r.events.n == 0 {
		return nil
	}
	text := fmt.Sprintf("%sthe KV pool was full and requests were thrown out %s: %s times in all, the same request perhaps more than once. They did not fail: they go back to the queue and are computed again.",
		l.called, r.events, count(float64(r.thrown)))
	if r.aborted > 0 {
		text += fmt.Sprintf(" %s were given up.", count(float64(r.aborted)))
	}
	if r.from.Known && r.to.Known && !r.of.several {
		text += fmt.Sprintf(" new_token_ratio %.4f → %.4f: what is held free for outputs had been too little.", r.from.Value, r.to.Value)
	}
	if a, b := r.first, r.after; a.Rate.Known && b.Rate.Known && !r.of.several {
		text += fmt.Sprintf(" From before the first to the log's end: %s tok/s out, queue %s, running %s.", changed(a.Rate.Value, b.Rate.Value, count), change(a.Queue, b.Queue), change(a.Running, b.Running))
	}
	return []Fact{{Weight: Notice, Path: "request", Text: text, Do: "Let fewer requests run at once (max_running_requests), set realistic max_new_tokens, or give the KV pool more memory."}}
}
