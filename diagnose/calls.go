package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
)

// Call is what spans of any producer tell of a request: level L1, beside or in place of what the scheduler's records tell.
type Call struct {
	Level     string        `json:"level"`
	Amendment bool          `json:"amendment,omitempty"` // spans that came after their call had been sealed
	Trace     string        `json:"trace_id"`
	IDs       []string      `json:"ids"`
	Producer  string        `json:"producer"` // of the innermost span
	Shapes    []string      `json:"conventions,omitempty"`
	Operation string        `json:"operation,omitempty"`
	Provider  string        `json:"provider,omitempty"`
	Model     string        `json:"model,omitempty"`
	Outcome   genai.Outcome `json:"outcome"`
	Why       string        `json:"outcome_why,omitempty"`
	Finish    string        `json:"finish_reason,omitempty"`
	Attempts  int           `json:"attempts"`
	Start     int64         `json:"start_unix_ns"`
	E2E       *int64        `json:"e2e_ns,omitempty"`        // none = unknown
	Client    *int64        `json:"client_e2e_ns,omitempty"` // as its client waited; none = unknown
	Input     *int64        `json:"input_tokens,omitempty"`  // none = unknown
	Output    *int64        `json:"output_tokens,omitempty"`
	Cached    *int64        `json:"cached_tokens,omitempty"`
	Parts     []CallPart    `json:"parts"` // they sum to E2E exactly
	First     []CallFirst   `json:"first_tokens,omitempty"`
	Spans     []CallSpan    `json:"spans,omitempty"`          // outermost first; none where they were let go
	Network   *CallNetwork  `json:"outside_server,omitempty"` // none where no client and server were seen apart
	Weight    float64       `json:"weight,omitempty"`         // how many requests it stands for; 0 = denominator unknown
	Bound     int64         `json:"clock_uncertainty_ns"`     // the widest that times of its spans were corrected by
	Missing   []string      `json:"cannot_be_said,omitempty"` // without the probe
	Text      string        `json:"text"`                     // all of it for people
}

// CallPart is one part of a call's time.
type CallPart struct {
	Part     account.Part   `json:"part"`
	Name     string         `json:"name"`
	NS       int64          `json:"ns"`
	Standing genai.Standing `json:"standing"`
}

// CallFirst is one measurement of the time to the first token or chunk.
type CallFirst struct {
	NS       int64          `json:"ns"`
	From     string         `json:"from"`
	To       string         `json:"to"`
	By       string         `json:"by"`
	Standing genai.Standing `json:"standing"`
}

// CallSpan is one view of a call.
type CallSpan struct {
	ID       string `json:"span_id"`
	Name     string `json:"name"`
	Service  string `json:"service,omitempty"`
	Host     string `json:"host,omitempty"`
	Scope    string `json:"scope,omitempty"`
	Start    int64  `json:"start_unix_ns"` // on its own clock
	Duration int64  `json:"duration_ns"`   // −1 = it has no usable end
	Shift    int64  `json:"shift_ns,omitempty"`
	Half     int64  `json:"shift_uncertainty_ns,omitempty"`
	Inferred bool   `json:"inferred,omitempty"` // its place comes from times or ids
}

// CallNetwork is what a client waited beyond its server's own time.
type CallNetwork struct {
	NS       int64 `json:"ns"`
	Bounded  bool  `json:"bounded"` // the two below are known
	SendLow  int64 `json:"before_server_least_ns,omitempty"`
	SendHigh int64 `json:"before_server_most_ns,omitempty"`
}

// withoutProbe is what no span tells.
var withoutProbe = []string{"who shared its iterations, and what that cost it", "why it waited in the queue, and who held what it waited for", "the time in the engine's inbox, apart from the front end",
	"whether it was preempted or passed over", "whether iterations were slower than their work explains"}

// sharpenCall is the next step of who has spans alone.
const sharpenCall = "the engine's scheduler records: install the probe (whylate-vllm) in the engine and let it see the same X-Request-Id or traceparent; the call and the request are then one"

// CallOf describes a call that spans told of.
func CallOf(c *genai.Call) Call {
	var text strings.Builder
	_ = c.Text(&text) // a strings.Builder takes everything
	out := Call{Level: "L1", Trace: c.Trace.String(), Operation: c.Operation, Provider: c.Provider, Model: cmp.Or(c.Served, c.Requested), Outcome: c.Outcome, Why: c.Why, Finish: c.Finish,
		Attempts: c.Attempts, Start: c.Start, E2E: knownTime(c.E2E), Client: knownTime(c.Client), Input: knownCount(c.Input), Output: knownCount(c.Output), Cached: knownCount(c.Cached),
		Missing: withoutProbe, Text: strings.TrimSpace(text.String())}
	for _, id := range []string{c.RequestID, c.ResponseID, out.Trace} {
		if id != "" && !slices.Contains(out.IDs, id) {
			out.IDs = append(out.IDs, id)
		}
	}
	for _, s := range c.Shapes {
		out.Shapes = append(out.Shapes, string(s))
	}
	for _, l := range c.Lines {
		out.Parts = append(out.Parts, CallPart(l))
	}
	for _, f := range c.First {
		out.First = append(out.First, CallFirst{f.NS, f.From, f.To, f.Sayers(), f.Standing})
	}
	for i := range c.Layers {
		l := &c.Layers[i]
		d, known := l.Span.Duration()
		if !known {
			d = -1
		}
		out.Spans = append(out.Spans, CallSpan{l.Span.ID.String(), l.Span.Name, l.Span.Resource.Service, l.Span.Resource.Host, l.Span.Scope.Name, l.Span.Start, d, l.Shift, l.Half, l.Inferred})
		out.Bound = max(out.Bound, l.Half)
		out.Producer = cmp.Or(l.Span.Scope.Name, l.Span.Resource.Service)
	}
	if n := c.Network; n != nil {
		out.Network = &CallNetwork{n.NS, n.Bounded, n.SendLow, n.SendHigh}
		if n.Bounded && n.Shift.Outer != n.Shift.Inner {
			out.Bound = max(out.Bound, n.Shift.Half())
		}
	}
	if c.Threshold.Known {
		out.Weight = c.Threshold.Weight()
	}
	return out
}

func knownTime(d genai.Duration) *int64 {
	if !d.Known {
		return nil
	}
	return &d.NS
}

func knownCount(n genai.Tokens) *int64 {
	if !n.Known {
		return nil
	}
	return &n.N
}

// ExplainCalls explains a request that spans alone tell of; calls are its views, the first one its own.
func ExplainCalls(a *account.Account, r Request, calls []Call) *Explanation {
	c := &calls[0]
	x := &Explanation{Request: r, Account: a, Findings: []Finding{}, Calls: calls, Basis: Basis{Level: "L1", Uncertainty: c.Bound, Sharpen: sharpenCall, Coverage: spanCoverage(c)}}
	switch {
	case c.E2E == nil:
		x.Headline = fmt.Sprintf("%s: its spans do not say how long it took.", r.Name)
	default:
		largest := account.Line{}
		for _, l := range a.Lines {
			if l.NS > largest.NS {
				largest = l
			}
		}
		x.Headline = fmt.Sprintf("%s took %s, %.0f %% of it %s, as far as spans tell.", r.Name, Span(*c.E2E), 100*largest.Share, largest.Part)
	}
	x.Notes = append(x.Notes, "Spans alone (L1) cannot say: "+strings.Join(withoutProbe, "; ")+".")
	x.Notes = append(x.Notes, c.denominator())
	return x
}

// denominator says how many requests a call stands for.
func (c *Call) denominator() string {
	if c.Weight == 0 {
		return "Denominator unknown: its spans do not say with what probability they were kept."
	}
	return fmt.Sprintf("It was kept with probability %.3g and stands for %.3g requests.", 1/c.Weight, c.Weight)
}

// spanCoverage is the share of a call's views that are here, of those that are known of.
func spanCoverage(c *Call) float64 {
	seen, open := 0, 0
	for _, s := range c.Spans {
		if seen++; s.Duration < 0 {
			open++
		}
	}
	if c.Outcome == genai.Incomplete && open == 0 {
		open, seen = 1, seen+1 // a view that never came
	}
	if seen == 0 {
		return 0
	}
	return float64(seen-open) / float64(seen)
}

// Beside puts what spans tell of the request beside what the scheduler's records tell: the way to the engine, which those do not see.
func (x *Explanation) Beside(calls []Call) {
	x.Calls = calls
	for i := range calls {
		var front []string
		for _, p := range calls[i].Parts {
			if p.Part == account.Gateway {
				front = append(front, fmt.Sprintf("%s %s (%s)", p.Name, Span(p.NS), p.Standing))
			}
		}
		if len(front) == 0 {
			continue
		}
		note := "In front of the engine, from spans (L1): " + strings.Join(front, ", ")
		if n := calls[i].Network; n != nil && n.Bounded {
			note += fmt.Sprintf("; %s to %s of it before the server, clocks known to ± %s", Span(n.SendLow), Span(n.SendHigh), Span(calls[i].Bound))
		}
		x.Notes = append(x.Notes, note+fmt.Sprintf(". The parts above are the engine's own records (%s).", x.Basis.Level))
	}
}
