package vllm

import (
	"time"

	"github.com/whylate/whylate/logline"
)

// Last keeps the newest status line of every engine of one server's run, and adds up without counting anybody twice: a server writes lines of
// its engines or sums of them. Its zero value is ready.
type Last struct {
	engines map[int]Stats
	sum     *Stats // the newest line that is a sum already
}

// Add takes a line, in the order of the log.
func (l *Last) Add(s Stats) {
	if s.Aggregated > 0 {
		l.sum = &s
		return
	}
	if l.engines == nil {
		l.engines = map[int]Stats{}
	}
	l.engines[s.Engine.Or(0)] = s
}

// Running is the number of requests that run, Waiting of those that wait: by the line that is a sum, if there is one, else over the engines.
// They are absent where an engine does not tell.
func (l *Last) Running() logline.Opt[int] {
	return l.total(func(s Stats) logline.Opt[int] { return s.Running })
}

// Waiting: see Running.
func (l *Last) Waiting() logline.Opt[int] {
	return l.total(func(s Stats) logline.Opt[int] { return s.Waiting })
}

func (l *Last) total(of func(Stats) logline.Opt[int]) (n logline.Opt[int]) {
	if l.sum != nil {
		return of(*l.sum)
	}
	for _, s := range l.engines {
		v := of(s)
		if !v.Known {
			return v
		}
		n = logline.Some(n.Value + v.Value)
	}
	return n
}

// Preempted is how many sequences were preempted between two warnings of V0, and in which time: only every so many of them are written. It is
// not known if a warning lacks the total, or the engine has restarted between them.
func Preempted(before, after Entry) (n int, in time.Duration, ok bool) {
	a, ok1 := before.Record.(Preemption)
	b, ok2 := after.Record.(Preemption)
	if !ok1 || !ok2 || !a.Total.Known || !b.Total.Known || b.Total.Value < a.Total.Value {
		return 0, 0, false
	}
	return b.Total.Value - a.Total.Value, after.Time.At.Sub(before.Time.At), true
}
