package genai

import (
	"cmp"
	"fmt"
	"slices"
)

// Tokens is a count that may be unknown, which is not zero.
type Tokens struct {
	N     int64
	Known bool
	Why   string // of an unknown count: the reason; of a known one: whose word it is
	Views int    // that say something about it; they are not added up
}

func (t Tokens) String() string {
	if !t.Known {
		return "unknown"
	}
	return fmt.Sprint(t.N)
}

type told struct {
	span   *Span
	n      int64
	engine bool
}

// tokens settles what the views of one call say about its tokens. They are never added up: nested views count the same tokens.
func (t *trace) tokens(c *Call, d *draft) {
	c.Output = t.agreed(c, d, OutputTokens, "output", nil)
	read := t.agreed(c, d, CacheRead, "cached", nil)
	c.Input = t.agreed(c, d, InputTokens, "input", func(s *Span, n, agreed int64) string {
		cached, _ := s.Number(CacheRead)
		written, _ := s.Number(CacheWrite)
		for _, more := range []int64{cached, cached + written} {
			if more > 0 && n+more == agreed {
				return fmt.Sprintf("%s counts %d input tokens because it leaves out the %d cached ones (%d + %d = %d): no conflict", who(s), n, more, more, n, agreed)
			}
		}
		return ""
	})
	if c.Input.Known && read.Known && read.N > c.Input.N {
		c.note("%d input tokens cannot contain %d cached ones: the count leaves them out, and together they are %d", c.Input.N, read.N, c.Input.N+read.N)
		c.Input.N += read.N
	}
	c.Cached = read
	c.Reasoning = t.agreed(c, d, ReasoningTokens, "reasoning", nil)
	if !c.Input.Known && c.Output.Known {
		if total := t.agreed(c, d, TotalTokens, "total", nil); total.Known && total.N > c.Output.N {
			c.Input = Tokens{total.N - c.Output.N, true, "inferred: total less output", total.Views}
		}
	}
}

// agreed is what the views say of one count: the engine's word first, else what most say. explain may find why one of them says otherwise.
func (t *trace) agreed(c *Call, d *draft, f Field, what string, explain func(s *Span, n, agreed int64) string) Tokens {
	var few [8]told
	all := few[:0]
	dropped, zeros := false, 0
	var fromEngine *told
	for _, i := range d.views {
		s := t.spans[i]
		n, ok := s.Number(f)
		switch {
		case !ok:
			dropped = dropped || s.Dropped > 0
		case n == 0 && t.role[i] != engine && f != CacheRead && f != ReasoningTokens:
			zeros++ // a wrapper that counts nothing; no call has an empty prompt
		default:
			all = append(all, told{s, n, t.role[i] == engine})
			if t.role[i] == engine && (fromEngine == nil || n > fromEngine.n) {
				fromEngine = &told{s, n, true}
			}
		}
	}
	if len(all) == 0 {
		switch {
		case zeros > 0 && f == OutputTokens:
			return Tokens{0, true, "a view of the call", zeros}
		case zeros > 0:
			return Tokens{Why: "told as 0 by what does not count them"}
		case dropped:
			return Tokens{Why: "no span says; a sender dropped attributes"}
		}
		return Tokens{Why: "no span says"}
	}
	slices.SortFunc(all, func(a, b told) int { return cmp.Or(cmp.Compare(a.n, b.n), slices.Compare(a.span.ID[:], b.span.ID[:])) })
	agreed, from := mostSaid(all), "most views"
	if fromEngine != nil {
		agreed, from = fromEngine.n, "the engine's span"
	}
	if c.Sequences > 1 && f == OutputTokens {
		agreed, from = t.summed(d, f), "the sum over the sequences of one request"
	}
	for _, a := range all {
		if a.n == agreed || c.Sequences+c.Legs > 2 && a.engine {
			continue
		}
		if explain != nil {
			if why := explain(a.span, a.n, agreed); why != "" {
				c.note("%s", why)
				continue
			}
		}
		c.note("%s says %d %s tokens, %s %d: they contradict each other", who(a.span), a.n, what, from, agreed)
	}
	if zeros > 0 {
		c.note("%s of this call say 0 %s tokens: not counted there", counted(zeros, "view"), what)
	}
	return Tokens{agreed, true, from, len(all)}
}

// mostSaid is the most frequent value, the largest of several such. all is sorted.
func mostSaid(all []told) (value int64) {
	for best, k := 0, 0; k < len(all); {
		n := k
		for n < len(all) && all[n].n == all[k].n {
			n++
		}
		if n-k >= best {
			best, value = n-k, all[k].n
		}
		k = n
	}
	return value
}

func (t *trace) summed(d *draft, f Field) (sum int64) {
	for _, i := range d.views {
		if n, ok := t.spans[i].Number(f); ok && t.role[i] == engine {
			sum += n
		}
	}
	return sum
}

// who names a span in a sentence.
func who(s *Span) string {
	name := cmp.Or(s.Scope.Name, s.Resource.Service)
	return fmt.Sprintf("'%s' of %s", s.Name, cmp.Or(name, "an unnamed scope"))
}
