package diagnose

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// answers finds slow iterations beside a front end at work. Log-probabilities of a prompt leave the engine with the request's first token,
// and the front end turns them into text: tenths of a second for a prompt of a thousand tokens, on cores that it shares with the engine. The scheduler's
// records show it as iterations that take longer than their work explains, from that token to the answer's last byte.
func (c *explainer) answers() {
	if c.e == nil || c.m == nil || c.a.Lead == nil {
		return
	}
	var asked []*ledger.Sequence
	for _, q := range c.e.Sequences {
		if q.PromptLogprobs >= 0 && q.FirstToken != 0 && q.Request != nil && q.Request != c.r && q.Request.LastByte > q.FirstToken {
			asked = append(asked, q)
		}
	}
	for _, p := range []account.Part{account.Prefill, account.Decode} {
		f := Finding{ID: FrontendAnswer, Part: p, Split: account.SplitSlowdown, Modelled: true, See: "whylate iterations --request " + c.x.Request.Name}
		var who []string
		var until int64 // answers that are made at once are one time
		for _, q := range asked {
			ns, first, last := c.excess(p, max(q.FirstToken, until), q.Request.LastByte)
			if !c.worth(p, ns) {
				continue
			}
			until = q.Request.LastByte
			detail := fmt.Sprintf("log-probabilities of %d prompt tokens, iterations %d to %d", q.Prompt, first, last)
			f.NS += ns
			f.Culprits = append(f.Culprits, Culprit{Kind: "request", ID: q.Request.Name(), Role: "answer", NS: ns, Detail: detail})
			f.Iterations = append(f.Iterations, first, last)
			who = append(who, fmt.Sprintf("%s (%s)", q.Request.Name(), detail))
		}
		if len(who) > 0 {
			f.Text = fmt.Sprintf("Its iterations took %s longer than their work explains while the front end was at work on the answer of %s: the two share cores.", Span(f.NS), list(who, 3))
			c.find(f)
		}
	}
}

// excess is what the iterations of part p that lie within from … to took beyond their work, 0 if the model's own error may be all of it.
// Where the part's other iterations were slow too, the machine was: only what goes beyond that counts.
func (c *explainer) excess(p account.Part, from, to int64) (ns int64, first, last uint64) {
	after := func(it ledger.Iteration, t int64) int {
		if it.End == 0 || it.Start >= t { // one in flight is after all others
			return 1
		}
		return -1
	}
	i, _ := slices.BinarySearchFunc(c.e.Iterations, from, after)
	j, _ := slices.BinarySearchFunc(c.e.Iterations, to, after)
	if i >= j {
		return 0, 0, 0
	}
	q, begin, end := c.ran(p)
	end = min(end, c.e.Completed())
	first, last = max(begin, c.e.Iterations[i].Number), min(end, c.e.Iterations[j-1].Number)
	busy, expected, rows := c.lived(q, first, last)
	allBusy, allExpected, _ := c.lived(q, begin, end)
	if rest := allExpected - expected; rest > 0 {
		expected *= max(1, (allBusy-busy)/rest)
	}
	if over := busy - expected; rows > 0 && over > 2*c.m.Band(expected, 0, rows) {
		return int64(over), first, last
	}
	return 0, 0, 0
}

// lived is what iterations first … last took in which q was a member, what their work explains of it, and how many they are.
func (c *explainer) lived(q *ledger.Sequence, first, last uint64) (busy, expected float64, rows uint64) {
	for k := range q.Stints {
		f, l := max(q.Stints[k].First, first), min(q.Stints[k].Last, last)
		if f > l {
			continue
		}
		d := c.e.Between(f, l)
		busy += float64(d.Busy)
		expected += c.m.Predict(d.Work)
		rows += l - f + 1
	}
	return busy, expected, rows
}
