package genai

import (
	"cmp"
	"fmt"
	"slices"
)

// Duration may be unknown, which is not zero.
type Duration struct {
	NS    int64
	Known bool
	Why   string // of an unknown one
}

// Outcome of a call, as far as its spans tell.
type Outcome string

// Outcomes.
const (
	Complete   Outcome = "complete"
	Aborted    Outcome = "aborted"
	Errored    Outcome = "failed"
	Incomplete Outcome = "incomplete" // the trace does not tell the end, or lacks a part; the request may have been well
)

// Gap is time of a call of which telemetry is known to be missing.
type Gap struct {
	NS       int64
	Why      string
	Evidence string // what aggregates of that time say, as an inference
}

// Call is one model call: what a client asked of a model, once, whatever number of spans show it.
type Call struct {
	Trace                 TraceID
	Came                  []TraceID // traces of their own that spans of it came in
	RequestID, ResponseID string
	Operation, Provider   string
	Requested, Served     string // model
	Outcome               Outcome
	Why                   string // of an outcome that is not complete
	Finish                string // finish reason, "" where no span says

	Input, Output, Cached, Reasoning Tokens
	Sequences                        int // engine spans side by side with one request id: n > 1
	Legs                             int // engine spans one after the other: prefill and decode on different engines
	Attempts                         int

	Start   int64    // Unix ns, of the outermost view
	E2E     Duration // of the outermost view whose duration means something
	Whose   *Span    // that view's
	Client  Duration // as the client waited; only where its span is usable
	Server  Duration // the innermost view's own
	Lines   []Line   // parts of E2E; they sum to it exactly
	First   []First
	Network *Network

	Layers        []Layer // views on the way of the request, outermost first
	MissingParent SpanID  // not zero: a parent that never arrived; the call hangs under it
	Open          int     // layers without a usable end
	Chunks        int     // 'http send' spans that were collapsed
	Retracted     int     // SGLang: times the request lost its place
	Gap           Gap
	Threshold     Threshold
	Shapes        []Shape // spellings and generations seen
	Content       Content
	Notes         []string

	MoreNotes int // notes that are not kept

	gaveUp             bool
	scaled             *Span // whose durations are told in another unit
	scale              int64
	earlier, otherLegs int64
	engines            []int32
}

// maxNotes is how many notes a call keeps: a trace may be made to give one for each of its spans.
const maxNotes = 16

func (c *Call) note(format string, args ...any) {
	if len(c.Notes) >= maxNotes {
		c.MoreNotes++
		return
	}
	if n := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, n) {
		c.Notes = append(c.Notes, n)
	}
}

// Usable reports that the client's duration may enter latency percentiles.
func (c *Call) Usable() bool { return c.Client.Known && c.Outcome == Complete }

// View is what a set of spans says of model calls.
type View struct {
	Calls   []*Call // by start
	Counts  Counts
	Denom   Denominator
	Shifts  []Shift // between clocks that are known to differ
	Batches []Batch
	Notes   []string
}

// Counts of a view.
type Counts struct {
	Spans, Duplicates, Traces            int
	Requests                             int
	Aborted, Failed, Incomplete          int
	UsableClient                         int // client durations that may enter percentiles
	MissingParent, Open, LeftOpen, Early int // calls with a parent that never arrived; layers without an end, left open, ended before the engine
	Retried                              int
	Holders                              int // agents, workflows and wrappers of several calls: counted as none
	Collapsed                            int // spans of single chunks
	Elsewhere                            int // spans that belong to no call
}

// Calls maps spans to calls. The result does not depend on the order of the spans, nor on how they were cut into exports.
func Calls(spans []Span) *View { return CallsAfter(spans, &Clocks{}) }

// CallsAfter maps spans whose hosts' clocks are known from earlier spans; what these tell is added to clk.
func CallsAfter(spans []Span, clk *Clocks) *View {
	v := &View{}
	spans = adopt(spans)
	traces, duplicates := group(spans)
	v.Counts.Spans, v.Counts.Duplicates, v.Counts.Traces = len(spans)-duplicates, duplicates, len(traces)
	type open struct {
		t     *trace
		d     *draft
		inner int32
		c     *Call
	}
	longest := 0
	for _, spans := range traces {
		longest = max(longest, len(spans))
	}
	room := newForest(v.Counts.Spans, len(traces), longest)
	todo := make([]open, 0, len(traces))
	for _, spans := range traces {
		t := newTrace(spans, room)
		drafts, holders := t.drafts()
		for _, d := range drafts {
			inner := t.inner(d)
			c := t.begin(d, inner)
			t.compare(c, clk)
			todo = append(todo, open{t, d, inner, c})
		}
		v.Counts.Holders += holders
		v.count(t)
	}
	clk.settle()
	batches := map[batchKey]*Batch{}
	for _, o := range todo {
		o.t.account(o.c, o.inner, clk)
		o.t.conclude(o.c)
		o.t.batches(o.c, o.c.engines, batches)
		v.Calls = append(v.Calls, o.c)
	}
	slices.SortStableFunc(v.Calls, func(a, b *Call) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), slices.Compare(a.Trace[:], b.Trace[:]))
	})
	v.finish(clk, batches)
	return v
}

func (v *View) count(t *trace) {
	for i, r := range t.role {
		switch {
		case r == container:
			v.Counts.Holders++
		case r == chunk:
			v.Counts.Collapsed++
		case r == other || r == web && !t.used[i] || r == view && !t.used[i]:
			v.Counts.Elsewhere++
		}
	}
}

func (v *View) finish(clk *Clocks, batches map[batchKey]*Batch) {
	n := &v.Counts
	for _, c := range v.Calls {
		n.Requests++
		switch c.Outcome {
		case Aborted:
			n.Aborted++
		case Errored:
			n.Failed++
		case Incomplete:
			n.Incomplete++
		}
		if c.Usable() {
			n.UsableClient++
		}
		if c.MissingParent != (SpanID{}) {
			n.MissingParent++
		}
		if c.Attempts > 1 {
			n.Retried++
		}
		n.Open += c.Open
		for _, l := range c.Layers {
			if l.LeftOpen {
				n.LeftOpen++
			}
			if l.LeftBefore || l.AtFirst {
				n.Early++
			}
		}
		v.Denom.add(c.Threshold)
	}
	v.Denom.settle()
	v.Shifts = clk.proven()
	v.Notes = append(v.Notes, clk.clash...)
	for _, b := range batches {
		v.Batches = append(v.Batches, *b)
	}
	slices.SortFunc(v.Batches, func(a, b Batch) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.At, b.At), cmp.Compare(a.BID, b.BID))
	})
}

// ClientDurations are the client durations in ns, ascending, that percentiles may be taken of: of complete calls with a span that ended when
// the wait did.
func (v *View) ClientDurations() []int64 {
	var out []int64
	for _, c := range v.Calls {
		if c.Usable() {
			out = append(out, c.Client.NS)
		}
	}
	slices.Sort(out)
	return out
}
