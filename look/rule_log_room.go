package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/logline"
)

// crowded is the share from which a pool of memory lets hardly anybody in.
const crowded = 0.95

// logRoom: the memory for KV, or one pool of a hybrid model, is full.
type logRoom struct {
	pools map[string]*pool
}

// pool is one kind of memory over a log.
type pool struct {
	lines       int // that tell its usage
	full        span
	most        float64
	at          logline.Mark
	besides     string // the other pools in that line
	first, last loadAt // when it was full
	of          writers
	silent      bool // V1, which writes nothing of its preemptions
	idle        bool // no prompt token was computed while it was full
}

type loadAt struct{ running, waiting logline.Opt[int] }

func (r *logRoom) take(e *entry) {
	switch x := e.Record.(type) {
	case vllm.Stats:
		if p := r.see(e, "KV cache", x.KVUsage, "", loadAt{x.Running, x.Waiting}); p != nil {
			p.silent = !x.Swapped.Known
			p.idle = (p.idle || p.full.n == 1) && x.PromptRate.Known && x.PromptRate.Value == 0
		}
	case sglang.Decode:
		r.batch(e, x.Batch, x.Waiting())
	case sglang.Prefill:
		r.batch(e, x.Batch, x.Waiting())
	}
}

func (r *logRoom) batch(e *entry, b sglang.Batch, waiting logline.Opt[int]) {
	limiting, ok := b.Limiting()
	if !ok {
		return
	}
	others := ""
	for _, o := range b.Pools {
		if o.Name != limiting.Name && o.Usage.Known {
			others += fmt.Sprintf("%s %.2f", comma(others)+o.Name, o.Usage.Value)
		}
	}
	r.see(e, limiting.Name+" pool", limiting.Usage, others, loadAt{b.Running, waiting})
}

// see takes a pool's usage, and gives the pool if it is full.
func (r *logRoom) see(e *entry, name string, usage logline.Opt[float64], besides string, load loadAt) *pool {
	if !usage.Known {
		return nil
	}
	if r.pools == nil {
		r.pools = map[string]*pool{}
	}
	p := r.pools[name]
	if p == nil {
		p = &pool{}
		r.pools[name] = p
	}
	p.lines++
	if usage.Value > p.most {
		p.most, p.at, p.besides = usage.Value, e.Mark, besides
	}
	if usage.Value < crowded {
		return nil
	}
	if p.full.n == 0 {
		p.first = load
	}
	p.full.add(e.Mark)
	p.of.take(e)
	p.last = load
	return p
}

func (r *logRoom) facts(l *Log) (facts []Fact) {
	for _, name := range sortedKeys(r.pools) {
		p := r.pools[name]
		if p.full.n == 0 {
			continue
		}
		text := fmt.Sprintf("%sthe %s is %.3g %% full %s.", l.called, name, 100*p.most, p.full)
		if p.full.n > 1 {
			text = fmt.Sprintf("%sthe %s is %.0f %% full or more %s; %.3g %% in line %s.", l.called, name, 100*crowded, p.full, 100*p.most, at(p.at, false))
		}
		if p.besides != "" {
			text += fmt.Sprintf(" It limits admission (%.2f), however much room the others have (%s).", p.most, p.besides)
		}
		f := Fact{Weight: Notice, Path: "gpu", Text: sentence(text, p.moved())}
		if p.silent && p.full.n > 1 {
			f.Instead = "V1 writes no line when it preempts for want of room, and the tokens that it computes again are not in its prompt throughput: that the log has neither says nothing."
			f.Do = "Count vllm:num_preemptions_total. If it grows: fewer requests at once (max_num_seqs), shorter outputs, or more memory for KV."
		}
		facts = append(facts, f)
	}
	return facts
}

// moved is how requests went from running to waiting while a pool was full.
func (p *pool) moved() string {
	a, b := p.first, p.last
	if p.of.several || !a.running.Known || !a.waiting.Known || !b.running.Known || !b.waiting.Known || b.waiting.Value <= a.waiting.Value {
		return ""
	}
	text := fmt.Sprintf("Meanwhile waiting requests went from %d to %d and running ones from %d to %d", a.waiting.Value, b.waiting.Value, a.running.Value, b.running.Value)
	if a.running.Value+a.waiting.Value == b.running.Value+b.waiting.Value && p.idle {
		text += fmt.Sprintf(", %d in all both times, with a prompt throughput of 0: it looks as if those that wait had run before, not as if more came", a.running.Value+a.waiting.Value)
	}
	return text + "."
}
