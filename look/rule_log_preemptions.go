package look

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/logline"
)

// logPreemptions counts what the log says of preemptions: V0's warnings, of which only every so many is written, and V1's field.
type logPreemptions struct {
	warnings    span
	before      map[string]vllm.Entry // by engine
	first, last int                   // totals
	grown       int
	over        time.Duration
	timeless    bool // of a part of grown it is not known how long it took
	fields      span
	during      int // by V1's field
}

func (p *logPreemptions) take(e *entry) {
	switch r := e.Record.(type) {
	case vllm.Preemption:
		now := vllm.Entry{Mark: e.Mark, Record: r}
		if p.warnings.n == 0 {
			p.first, p.before = r.Total.Or(0), map[string]vllm.Entry{}
		}
		if n, in, ok := vllm.Preempted(p.before[e.Writer], now); ok {
			p.grown, p.over = p.grown+n, p.over+in
			p.timeless = p.timeless || in < 0 || e.Time.Date == logline.NoTime
		}
		p.warnings.add(e.Mark)
		p.last = r.Total.Or(0)
		if len(p.before) < mostWriters {
			p.before[e.Writer] = now
		}
	case vllm.Stats:
		if r.Preemptions.Or(0) > 0 {
			p.fields.add(e.Mark)
			p.during += r.Preemptions.Value
		}
	}
}

func (p *logPreemptions) facts(l *Log) (facts []Fact) {
	if p.warnings.n > 0 {
		text := fmt.Sprintf("%svLLM (V0) warns of preemption %s.", l.called, p.warnings)
		if p.grown > 0 {
			text += fmt.Sprintf(" +%s preemptions", count(float64(p.grown)))
			if !p.timeless && len(p.before) == 1 {
				text += " in " + seconds(p.over.Seconds())
			}
			text += " between warnings, by their cumulative count"
		} else {
			text += " Cumulative count"
		}
		if p.first != p.last {
			text += fmt.Sprintf(" (%s at first, %s at last).", count(float64(p.first)), count(float64(p.last)))
		} else {
			text += fmt.Sprintf(" %s.", count(float64(p.last)))
		}
		facts = append(facts, Fact{Weight: Notice, Path: "request", Text: text + " The line is rate-limited: not every preemption is printed, so count by its number, not by its lines.",
			Do: "The KV cache has no room: fewer requests at once, shorter outputs or more memory for it."})
	}
	if p.fields.n > 0 {
		facts = append(facts, Fact{Weight: Notice, Path: "request", Text: fmt.Sprintf("%sat least %s preemptions, %s.", l.called, count(float64(p.during)), p.fields)})
	}
	return facts
}
