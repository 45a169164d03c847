package genai

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/whylate/whylate/account"
)

// begin fills in what needs no clock.
func (t *trace) begin(d *draft, inner int32) *Call {
	c := &Call{Trace: t.spans[d.head].Trace, Attempts: d.attempts, Sequences: 1, Legs: 1}
	path := t.path(d, inner)
	c.Layers = make([]Layer, 0, len(path)+1)
	c.Lines = make([]Line, 0, 8)
	c.Shapes = make([]Shape, 0, 6)
	for _, i := range path {
		t.used[i] = true
		c.Layers = append(c.Layers, Layer{Span: t.spans[i], Inferred: t.spans[i].adopted || d.sibling && i != inner && !t.nested(inner, i)})
	}
	if s := t.spans[inner]; s.adopted {
		c.note("%s came in a trace of its own; inferred from its request id: it belongs here", who(s))
	}
	if w := t.beside(inner); w >= 0 {
		c.Layers = slices.Insert(c.Layers, len(c.Layers)-1, Layer{Span: t.spans[w], Inferred: true})
		c.note("'%s' and '%s' hang side by side under one parent; inferred from their times and host: the first encloses the second, so they are not added up", t.spans[w].Name, t.spans[inner].Name)
		path = append(path, w)
	}
	if top := path[0]; t.missing[top] {
		c.MissingParent = t.spans[top].Parent
	}
	c.Start = c.Layers[0].Span.Start
	for _, i := range d.views {
		t.used[i] = true
		if s := t.spans[i]; s.adopted && !slices.Contains(c.Came, s.came) {
			c.Came = append(c.Came, s.came)
		}
	}
	for _, i := range d.lost {
		t.used[i] = true
	}
	slices.SortFunc(d.views, func(a, b int32) int {
		return cmp.Or(longerOrder(t.spans[a], t.spans[b]), cmp.Compare(a, b))
	})
	c.unit(t.spans[inner])
	t.enginesOf(c, d, inner)
	t.tokens(c, d)
	t.firsts(c, d)
	t.describe(c, d, path)
	t.chunks(c, path)
	t.failedAttempts(c, d, path)
	return c
}

// nested reports that a span lies below another one, or is it.
func (t *trace) nested(i, above int32) bool {
	for n := 0; i >= 0 && n < 4*maxLayers; n++ {
		if i == above {
			return true
		}
		i = t.parent[i]
	}
	return false
}

// enginesOf tells sequences of one request (side by side) from its legs (one after the other).
func (t *trace) enginesOf(c *Call, d *draft, inner int32) {
	main := t.spans[inner]
	for _, i := range d.views {
		if t.role[i] != engine {
			continue
		}
		c.engines = append(c.engines, i)
		s := t.spans[i]
		ns, known := s.Duration()
		switch {
		case i == inner || !known || main.Open():
		case s.End <= main.Start || s.Start >= main.End:
			c.Legs++
			c.otherLegs += ns
		case s.Parent == main.Parent:
			c.Sequences++
		}
	}
	slices.Sort(c.engines)
	if c.Sequences > 1 {
		c.note("%d sequences of one request run side by side; its time is the longest one's", c.Sequences)
	}
	if c.Legs > 1 {
		c.note("%d legs on engines one after the other; the parts are those of the longest, the time of the others stands beside it", c.Legs)
	}
}

// describe collects names, ids, outcome signs, sampling and spellings.
func (t *trace) describe(c *Call, d *draft, path []int32) {
	for _, i := range d.views {
		s := t.spans[i]
		c.Operation = cmp.Or(c.Operation, operation(s.Text(Operation)))
		c.provider(s.Get(Provider))
		c.Requested = cmp.Or(c.Requested, s.Text(RequestModel))
		c.Served = cmp.Or(c.Served, s.Text(ResponseModel))
		c.ResponseID = cmp.Or(c.ResponseID, s.Text(ResponseID))
		if t.role[i] == engine {
			c.RequestID = cmp.Or(s.Text(RequestID), c.RequestID)
		} else {
			c.RequestID = cmp.Or(c.RequestID, s.Text(RequestID))
		}
		if reason := s.Text(FinishReason); reason != "" && (c.Finish == "" || abortReason(reason)) {
			c.Finish = reason
		}
		c.gaveUp = c.gaveUp || s.Status == Cancelled || abortReason(s.Text(FinishReason))
		if s.Threshold.Known && (!c.Threshold.Known || s.Threshold.T < c.Threshold.T) {
			c.Threshold = s.Threshold
		}
		for _, a := range s.Attrs {
			if a.Name.Shape != Web && !slices.Contains(c.Shapes, a.Name.Shape) {
				c.Shapes = append(c.Shapes, a.Name.Shape)
			}
		}
		if s.Content != nil {
			c.Content.plus(s.Content)
		}
	}
	for _, i := range path {
		code, _ := t.spans[i].Number(HTTPStatus)
		c.gaveUp = c.gaveUp || code == 499 || t.spans[i].Status == Cancelled
		if s := t.spans[i]; s.Threshold.Known && (!c.Threshold.Known || s.Threshold.T < c.Threshold.T) {
			c.Threshold = s.Threshold
		}
	}
	slices.Sort(c.Shapes)
}

// provider is one field under its old and its new name. Libraries write the protocol they speak into it, so several may be told.
func (c *Call) provider(a *Attr) {
	switch {
	case a == nil || a.Text == c.Provider:
	case c.Provider == "":
		c.Provider = a.Text
	default:
		c.note("the provider is also told as %s (%s)", a.Text, a.Name.Key)
	}
}

// operation is the standard's word for an operation.
func operation(op string) string {
	switch op {
	case "completion", "completions":
		return "text_completion"
	}
	return op
}

func (c *Content) plus(o *Content) {
	c.Attributes += o.Attributes
	c.Bytes += o.Bytes
	c.Truncated += o.Truncated
	c.Oversized += o.Oversized
	c.Roles.System += o.Roles.System
	c.Roles.User += o.Roles.User
	c.Roles.Assistant += o.Roles.Assistant
	c.Roles.Tool += o.Roles.Tool
	c.Roles.Other += o.Roles.Other
}

// chunks collapses the spans that a web framework makes for each streamed chunk.
func (t *trace) chunks(c *Call, path []int32) {
	for _, p := range path {
		sends, body, layer := 0, int64(0), t.spans[p]
		for _, i := range t.kids(p) {
			if s := t.spans[i]; t.role[i] == chunk && s.Text(ASGIEvent) != "http.request" && s.Text(ASGIEvent) != "http.disconnect" {
				sends++
				if s.Text(ASGIEvent) == "http.response.body" && body == 0 {
					body = s.Start
				}
			}
		}
		if sends == 0 {
			continue
		}
		c.Chunks += sends
		c.note("%d 'http send' spans are one a streamed chunk and no stages: collapsed", sends)
		if body > layer.Start && layer.Start > 0 {
			c.first(First{body - layer.Start, "arrival at the web server", "first chunk sent", []*Span{layer}, "", Inferred})
		}
	}
}

// failedAttempts adds HTTP tries below a view that failed before the one that answered began.
func (t *trace) failedAttempts(c *Call, d *draft, path []int32) {
	slices.Sort(d.lost)
	for k, p := range path {
		if k+1 == len(path) || t.role[p] == chunk {
			break
		}
		next := t.spans[path[k+1]]
		for _, i := range t.kids(p) {
			s := t.spans[i]
			if s.Start >= next.Start {
				break
			}
			ns, known := s.Duration()
			_, lost := slices.BinarySearch(d.lost, i)
			if i == path[k+1] || !known || s.End > next.Start || !(t.role[i] == web && s.Kind == Client && failed(s) || lost) {
				continue
			}
			if t.role[i] == web {
				c.Attempts++
			}
			c.earlier += ns
		}
	}
	if c.Attempts > 1 {
		c.note("%d attempts: those before the last one failed", c.Attempts)
	}
}

// compare gives every pair of layers on different clocks to the clocks.
func (t *trace) compare(c *Call, clk *Clocks) {
	for k := 1; k < len(c.Layers); k++ {
		outer, inner := c.Layers[k-1].Span, c.Layers[k].Span
		served := inner.Kind == Server || k == len(c.Layers)-1 && len(c.engines) > 0
		if outer.Open() || inner.Open() || !served || outer.Kind == Consumer || clockOf(outer.Resource) == clockOf(inner.Resource) {
			continue
		}
		if inner.End-inner.Start <= outer.End-outer.Start {
			clk.see(outer, inner, !c.gaveUp)
		}
	}
}

// conclude names the outcome.
func (t *trace) conclude(c *Call) {
	outermost, inner := c.Layers[0].Span, c.Layers[len(c.Layers)-1].Span
	code, _ := outermost.Number(HTTPStatus)
	switch {
	case c.gaveUp:
		c.Outcome, c.Why = Aborted, cmp.Or(unless(c.Finish != "", "finish reason "+c.Finish), "a view says that it was given up")
	case failed(outermost) || failed(inner) || code >= 400:
		c.Outcome, c.Why = Errored, cmp.Or(outermost.Text(ErrorType), inner.Text(ErrorType), unless(code >= 400, fmt.Sprintf("HTTP %d", code)), "status error")
	case c.MissingParent != SpanID{}:
		c.Outcome, c.Why = Incomplete, "its parent "+c.MissingParent.String()+" never arrived"
	case c.Open > 0:
		c.Outcome, c.Why = Incomplete, "a span of it was never ended"
	case c.Gap.Why != "":
		c.Outcome, c.Why = Incomplete, c.Gap.Why
	default:
		c.Outcome = Complete
	}
	if c.E2E.Known {
		sum := int64(0)
		for _, l := range c.Lines {
			sum += l.NS
		}
		c.line(account.Unexplained, "not split", c.E2E.NS-sum, Unknown)
	}
	switch {
	case c.Client.Known:
	case c.Open > 0:
		c.Client.Why = "its span was never ended"
	case slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.LeftOpen }):
		c.Client.Why = "its span was left open after the answer"
	case slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.AtFirst }):
		c.Client.Why = "its span ended at the first token"
	case slices.ContainsFunc(c.Layers, func(l Layer) bool { return l.LeftBefore }):
		c.Client.Why = "its span ended before the answer"
	case c.MissingParent != SpanID{}:
		c.Client.Why = "its span never arrived"
	default:
		c.Client.Why = "no client's span is here"
	}
}
