package genai

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/account"
)

// Standing is how sure a time is.
type Standing string

// Standings.
const (
	Measured Standing = "measured" // a span's or an attribute's own time, or the difference of two on one clock
	Inferred Standing = "inferred" // follows from how spans lie, not from what one says
	Unknown  Standing = "unknown"  // time that nobody accounts for
)

// Line is one part of a call's time. The lines of a call sum to its E2E exactly.
type Line struct {
	Part     account.Part
	Name     string
	NS       int64
	Standing Standing
}

// Layer is one view of a call, outermost first.
type Layer struct {
	Span       *Span
	Shift      int64 // ns that Start and End are corrected by in what is shown; 0 where they stand as they came
	Half       int64 // and how far that may be wrong
	Inferred   bool  // its place comes from times or ids, not from parents
	LeftOpen   bool  // it ended long after the answer: closed late, its end means nothing
	AtFirst    bool  // it ended at the first token, though a stream goes on after it
	LeftBefore bool  // it ended before what it enclosed: whoever asked had gone
}

// usable reports that the layer's duration is how long somebody waited.
func (l *Layer) usable() bool { return !l.Span.Open() && !l.LeftOpen && !l.LeftBefore && !l.AtFirst }

// Times are the layer's start and end on the outermost clock.
func (l *Layer) Times() (start, end int64) { return l.Span.Start + l.Shift, l.Span.End + l.Shift }

// Network is what a client waited beyond its server's own time. Only the sum is measured: the way there and back are bounds.
type Network struct {
	NS                                   int64
	Bounded                              bool // the four below are known
	SendLow, SendHigh, BackLow, BackHigh int64
	Shift                                Shift
}

// rest is what is left of a span's time while parts are taken from it.
type rest struct {
	c    *Call
	left int64
	cut  int64
}

// take moves up to ns from what is left to a part; what a span claims beyond its own duration is cut and said.
func (r *rest) take(p account.Part, name string, ns int64, s Standing) {
	if ns > r.left {
		r.cut += ns - r.left
		ns = r.left
	}
	if ns <= 0 {
		return
	}
	r.left -= ns
	r.c.line(p, name, ns, s)
}

func (c *Call) line(p account.Part, name string, ns int64, s Standing) {
	if ns > 0 {
		c.Lines = append(c.Lines, Line{p, name, ns, s})
	}
}

// account shares out the time of a call: from the outermost view whose duration means something down to the engine's own parts.
func (t *trace) account(c *Call, inner int32, clk *Clocks) {
	e := t.spans[inner]
	at := slices.IndexFunc(c.Layers, func(l Layer) bool { return l.Span == e })
	took, known := e.Duration()
	if !known {
		if took, known = e.Number(E2E); known {
			c.note("%s has no usable end; its own word for its duration is taken", who(e))
		}
	}
	if !known {
		t.fromOutside(c)
		return
	}
	if told, ok := c.time(e, E2E); ok && took-told > late && told < took/2 {
		c.note("%s lasted %s and says of itself %s: it was closed late, its own word is taken", who(e), millis(took), millis(told))
		took = told
	}
	c.Server = Duration{took, true, ""}
	t.judge(c, at, took, clk)
	outer := slices.IndexFunc(c.Layers[:at], func(l Layer) bool { return l.usable() })
	if outer < 0 {
		outer = at
	}
	o := &c.Layers[outer]
	c.E2E, c.Whose = Duration{took, true, ""}, e
	if outer < at {
		d, _ := o.Span.Duration()
		c.E2E, c.Whose = Duration{d, true, ""}, o.Span
	}
	c.client()
	server := t.server(c, outer, at)
	if s := &c.Layers[server]; server < at {
		d, _ := s.Span.Duration()
		t.network(c, outer, server, c.E2E.NS-d, clk)
		c.line(account.Frontend, "server before engine", e.Start-s.Span.Start, standing(s))
		t.engineParts(c, inner, took)
		c.line(account.Stream, "server after engine", s.Span.End-e.Start-took, standing(s))
	} else {
		t.network(c, outer, at, c.E2E.NS-took, clk)
		t.engineParts(c, inner, took)
	}
}

// client takes the duration of the outermost client's span, if that is when its wait ended; an inner client is another one's.
func (c *Call) client() {
	for k := range c.Layers {
		if l := &c.Layers[k]; l.Span.Kind == Client {
			if d, known := l.Span.Duration(); known && l.usable() {
				c.Client = Duration{d, true, ""}
			}
			return
		}
	}
}

func standing(l *Layer) Standing {
	if l.Inferred {
		return Inferred
	}
	return Measured
}

// server is the outermost layer on the engine's own host that encloses the engine: their times are on one clock and can be compared.
func (t *trace) server(c *Call, outer, at int) int {
	e := c.Layers[at].Span
	best, took := at, c.Server.NS
	limit, _ := c.Layers[outer].Span.Duration()
	for k := at - 1; k >= outer; k-- {
		s := c.Layers[k].Span
		if s.Kind == Client || s.End-s.Start > limit || !c.Layers[k].usable() || !sameHost(s.Resource, e.Resource) || s.Start > e.Start || s.End < e.Start+took {
			break
		}
		best = k
	}
	return best
}

// network is the time of a call outside the server: gateways, proxies, the way there and back.
func (t *trace) network(c *Call, outer, server int, ns int64, clk *Clocks) {
	if outer == server {
		return
	}
	r := &rest{c: c, left: ns}
	r.take(account.Gateway, "earlier attempts", c.earlier, Measured)
	r.take(account.Prefill, "other leg", c.otherLegs, Measured)
	ns = r.left
	r.take(account.Gateway, "network and gateway", ns, Measured)
	o, s := c.Layers[outer].Span, c.Layers[server].Span
	c.Network = &Network{NS: ns}
	shift, ok := Shift{}, clockOf(o.Resource) == clockOf(s.Resource)
	if c.earlier+c.otherLegs > 0 || s.Start <= 0 {
		return // the way there contains more than the way
	}
	if !ok {
		shift, ok = clk.between(clockOf(o.Resource), clockOf(s.Resource), o.Start)
	}
	if !ok {
		return
	}
	apart := s.Start - o.Start
	c.Network.Bounded, c.Network.Shift = true, shift
	c.Network.SendLow, c.Network.SendHigh = min(max(apart+shift.Low, 0), ns), max(min(apart+shift.High, ns), 0)
	c.Network.BackLow, c.Network.BackHigh = ns-c.Network.SendHigh, ns-c.Network.SendLow
}

const (
	late      = int64(time.Second)      // how long after an aborted answer a client may still be closing
	veryLate  = int64(60 * time.Second) // and after a whole one, if it is also many times the answer's own time
	manyTimes = 10
)

// judge marks the layers whose end cannot be the end of somebody's wait, and sets the clocks right.
func (t *trace) judge(c *Call, at int, took int64, clk *Clocks) {
	for k := 1; k < len(c.Layers); k++ {
		l, above := &c.Layers[k], &c.Layers[k-1]
		l.Shift, l.Half = above.Shift, above.Half
		a, b := clockOf(above.Span.Resource), clockOf(l.Span.Resource)
		if a == b {
			continue
		}
		if s, ok := clk.between(a, b, above.Span.Start); ok && s.Proven() {
			l.Shift, l.Half = l.Shift+s.Middle(), l.Half+s.Half()
		}
	}
	_, answered := c.Layers[at].Times()
	if c.Layers[at].Span.Open() {
		answered = c.Layers[at].Span.Start + c.Layers[at].Shift + took
	}
	for k := range c.Layers[:at] {
		l := &c.Layers[k]
		d, known := l.Span.Duration()
		if !known {
			c.Open++
			c.note("%s has no usable end: its duration is unknown", who(l.Span))
			continue
		}
		_, end := l.Times()
		after := min(end-answered, d-took)
		first, streamed := c.time(c.Layers[at].Span, FirstToken)
		switch {
		case d < took && streamed && max(d-first, first-d) <= max(first/5, int64(100*time.Millisecond)) && !c.gaveUp:
			l.AtFirst = true
			c.note("%s ended after %s, at the first token (%s): it covers the beginning of a stream that went on for %s", who(l.Span), millis(d), millis(first), millis(took-first))
		case d < took:
			l.LeftBefore = true
			c.note("%s ended after %s, before the engine had finished (%s): whoever asked had gone, or did not wait", who(l.Span), millis(d), millis(took))
		case c.gaveUp && after > late:
			l.LeftOpen = true
			c.note("%s was left open after abort: it was closed %s later, which nobody waited for", who(l.Span), millis(after))
		case after > veryLate && after/manyTimes > took:
			l.LeftOpen = true
			c.note("%s was left open: it was closed %s after the answer, which nobody waited for", who(l.Span), millis(after))
		}
	}
}

// fromOutside is the account of a call whose inner span has no duration: what encloses it, unexplained.
func (t *trace) fromOutside(c *Call) {
	for k := range c.Layers {
		l := &c.Layers[k]
		if l.Span.Open() {
			c.Open++
			c.note("%s has no usable end: its duration is unknown", who(l.Span))
		}
	}
	for k := range c.Layers {
		l := &c.Layers[k]
		if d, known := l.Span.Duration(); known {
			c.E2E, c.Whose = Duration{d, true, ""}, l.Span
			c.client()
			c.line(account.Unexplained, "what was inside has no end", d, Unknown)
			return
		}
	}
	c.E2E.Why = "no span of the call has a usable end"
}

// engineParts shares out the innermost span by its own word: SGLang's stages, or the latencies that engines put on their span.
func (t *trace) engineParts(c *Call, inner int32, took int64) {
	if t.role[inner] == engine && t.stages(c, inner, took) {
		return
	}
	s := t.spans[inner]
	r := &rest{c: c, left: took}
	first, hasFirst := c.time(s, FirstToken)
	if !hasFirst && t.role[inner] != engine {
		first, hasFirst = c.time(s, FirstChunk)
	}
	queue, hasQueue := c.time(s, QueueTime)
	prefill, hasPrefill := c.time(s, PrefillTime)
	decode, hasDecode := c.time(s, DecodeTime)
	transfer, _ := c.time(s, TransferTime)
	r.take(account.Queue, "queue", queue, Measured)
	r.take(account.Transfer, "KV transfer", transfer, Measured)
	r.take(account.Prefill, "prefill", prefill, Measured)
	before := first - queue - prefill - transfer
	switch {
	case hasFirst && hasPrefill:
		r.take(account.Frontend, "other before first token (front end, inbox)", before, Measured)
		if hasQueue && before > took/4 && before > late {
			c.note("%s before the first token lie outside queue and prefill: in the front end or in the inbox, before the scheduler took the request up; the engine's queue time does not contain the inbox", millis(before))
		}
	case hasFirst:
		r.take(account.Unexplained, "before first token, not split", before, Unknown)
	}
	switch {
	case hasDecode && hasFirst:
		r.take(account.Decode, "decode", decode, Measured)
		r.take(account.Stream, "after decode", r.left, Measured)
	case hasDecode:
		r.take(account.Decode, "decode", decode, Measured)
	case hasFirst && t.role[inner] == engine:
		r.take(account.Decode, "after first token, not split", r.left, Inferred)
	case hasFirst:
		r.take(account.Unexplained, "after first token, not split", r.left, Unknown)
	}
	if t.role[inner] != engine {
		c.note("the engine's own span is not here: what went on inside the server cannot be told")
	}
	r.take(account.Unexplained, "not split", r.left, Unknown)
	if r.cut > int64(time.Millisecond) {
		c.note("%s names parts that are %s longer than itself; they are cut to what it took", who(s), millis(r.cut))
	}
	if hasFirst && first < queue+prefill-int64(time.Millisecond) {
		c.note("%s has its first token before queue and prefill are over (%s against %s)", who(s), millis(first), millis(queue+prefill))
	}
}

// unit finds engines that tell milliseconds or microseconds under names whose unit is the second: then the duration that they tell is a thousand
// or a million times that of their span.
func (c *Call) unit(s *Span) {
	took, known := s.Duration()
	told, too := s.Number(E2E)
	if !known || !too || took <= 0 {
		return
	}
	for _, u := range []struct {
		by   int64
		name string
	}{{1_000, "milliseconds"}, {1_000_000, "microseconds"}} {
		if ratio := float64(told) / float64(u.by) / float64(took); ratio > 0.9 && ratio < 1.1 {
			c.scaled, c.scale = s, u.by
			c.note("%s tells its latencies in %s, though their names stand for seconds: taken as such", who(s), u.name)
		}
	}
}

// time is a duration that a span tells, in ns.
func (c *Call) time(s *Span, f Field) (ns int64, known bool) {
	ns, known = s.Number(f)
	if s == c.scaled && c.scale > 0 {
		ns /= c.scale
	}
	return ns, known
}

// longerOrder puts the longer span first; one of unknown duration counts as short.
func longerOrder(a, b *Span) int {
	x, _ := a.Duration()
	y, _ := b.Duration()
	return cmp.Compare(y, x)
}
