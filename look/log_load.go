package look

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/logline"
	"github.com/whylate/whylate/signals"
)

// load is what the newest lines of a log's engines say, and the mean of what they said before.
type load struct {
	engines  map[string]*engineLoad // by who wrote it, bounded
	computed average                // prompt tokens per second, of every line
}

// engineLoad is the newest of one engine, or of a sum over some.
type engineLoad struct {
	logline.Mark
	sum              int // of so many engines; 0: it is one
	running, waiting logline.Opt[int]
	prompt, tokens   logline.Opt[float64] // per second
	pool             string               // the fullest one
	usage            logline.Opt[float64]
}

// average adds up values.
type average struct {
	sum float64
	n   int
}

func (m *average) add(v logline.Opt[float64]) {
	if v.Known {
		m.sum, m.n = m.sum+v.Value, m.n+1
	}
}

func (m average) value() float64 { return m.sum / float64(m.n) }

const (
	mostWriters = 1024
	current     = time.Minute // a line so much older than the newest says nothing of now: its engine is idle, or gone
)

func (l *load) take(e *entry) {
	switch r := e.Record.(type) {
	case vllm.Stats:
		l.computed.add(r.PromptRate)
		l.sums(r.Aggregated > 0)
		if n := l.of(e); n != nil {
			n.sum, n.running, n.waiting, n.prompt, n.tokens, n.pool, n.usage = r.Aggregated, r.Running, r.Waiting, r.PromptRate, r.GenerationRate, "KV cache", r.KVUsage
		}
	case sglang.Decode:
		if n := l.of(e); n != nil {
			n.batch(r.Batch, r.Waiting())
			n.tokens = r.Rate
		}
	case sglang.Prefill:
		if n := l.of(e); n != nil {
			n.batch(r.Batch, r.Waiting())
			n.prompt = r.Rate
		}
	}
}

func (n *engineLoad) batch(b sglang.Batch, waiting logline.Opt[int]) {
	n.running, n.waiting = b.Running, waiting
	if p, ok := b.Limiting(); ok {
		n.pool, n.usage = p.Name+" pool", p.Usage
	}
}

// of is the newest state of who wrote a line. It is nil if there are too many.
func (l *load) of(e *entry) *engineLoad {
	n := l.engines[e.Writer]
	if n == nil {
		if len(l.engines) >= mostWriters {
			return nil
		}
		if l.engines == nil {
			l.engines = map[string]*engineLoad{}
		}
		n = &engineLoad{}
		l.engines[e.Writer] = n
	}
	n.Mark = e.Mark
	return n
}

// sums forgets what was known when a server writes sums after lines of its engines, or the other way round: nobody is to be counted twice.
func (l *load) sums(now bool) {
	for _, n := range l.engines {
		if (n.sum > 0) != now {
			l.engines = nil
		}
		return
	}
}

// newest are the engines that wrote not long before the last one did, and that one first.
func (l *load) newest() (now []*engineLoad) {
	for _, n := range l.engines {
		now = append(now, n)
	}
	slices.SortFunc(now, func(a, b *engineLoad) int { return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(b.First, a.First)) })
	return slices.DeleteFunc(now, func(n *engineLoad) bool {
		return n.Time.Date != logline.NoTime && now[0].Time.Date != logline.NoTime && now[0].Time.At.Sub(n.Time.At) > current
	})
}

// logPath is what logs say of a path, where nothing else does: of the log that has the most to say for it, and of how many.
func logPath(s *Scene, path signals.Path) string {
	var said string
	var best *Log
	worst, n := math.Inf(-1), 0
	for _, l := range s.Logs {
		now := l.load.newest()
		if len(now) == 0 {
			continue
		}
		text, bad := pathOf(path, now)
		if text == "" {
			continue
		}
		n++
		if bad > worst {
			worst, best = bad, l
			said = fmt.Sprintf("line %s%s: %s", at(now[0].Mark, true), s.age(now[0].Time), text)
		}
	}
	switch {
	case best == nil:
		return ""
	case len(s.Logs) == 1:
		return "from the log, " + said
	case n == 1:
		return fmt.Sprintf("from %s, %s", best.title(), said)
	}
	return fmt.Sprintf("from %s, the worst of %d logs, %s", best.title(), n, said)
}

// age is ", 12 s old" where a log's zone and the time of looking are known.
func (s *Scene) age(t logline.Time) string {
	if s.now.IsZero() || t.Zone == logline.ZoneUnknown || t.Date != logline.DateTold && t.Date != logline.YearGuessed {
		return ""
	}
	if old := s.now.Sub(t.At); old >= 0 {
		return ", " + inWords(old) + " old"
	}
	return ", which is yet to come: is the zone right?"
}

// inWords is a time in the largest unit that it has two of.
func inWords(d time.Duration) string {
	for _, unit := range []struct {
		time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= 2*unit.Duration {
			return count(float64(d/unit.Duration)) + " " + unit.name
		}
	}
	return count(d.Seconds()) + " s"
}

// pathOf sums up a path over engines of one log, and says how bad that is.
func pathOf(path signals.Path, now []*engineLoad) (text string, bad float64) {
	switch path {
	case signals.Request:
		running, waiting := total(now, func(n *engineLoad) logline.Opt[int] { return n.running }), total(now, func(n *engineLoad) logline.Opt[int] { return n.waiting })
		if running.Known {
			text = count(float64(running.Value)) + " running"
		}
		if waiting.Known {
			text += comma(text) + count(float64(waiting.Value)) + " waiting"
		}
		return text + over(text, now), float64(waiting.Or(0))
	case signals.Token:
		var tokens, prompt average
		for _, n := range now {
			tokens.add(n.tokens)
			prompt.add(n.prompt)
		}
		if tokens.n > 0 {
			text = rate(tokens.sum, 1) + " out"
		}
		if prompt.n > 0 {
			text += comma(text) + rate(prompt.sum, 1) + " of prompts computed"
		}
		return text + over(text, now), -tokens.sum
	case signals.GPU:
		var full *engineLoad
		for _, n := range now {
			if n.usage.Known && (full == nil || n.usage.Value > full.usage.Value) {
				full = n
			}
		}
		if full == nil {
			return "", 0
		}
		text = full.pool + " " + share(full.usage.Value)
		if full.sum > 0 {
			text += fmt.Sprintf(" on average of %d engines: the fullest may be full", full.sum)
		} else if len(now) > 1 {
			text += fmt.Sprintf(", the fullest of %d engines", len(now))
		}
		return text, full.usage.Value
	}
	return "", 0
}

func comma(before string) string {
	if before == "" {
		return ""
	}
	return ", "
}

// over says of how many engines a text is the sum.
func over(text string, now []*engineLoad) string {
	switch {
	case text == "":
		return ""
	case now[0].sum > 0:
		return fmt.Sprintf(" over %d engines", now[0].sum)
	case len(now) > 1:
		return fmt.Sprintf(" over %d engines", len(now))
	}
	return ""
}

func total(now []*engineLoad, of func(*engineLoad) logline.Opt[int]) (sum logline.Opt[int]) {
	for _, n := range now {
		if v := of(n); v.Known {
			sum = logline.Some(sum.Value + v.Value)
		}
	}
	return sum
}

// title is a log's name without its folders.
func (l *Log) title() string {
	return exposition.Printable(l.Name[strings.LastIndexByte(l.Name, '/')+1:], 80)
}
