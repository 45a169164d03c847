package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// queue explains the wait between the scheduler taking the request up and scheduling it, by the limit that stopped
// admission. KV blocks and the line behind a head that waits for them are one story.
func (c *explainer) queue() {
	q := c.a.Lead
	line := c.a.Line(account.Queue)
	if q == nil || c.e == nil || !c.worth(account.Queue, line.NS) {
		return
	}
	split := func(r ledger.SkipReason) int64 { return c.a.Split(account.Queue, r.String()) }
	// Nobody is admitted in an iteration that preempts: that too is a pool without free blocks.
	kv := split(ledger.SkipKVBlocks) + split(ledger.SkipHeadOfLine) + split(ledger.SkipPreemptionStep)
	if c.worth(account.Queue, kv) {
		c.kvBlocks(q, kv)
	}
	if ns := split(ledger.SkipSequenceLimit); c.worth(account.Queue, ns) {
		c.sequenceLimit(q, ns)
	}
	if ns := split(ledger.SkipTokenBudget); c.worth(account.Queue, ns) {
		c.tokenBudget(q, ns)
	}
	for _, s := range line.Splits {
		switch s.Name {
		case ledger.SkipKVBlocks.String(), ledger.SkipHeadOfLine.String(), ledger.SkipPreemptionStep.String(),
			ledger.SkipSequenceLimit.String(), ledger.SkipTokenBudget.String():
			continue
		}
		if !c.worth(account.Queue, s.NS) || s.Name == account.SplitInFlight { // the iteration in flight is a finding of its own
			continue
		}
		f := Finding{ID: QueueOther, Part: account.Queue, Split: s.Name, NS: s.NS, Text: fmt.Sprintf("It waited %s in the queue: %s.", Span(s.NS), s.Name)}
		if s.Name == account.SplitNextPass {
			f.Text = fmt.Sprintf("It waited %s in the queue for the scheduler's next pass.", Span(s.NS))
			if row, _ := longest(c.e, q.Queued, c.until(q)); row != nil {
				f.Text = fmt.Sprintf("It waited %s in the queue for the scheduler's next pass: iteration %d, which took %s, was running.", Span(s.NS), row.Number, Span(row.Duration()))
				f.Culprits = append([]Culprit{{Kind: "iteration", ID: fmt.Sprint(row.Number), Role: "ran meanwhile"}}, c.dearest(row, line.NS)...)
				f.Iterations = []uint64{row.Number}
			}
		}
		c.find(f)
	}
}

// until is when q was first scheduled, or its end, or now.
func (c *explainer) until(q *ledger.Sequence) int64 {
	if it := c.e.Row(q.Join); q.Join != 0 && it != nil {
		return it.Start
	}
	return cmp.Or(q.Finished, c.l.Book.Now)
}

func (c *explainer) kvBlocks(q *ledger.Sequence, ns int64) {
	f := Finding{ID: QueueKVBlocks, Part: account.Queue, Split: ledger.SkipKVBlocks.String(), NS: ns, See: "whylate iterations --request " + c.x.Request.Name}
	first, last := waited(q, c.e)
	f.Iterations = []uint64{first, last}
	var running, most uint32
	for n := first; n <= last; n++ {
		if it := c.e.Row(n); it != nil && it.Known&ledger.KnownDecision != 0 {
			running, most = max(running, it.Running), max(most, it.Waiting)
		}
	}
	f.Text = fmt.Sprintf("It waited %s in the queue because KV blocks were the limit", Span(ns))
	if limit := c.e.Setting("max_num_seqs"); limit > 0 && float64(running) < limit {
		f.Text += fmt.Sprintf(", though the batch was not full (at most %d of %.0f sequences ran; up to %d waited)", running, limit, most)
	}
	f.Text += "."
	slow, slept := c.slowDuring(q, ledger.SkipKVBlocks, ledger.SkipHeadOfLine, ledger.SkipPreemptionStep)
	holders := c.holders(q, ns-slept, false)
	if len(holders) > 0 {
		f.Text += " The blocks were held by " + described(holders, 4) + "."
	}
	heads := c.heads(q, first, last)
	switch {
	case len(heads) > 0:
		f.Text += " At the head of the line stood " + described(heads, 3) + "; nobody behind a blocked head is admitted."
	default:
		f.Text += " It stood at the head of the line itself."
	}
	f.Culprits = append(holders, heads...)
	c.behind(&f, slow, slept)
	c.find(f)
}

// waited is the span of iterations that passed over q before its first schedule.
func waited(q *ledger.Sequence, e *ledger.Engine) (first, last uint64) {
	for _, s := range q.Skips {
		if q.Join != 0 && s.First > q.Join {
			break
		}
		if first == 0 {
			first = s.First
		}
		last = s.Last
	}
	return first, min(last, e.Last())
}

// slowDuring is the iteration that took most of q's wait for one of these reasons beyond what its work explains, and how much of the wait
// that was; nil where it is not worth telling. Whoever held what was waited for did not make that iteration long.
func (c *explainer) slowDuring(q *ledger.Sequence, reasons ...ledger.SkipReason) (slow *account.Odd, ns int64) {
	odd := c.l.Odd(c.e)
	for i := range odd {
		o := &odd[i]
		n := o.Iteration.Number
		passed := slices.ContainsFunc(q.Skips, func(s ledger.Skip) bool {
			return s.First <= n && n <= s.Last && !s.Away && slices.Contains(reasons, s.Reason)
		})
		if !passed {
			continue
		}
		during := min(o.Iteration.End, c.until(q)) - max(c.e.TileStart(n), q.Queued)
		if excess := min(during, int64(o.Excess)); excess > ns && c.worth(account.Queue, excess) {
			slow, ns = o, excess
		}
	}
	return slow, ns
}

// behind tells of an iteration that made a wait longer than the work in it would have, and charges it with that part.
func (c *explainer) behind(f *Finding, slow *account.Odd, ns int64) {
	if slow == nil {
		return
	}
	n := slow.Iteration.Number
	why, culprits := c.blameOdd(slow)
	for i := range culprits { // it may have come after some of it
		culprits[i].NS = min(culprits[i].NS, ns)
	}
	f.Text += fmt.Sprintf(" %s of the wait was iteration %d, which took %s against an expected %s.%s", Span(ns), n, Span(slow.Iteration.Duration()), Span(int64(slow.Expected)), why)
	f.Culprits = append(f.Culprits, Culprit{Kind: "iteration", ID: fmt.Sprint(n), Role: "slow", NS: ns})
	f.Culprits = append(f.Culprits, culprits...)
	if !slices.Contains(f.Iterations, n) {
		f.Iterations = append(f.Iterations, n)
	}
}

// mostNamed is how many requests are named for one wait: as many as mostly run at once.
const mostNamed = 16

// charge names who held something that was waited for, and charges each with its part of the wait of ns by what it held.
func charge(ns int64, held []share, detail func(amount float64) string) (out []Culprit) {
	held = largest(held, mostNamed)
	var all float64
	for _, h := range held {
		all += h.amount
	}
	for _, h := range held {
		out = append(out, Culprit{Kind: "request", ID: h.r.Name(), Role: "held", NS: int64(float64(ns) * h.amount / all), Detail: detail(h.amount)})
	}
	return out
}

// described lists culprits with their details, at most n of them.
func described(ks []Culprit, n int) string {
	var names []string
	for _, k := range ks {
		names = append(names, fmt.Sprintf("%s (%s)", k.ID, k.Detail))
	}
	return list(names, n)
}

// holders names who held the KV pool while q waited for ns, by their mean share over the reports of that time; for a preempted
// sequence while it was away.
func (c *explainer) holders(q *ledger.Sequence, ns int64, away bool) []Culprit {
	first, last := waited(q, c.e)
	if away {
		first, last = 0, 0
		for _, s := range q.Skips {
			if s.Away {
				if first == 0 {
					first = s.First
				}
				last = s.Last
			}
		}
	}
	if last == 0 {
		return nil
	}
	weight := map[*ledger.Request]float64{}
	var reports int
	i, _ := slices.BinarySearchFunc(c.e.Holdings, first, func(h ledger.Holding, n uint64) int { return cmp.Compare(h.Iteration, n) })
	if i > 0 && (i == len(c.e.Holdings) || c.e.Holdings[i].Iteration > first) {
		i-- // the report in force when the wait began
	}
	for ; i < len(c.e.Holdings) && c.e.Holdings[i].Iteration <= last; i++ {
		reports++
		for _, h := range c.e.Holdings[i].Holders {
			if h.Seq.Request != c.r {
				weight[h.Seq.Request] += float64(h.Weight)
			}
		}
	}
	held := make([]share, 0, len(weight))
	for r, w := range weight {
		held = append(held, share{r, w / float64(reports)})
	}
	of := ""
	if pool := c.e.Setting("num_gpu_blocks"); pool > 0 {
		of = fmt.Sprintf(" of %.0f", pool)
	}
	return charge(ns, held, func(blocks float64) string { return fmt.Sprintf("%.0f%s blocks", blocks, of) })
}

// share is how much of something a request had.
type share struct {
	r      *ledger.Request
	amount float64
}

// largest returns the n largest shares, the largest first; equal ones in the order of their names. Who has less than a tenth of the
// largest share is not named beside it.
func largest(shares []share, n int) []share {
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), cmp.Compare(a.r.Name(), b.r.Name()))
	})
	for i := range shares {
		if i == n || shares[i].amount < shares[0].amount/10 {
			return shares[:i]
		}
	}
	return shares
}

// headOfLine is the role of whoever stood in front: named beside those that hold what it waits for, and a victim of theirs itself.
const headOfLine = "head of line"

// heads names who stood at the head of the line while q waited, the longest first, with the most blocks that it needed.
func (c *explainer) heads(q *ledger.Sequence, first, last uint64) []Culprit {
	type stay struct {
		ns   int64
		need uint32
		free uint32
	}
	stays := map[*ledger.Request]*stay{}
	for n := first; n <= last && n != 0; n++ {
		it := c.e.Row(n)
		if it == nil || it.Head == nil || it.Head.Request == c.r || it.Stop != ledger.SkipKVBlocks || it.End == 0 {
			continue
		}
		s := stays[it.Head.Request]
		if s == nil {
			s = &stay{}
			stays[it.Head.Request] = s
		}
		s.ns += it.End - c.e.TileStart(n)
		if it.Need >= s.need {
			s.need, s.free = it.Need, it.FreeBlocks
		}
	}
	var out []Culprit
	for r, s := range stays {
		detail := fmt.Sprintf("for %s", Span(s.ns))
		if s.need > 0 {
			detail = fmt.Sprintf("for %s, needed %d blocks with %d free", Span(s.ns), s.need, s.free)
		}
		out = append(out, Culprit{Kind: "request", ID: r.Name(), Role: headOfLine, NS: s.ns, Detail: detail})
	}
	slices.SortFunc(out, func(a, b Culprit) int { return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.ID, b.ID)) })
	if len(out) > 3 {
		out = out[:3]
	}
	return out
}

// sequenceLimit names who held the places in the batch longest while q waited.
func (c *explainer) sequenceLimit(q *ledger.Sequence, ns int64) {
	first, last := waited(q, c.e)
	f := Finding{ID: QueueSequenceLimit, Part: account.Queue, Split: ledger.SkipSequenceLimit.String(), NS: ns, Iterations: []uint64{first, last}, See: "whylate iterations --request " + c.x.Request.Name}
	f.Text = fmt.Sprintf("It waited %s in the queue for a place in the batch", Span(ns))
	if limit := c.e.Setting("max_num_seqs"); limit > 0 {
		f.Text += fmt.Sprintf(": all %.0f (max_num_seqs) were taken", limit)
	}
	stays := c.others(first, last, func(_ *ledger.Stint, f, l uint64) float64 { return float64(l - f + 1) })
	slow, slept := c.slowDuring(q, ledger.SkipSequenceLimit)
	f.Culprits = charge(ns-slept, stays, func(n float64) string { return fmt.Sprintf("%.0f sequence-iterations of %d", n, last-first+1) })
	var names []string
	for _, k := range f.Culprits {
		names = append(names, k.ID)
	}
	if len(names) > 0 {
		f.Text += ". Longest there: " + list(names, 5)
	}
	f.Text += "."
	c.behind(&f, slow, slept)
	c.find(f)
}

// tokenBudget names whose tokens filled the iterations that q was not admitted to.
func (c *explainer) tokenBudget(q *ledger.Sequence, ns int64) {
	first, last := waited(q, c.e)
	f := Finding{ID: QueueTokenBudget, Part: account.Queue, Split: ledger.SkipTokenBudget.String(), NS: ns, Iterations: []uint64{first, last}, See: "whylate iterations --request " + c.x.Request.Name}
	f.Text = fmt.Sprintf("It waited %s in the queue because the token budget of each iteration was used up", Span(ns))
	if b := c.e.Setting("max_num_batched_tokens"); b > 0 {
		f.Text += fmt.Sprintf(" (%.0f)", b)
	}
	tokens := c.others(first, last, func(s *ledger.Stint, f, l uint64) float64 {
		if s.Tokens == nil {
			return float64(l - f + 1)
		}
		var sum float64
		for n := f; n <= l; n++ {
			sum += float64(s.TokensIn(n))
		}
		return sum
	})
	slow, slept := c.slowDuring(q, ledger.SkipTokenBudget)
	f.Culprits = charge(ns-slept, tokens, func(n float64) string { return fmt.Sprintf("%.0f tokens", n) })
	if len(f.Culprits) > 0 {
		f.Text += ", most of it by " + described(f.Culprits, 3)
	}
	f.Text += "."
	c.behind(&f, slow, slept)
	c.find(f)
}

// others adds up an amount over the stints of other requests in iterations first … last.
func (c *explainer) others(first, last uint64, amount func(s *ledger.Stint, first, last uint64) float64) []share {
	sums := map[*ledger.Request]float64{}
	for s := range c.e.Overlapping(first, last) {
		if s.Seq.Request != c.r {
			sums[s.Seq.Request] += amount(s, max(s.First, first), min(s.Last, last))
		}
	}
	var out []share
	for r, n := range sums {
		out = append(out, share{r, n})
	}
	return out
}
