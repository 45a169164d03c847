package genai

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/whylate/whylate/account"
)

// inFull is how many calls are printed one by one; of more, the slowest.
const inFull = 8

// Text writes the view for people.
func (v *View) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	v.head(b)
	calls := v.Calls
	if len(calls) > inFull {
		v.statement(b)
		calls = slices.Clone(calls)
		slices.SortStableFunc(calls, func(a, b *Call) int { return cmp.Compare(b.E2E.NS, a.E2E.NS) })
		calls = calls[:inFull]
		fmt.Fprintf(b, "\nthe %d slowest\n", inFull)
	}
	for _, c := range calls {
		c.text(b)
	}
	return b.Flush()
}

func (v *View) head(b io.Writer) {
	n := v.Counts
	fmt.Fprintf(b, "requests %d: %d complete, %d aborted, %d failed, %d incomplete; usable client durations %d\n", n.Requests, n.Requests-n.Aborted-n.Failed-n.Incomplete, n.Aborted, n.Failed, n.Incomplete, n.UsableClient)
	fmt.Fprintf(b, "level L1, from %s of %s%s\n", counted(n.Spans, "span"), counted(n.Traces, "trace"), v.aside())
	if of := v.oddities(); of != "" {
		fmt.Fprintln(b, of)
	}
	fmt.Fprintln(b, v.Denom)
	for _, s := range v.Shifts {
		fmt.Fprintln(b, s)
	}
	for _, s := range v.Notes {
		fmt.Fprintln(b, s)
	}
	if len(v.Batches) > 0 {
		covered, size := 0.0, int64(0)
		for _, s := range v.Batches {
			covered += s.Coverage()
			size += s.Size
		}
		fmt.Fprintf(b, "batches %d rebuilt from schedule events; %.0f %% of their members are in these spans on average\n", len(v.Batches), 100*covered/float64(len(v.Batches)))
	}
}

// oddities says how many spans could not be taken at their word.
func (v *View) oddities() string {
	n := v.Counts
	var parts []string
	for _, p := range []struct {
		n    int
		text string
	}{{n.MissingParent, "under a parent that never arrived"}, {n.Open, "with a span that was never ended"}, {n.LeftOpen, "with one that was left open after the answer"},
		{n.Early, "with one that ended before the answer"}, {n.Retried, "of several attempts"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	return strings.Join(parts, ", ")
}

// aside lists what was set apart, if anything was.
func (v *View) aside() string {
	n := v.Counts
	var parts []string
	say := func(k int, text string) {
		if k > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", k, text))
		}
	}
	say(n.Collapsed, "for single chunks, collapsed")
	say(n.Duplicates, "sent twice")
	say(n.Holders, "only hold calls")
	say(n.Elsewhere, "belong to no model call")
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// statement is the parts of all calls together.
func (v *View) statement(b io.Writer) {
	type key struct {
		part account.Part
		name string
	}
	sums, calls, total := map[key]int64{}, map[key]int{}, int64(0)
	for _, c := range v.Calls {
		for _, l := range c.Lines {
			k := key{l.Part, l.Name}
			sums[k] += l.NS
			calls[k]++
			total += l.NS
		}
	}
	if total == 0 {
		return
	}
	keys := make([]key, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(slices.Index(account.Parts, a.part)-slices.Index(account.Parts, b.part), cmp.Compare(a.name, b.name))
	})
	fmt.Fprintln(b, "\ntime of all requests together")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, k := range keys {
		fmt.Fprintf(t, "%s\t%s\t%.1f %%\t in %s\n", k.part, millis(sums[k]), 100*float64(sums[k])/float64(total), counted(calls[k], "request")+": "+k.name)
	}
	t.Flush()
}

// Text writes the call for people: its time, what its views say of it, and what is odd about them.
func (c *Call) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	c.text(b)
	return b.Flush()
}

func (c *Call) text(b io.Writer) {
	fmt.Fprintf(b, "\n%s\n", strings.Join(c.title(), " · "))
	fmt.Fprintf(b, "  tokens: %s in, %s out, %s cached%s; finish reason %s\n", c.Input, c.Output, c.Cached, c.reasons(), cmp.Or(c.Finish, "unknown"))
	if c.Input.Views > 2 {
		fmt.Fprintf(b, "  input told by %s; names seen: %s\n", counted(c.Input.Views, "view")+", not added up", joinShapes(c.Shapes))
	}
	for _, f := range c.First {
		fmt.Fprintf(b, "  first: %s%s\n", f, unless(f.Standing != Measured, ", "+string(f.Standing)))
	}
	if !c.E2E.Known {
		fmt.Fprintf(b, "  duration unknown: %s\n", c.E2E.Why)
	} else {
		fmt.Fprintf(b, "  %s", millis(c.E2E.NS))
		if c.Whose != nil { // its spans are kept for a shorter time
			fmt.Fprintf(b, " (%s)", who(c.Whose))
			if inner := c.Layers[len(c.Layers)-1].Span; inner != c.Whose && c.Server.Known {
				fmt.Fprintf(b, ", %s of it %s", tenths(c.Server.NS), who(inner))
			}
		}
		if !c.Client.Known {
			fmt.Fprintf(b, "; the client's duration is unknown: %s", c.Client.Why)
		}
		fmt.Fprintln(b)
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, l := range c.Lines {
			fmt.Fprintf(t, "    %s\t%s\t%.1f %%\t %s\n", l.Part, tenths(l.NS), 100*float64(l.NS)/float64(max(c.E2E.NS, 1)), l.Name+unless(l.Standing != Measured, " ("+string(l.Standing)+")"))
		}
		t.Flush()
	}
	if n := c.Network; n != nil && n.Bounded && n.Shift.Outer != n.Shift.Inner && n.SendHigh-n.SendLow < n.NS {
		fmt.Fprintf(b, "  of the %s outside the server %s to %s lie before it and %s to %s after it: bounds from both clocks, the split is not measured\n",
			tenths(n.NS), tenths(n.SendLow), tenths(n.SendHigh), tenths(n.BackLow), tenths(n.BackHigh))
	}
	for k := range c.Layers {
		if l := &c.Layers[k]; l.Shift != 0 {
			start, _ := l.Times()
			fmt.Fprintf(b, "  %s started at %s, corrected by %s ± %s to %s\n", who(l.Span), clock(l.Span.Start), signed(l.Shift), tenths(l.Half), clock(start))
		}
	}
	if c.MissingParent != (SpanID{}) {
		fmt.Fprintf(b, "  under a missing parent: span %s was named and never arrived\n", c.MissingParent)
	}
	if c.Gap.Evidence != "" {
		fmt.Fprintf(b, "  %s\n", c.Gap.Evidence)
	}
	if n := c.Content; n.Attributes > 0 {
		fmt.Fprintf(b, "  content, not kept: %s%s%s%s\n", bytesOf(n.Bytes), n.Roles.text(), unless(n.Truncated > 0, fmt.Sprintf(", %s truncated by the sender", counted(n.Truncated, "value"))), unless(n.Oversized > 0, fmt.Sprintf(", %s above the size limit", counted(n.Oversized, "value"))))
	}
	if c.Retracted > 0 {
		fmt.Fprintf(b, "  lost its place in the engine %s\n", counted(c.Retracted, "time"))
	}
	for _, n := range c.Notes {
		fmt.Fprintf(b, "  - %s\n", n)
	}
	if c.MoreNotes > 0 {
		fmt.Fprintf(b, "  - and %d more of this kind\n", c.MoreNotes)
	}
}

func (c *Call) title() []string {
	t := []string{"trace " + strings.TrimLeft(c.Trace.String(), "0")}
	add := func(s string) {
		if s != "" {
			t = append(t, s)
		}
	}
	add(c.RequestID)
	add(c.Operation)
	add(cmp.Or(c.Served, c.Requested))
	if c.Served != "" && c.Requested != "" && c.Served != c.Requested {
		add("asked for " + c.Requested)
	}
	add(c.Provider)
	add(string(c.Outcome) + unless(c.Why != "", " ("+c.Why+")"))
	return t
}

func joinShapes(all []Shape) string {
	var out []string
	for _, s := range all {
		out = append(out, string(s))
	}
	return strings.Join(out, ", ")
}

// reasons says why counts are unknown, once.
func (c *Call) reasons() string {
	var why []string
	for _, n := range []Tokens{c.Input, c.Output, c.Cached} {
		if !n.Known && !slices.Contains(why, n.Why) {
			why = append(why, n.Why)
		}
	}
	if len(why) == 0 {
		return ""
	}
	return " (" + strings.Join(why, "; ") + ")"
}

func (r Roles) text() string {
	if r.total() == 0 {
		return ""
	}
	var parts []string
	for _, p := range []struct {
		name string
		n    int
	}{{"system", r.System}, {"user", r.User}, {"assistant", r.Assistant}, {"tool", r.Tool}, {"other", r.Other}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", p.name, p.n))
		}
	}
	return "; messages: " + strings.Join(parts, ", ")
}
