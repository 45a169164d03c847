package genai

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// First is one measurement of the time to the first token or chunk. They start and end at different points and are not merged.
type First struct {
	NS       int64
	From, To string
	By       []*Span // who say so
	Said     string  // the same in words, of a call that was kept
	Standing Standing
}

// Sayers names who say so.
func (f First) Sayers() string {
	if len(f.By) == 0 {
		return f.Said
	}
	var by []string
	for _, s := range f.By {
		by = append(by, who(s))
	}
	return strings.Join(by, " and ")
}

func (f First) String() string {
	return fmt.Sprintf("%s from %s to %s (%s)", millis(f.NS), f.From, f.To, f.Sayers())
}

// firsts collects what the views say of the first token, the engine's word first.
func (t *trace) firsts(c *Call, d *draft) {
	for _, engines := range []bool{true, false} {
		for _, i := range d.views {
			if (t.role[i] == engine) != engines {
				continue
			}
			s := t.spans[i]
			if ns, ok := c.time(s, FirstToken); ok && engines {
				c.first(First{ns, "arrival at the engine's front end", "first token", []*Span{s}, "", Measured})
			} else if ok {
				c.first(First{ns, "the span's start", "first token", []*Span{s}, "", Measured})
			}
			if ns, ok := s.Number(FirstChunk); ok {
				c.first(First{ns, "sending", "first chunk", []*Span{s}, "", Measured})
			}
		}
	}
}

// first keeps a measurement unless another one of the same quantity already says as much.
func (c *Call) first(f First) {
	for k := range c.First {
		g := &c.First[k]
		if g.To == f.To && max(f.NS-g.NS, g.NS-f.NS) <= max(g.NS/100, int64(time.Millisecond)) {
			if !slices.ContainsFunc(g.By, func(s *Span) bool { return who(s) == who(f.By[0]) }) {
				g.By = append(g.By, f.By...)
			}
			return
		}
	}
	c.First = append(c.First, f)
}
