package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// What is worth a finding: a tenth of the request's time, or of a part before the first token three tenths of the TTFT; and
// never less than what a person could feel. Below it nobody is blamed. Of whoever is blamed anyhow a fiftieth of the time is told too.
const (
	worthMore  = 0.02
	worthShare = 0.10
	worthTTFT  = 0.30
	worthLeast = 20 * time.Millisecond
	worthFirst = 100 * time.Millisecond
)

// Explain explains one request of l.
func Explain(l *query.Ledger, r *ledger.Request) *Explanation {
	a := l.Account(r)
	c := &explainer{l: l, r: r, a: a, e: query.EngineOf(r), x: &Explanation{Account: a}}
	if c.e != nil {
		c.m = l.Model(c.e)
	}
	c.describe()
	c.frontend()
	c.inbox()
	c.queue()
	c.iterations()
	c.prefills()
	c.decodes()
	c.preemptions()
	c.skips()
	c.answers()
	c.slowdown()
	c.gaps()
	c.stream()
	c.missing()
	c.inFlight()
	c.further()
	slices.SortStableFunc(c.x.Findings, func(a, b Finding) int { return cmp.Compare(b.NS, a.NS) })
	c.x.Client = c.client()
	c.basis()
	c.x.Headline = c.headline()
	return c.x
}

type explainer struct {
	l *query.Ledger
	r *ledger.Request
	a *account.Account
	e *ledger.Engine // nil: no engine took it up
	m *account.Model // nil: none could be fitted
	x *Explanation

	blamed map[string]bool // not nil: what is looked for is what these cost
}

// worth reports whether ns of part p are worth a finding.
func (c *explainer) worth(p account.Part, ns int64) bool {
	if ns < int64(worthLeast) {
		return false
	}
	if share := float64(ns) / float64(max(c.a.E2E(), 1)); share >= worthShare || c.blamed != nil && share >= worthMore {
		return true
	}
	switch p {
	case account.Frontend, account.Inbox, account.Queue, account.Prefill:
		return c.a.TTFT > 0 && ns >= int64(worthFirst) && float64(ns) >= worthTTFT*float64(c.a.TTFT)
	}
	return false
}

func (c *explainer) find(f Finding) {
	if e := c.a.E2E(); e > 0 {
		f.Share = float64(f.NS) / float64(e)
	}
	c.x.Findings = append(c.x.Findings, f)
}

// further looks at what whoever is blamed for something cost elsewhere: that it is small there is no reason to leave it out, as it is
// for blaming somebody else.
func (c *explainer) further() {
	told, blamed := c.x.Findings, map[string]bool{}
	for _, f := range told {
		for _, k := range f.Culprits {
			if k.Kind == "request" && k.Role != headOfLine {
				blamed[k.ID] = true
			}
		}
	}
	c.x.Findings, c.blamed = nil, blamed
	c.inbox()
	c.queue()
	c.prefills()
	c.decodes()
	for _, f := range c.x.Findings {
		same := func(o Finding) bool { return o.ID == f.ID && o.Part == f.Part }
		f.Culprits = slices.DeleteFunc(f.Culprits, func(k Culprit) bool { return k.Kind == "request" && !blamed[k.ID] })
		if !slices.ContainsFunc(told, same) && slices.ContainsFunc(f.Culprits, func(k Culprit) bool { return k.Kind == "request" }) {
			told = append(told, f)
		}
	}
	c.x.Findings, c.blamed = told, nil
}

func (c *explainer) describe() {
	r := c.r
	d := Request{Name: r.Name(), IDs: r.IDs(), Class: r.Class, Labels: r.Labels, Path: r.Path, Status: r.Status, End: r.End,
		Sequences: len(r.Sequences), Output: c.a.Output, Received: c.a.From}
	if c.e != nil {
		d.Engine = c.e.ID.String()
	}
	var s Speculation
	for _, q := range r.Sequences {
		drafts, rejected := q.Drafted()
		s.Drafted, s.Rejected = s.Drafted+drafts, s.Rejected+rejected
		d.Prompt, d.Cached = max(d.Prompt, q.Prompt), max(d.Cached, q.Cached)
		if q.Join != 0 && (d.FirstIter == 0 || q.Join < d.FirstIter) {
			d.FirstIter = q.Join
		}
		d.LastIter = max(d.LastIter, q.Leave)
		d.Preemptions += len(q.Preemptions)
		d.Reason = max(d.Reason, q.Reason)
	}
	if s.Drafted > 0 {
		s.Accepted = s.Drafted - s.Rejected
		s.Rate = float64(s.Accepted) / float64(s.Drafted)
		d.Speculation = &s
	}
	if q := c.a.Tail; q != nil {
		d.Reason = q.Reason
		for k := range q.Stints {
			d.Iterations += q.Stints[k].Last - q.Stints[k].First + 1
		}
	}
	c.x.Request = d
}

func (c *explainer) frontend() {
	line := c.a.Line(account.Frontend)
	if !line.Seen || !c.worth(account.Frontend, line.NS) {
		return
	}
	c.find(Finding{ID: FrontendSlow, Part: account.Frontend, NS: line.NS,
		Text: fmt.Sprintf("%s passed in the front end before the request reached the engine process: %s to read, validate and tokenise it, %s to hand it over. The front end was behind, or the machine's cores were taken.",
			Span(line.NS), Span(c.a.Split(account.Frontend, account.SplitTokenise)), Span(c.a.Split(account.Frontend, account.SplitHandOver)))})
}

// inbox explains the wait between the engine process and its scheduler: the loop takes up new requests only between
// iterations, so whatever ran meanwhile is the cause, and its members are who is responsible.
func (c *explainer) inbox() {
	q := c.a.Lead
	line := c.a.Line(account.Inbox)
	if q == nil || c.e == nil || q.Queued == 0 || !c.worth(account.Inbox, line.NS) {
		return
	}
	row, during := longest(c.e, q.Arrived, q.Queued)
	if row == nil {
		c.find(Finding{ID: InboxBehindIteration, Part: account.Inbox, NS: line.NS,
			Text: fmt.Sprintf("It waited %s between reaching the engine process and being taken up by the scheduler; which iteration ran meanwhile was not recorded.", Span(line.NS))})
		return
	}
	f := Finding{ID: InboxBehindIteration, Part: account.Inbox, NS: line.NS, Iterations: []uint64{row.Number}, See: fmt.Sprintf("whylate iterations %d", row.Number),
		Culprits: []Culprit{{Kind: "iteration", ID: fmt.Sprint(row.Number), Role: "ran meanwhile", NS: during}}}
	text := fmt.Sprintf("It waited %s in the engine's inbox: the scheduler takes up new requests only between iterations, and iteration %d took %s", Span(line.NS), row.Number, Span(row.Duration()))
	if odd := c.oddAt(row.Number); odd != nil {
		text += fmt.Sprintf(" against an expected %s.", Span(int64(odd.Expected)))
		why, culprits := c.blameOdd(odd)
		text += why
		for i := range culprits { // it came after some of it
			culprits[i].NS = min(culprits[i].NS, during)
		}
		f.Culprits = append(f.Culprits, culprits...)
	} else {
		text += "."
		f.Culprits = append(f.Culprits, c.dearest(row, during)...)
	}
	f.Text = text + c.queueTimeNote()
	c.find(f)
}

// queueTimeNote says what the engine's own metric hides.
func (c *explainer) queueTimeNote() string {
	if c.e.Name == "vllm" {
		return " vLLM's own queue time (vllm:request_queue_time_seconds) begins only when the scheduler takes a request up, so it does not contain this wait."
	}
	return " The engine's own queue time does not contain this wait."
}

// longest returns the iteration with the largest overlap with from … to, and the overlap.
func longest(e *ledger.Engine, from, to int64) (*ledger.Iteration, int64) {
	if from == 0 || to == 0 {
		return nil, 0
	}
	i, _ := slices.BinarySearchFunc(e.Iterations, from, func(it ledger.Iteration, t int64) int { return cmp.Compare(it.End, t) })
	var best *ledger.Iteration
	var most int64
	for ; i < len(e.Iterations); i++ {
		it := &e.Iterations[i]
		if it.Start > to {
			break
		}
		end := it.End
		if end == 0 {
			end = to
		}
		if o := min(end, to) - max(it.Start, from); o > most {
			best, most = it, o
		}
	}
	return best, most
}

func (c *explainer) oddAt(n uint64) *account.Odd {
	odds := c.l.Odd(c.e)
	for i := range odds {
		if odds[i].Iteration.Number == n {
			return &odds[i]
		}
	}
	return nil
}

// firstWork is work that an engine may have to prepare for (compile, allocate) when it first meets it. A first prefill or
// decode belongs to a cold start and names nobody in particular.
func firstWork(n account.New) bool {
	return n.First && n.What != "prefill" && n.What != "decode"
}

// blameOdd says what was special about an odd iteration, and who brought it.
func (c *explainer) blameOdd(o *account.Odd) (string, []Culprit) {
	var culprits []Culprit
	var firsts []string
	whole := c.e.Began == 1
	for _, n := range o.New {
		if !firstWork(n) {
			continue
		}
		names := requestNames(n.By)
		firsts = append(firsts, fmt.Sprintf("%s, which %s brought", n.What, list(names, 3)))
		for _, name := range names {
			culprits = append(culprits, Culprit{Kind: "request", ID: name, Role: "brought", NS: int64(o.Excess), Detail: n.What})
		}
	}
	if len(firsts) > 0 {
		since := "since the engine started"
		if !whole {
			since = "since the recording began"
		}
		return fmt.Sprintf(" It was the first iteration %s to carry %s: the engine prepares (compiles) for such work when it first meets it.", since, strings.Join(firsts, ", and ")), culprits
	}
	for _, n := range o.New {
		if n.First { // cold start
			return " It was among the first of this engine: a cold start.", nil
		}
	}
	return " Its work does not explain that, and nothing in it was new: " + heldUp(o.Iteration) + " Scheduler records cannot say by what.", nil
}

// heldUp says where an iteration's time passed, as far as its ranks' own times tell.
func heldUp(it *ledger.Iteration) string {
	x := it.Execution
	if x == nil {
		return "the machine or the process was held up."
	}
	rank := "its rank was"
	if x.Ranks > 1 {
		rank = fmt.Sprintf("rank %d, the slowest of %d, was", x.Slowest, x.Ranks)
	}
	switch took := it.Duration(); {
	case x.Device*10 >= took*8:
		return fmt.Sprintf("%s at it for %s, its device for %s: the device was held up, or slow.", rank, Span(x.Host), Span(x.Device))
	case x.Host*10 >= took*8:
		return fmt.Sprintf("%s at it for %s: its process, its host or its device was held up.", rank, Span(x.Host))
	case x.Host*2 < took:
		return fmt.Sprintf("%s done after %s: the rest passed outside the worker, in the engine's process or on the way between them.", rank, Span(x.Host))
	}
	return fmt.Sprintf("%s at it for %s of that: the machine or the process was held up.", rank, Span(x.Host))
}

// DescribeIteration says in one sentence or two what there is to say of an iteration of e.
func DescribeIteration(l *query.Ledger, e *ledger.Engine, it *ledger.Iteration) string {
	c := &explainer{l: l, e: e, m: l.Model(e), r: &ledger.Request{}}
	switch {
	case it.End == 0:
		return fmt.Sprintf("Iteration %d was decided %s ago and is not done.", it.Number, Span(l.Book.Now-it.Decided))
	case !it.Complete():
		return fmt.Sprintf("Records of iteration %d are missing; its %s are unexplained.", it.Number, Span(it.End-e.TileStart(it.Number)))
	}
	if odd := c.oddAt(it.Number); odd != nil {
		why, _ := c.blameOdd(odd)
		return fmt.Sprintf("Iteration %d took %s against an expected %s.%s", it.Number, Span(it.Duration()), Span(int64(odd.Expected)), why)
	}
	if c.m == nil {
		return fmt.Sprintf("Iteration %d took %s.", it.Number, Span(it.Duration()))
	}
	return fmt.Sprintf("Iteration %d took %s, expected %s.", it.Number, Span(it.Duration()), Span(int64(c.m.Predict(account.WorkOf(e, it)))))
}

// dearest names the members that cost an ordinary iteration most. Who waited for a part of it waited for that part of each one's cost.
func (c *explainer) dearest(it *ledger.Iteration, waited int64) []Culprit {
	members := account.Members(c.e, c.m, it.Number)
	part := 1.0
	if it.End != 0 && it.Duration() > waited {
		part = float64(waited) / float64(it.Duration())
	}
	slices.SortStableFunc(members, func(a, b account.Member) int { return cmp.Compare(b.Marginal, a.Marginal) })
	var out []Culprit
	for _, k := range members {
		if len(out) == 3 || k.Marginal < float64(worthLeast) {
			break
		}
		out = append(out, Culprit{Kind: "request", ID: k.Seq.Request.Name(), Role: k.Phase.String(), NS: int64(part * k.Marginal), Detail: fmt.Sprintf("%d tokens", k.Tokens)})
	}
	return out
}

// iterations finds odd iterations that the request itself sat in.
func (c *explainer) iterations() {
	if c.e == nil {
		return
	}
	for i, o := range c.l.Odd(c.e) {
		n := o.Iteration.Number
		q := c.memberOf(n)
		if q == nil {
			continue
		}
		part := account.Decode
		if q.FirstEmit == 0 || n <= q.FirstEmit {
			part = account.Prefill
		}
		if !c.worth(part, int64(o.Excess)) {
			continue
		}
		why, culprits := c.blameOdd(&c.l.Odd(c.e)[i])
		own := slices.ContainsFunc(culprits, func(k Culprit) bool { return k.Kind == "request" && k.ID == c.x.Request.Name })
		if own {
			why += " That request is this one."
		}
		c.find(Finding{ID: OddIteration, Part: part, Split: account.SplitSlowdown, NS: int64(o.Excess), Modelled: true, Iterations: []uint64{n},
			Text:     fmt.Sprintf("It sat in iteration %d, which took %s against an expected %s.%s", n, Span(o.Iteration.Duration()), Span(int64(o.Expected)), why),
			Culprits: append([]Culprit{{Kind: "iteration", ID: fmt.Sprint(n), Role: "slow", NS: int64(o.Excess)}}, culprits...),
			See:      fmt.Sprintf("whylate iterations %d", n)})
	}
}

func (c *explainer) memberOf(n uint64) *ledger.Sequence {
	for _, q := range []*ledger.Sequence{c.a.Lead, c.a.Tail} {
		if q == nil || q.Engine != c.e {
			continue
		}
		for k := range q.Stints {
			if s := &q.Stints[k]; s.First <= n && n <= s.Last {
				return q
			}
		}
	}
	return nil
}

// prefills finds time that was other requests' prompts, and whose.
func (c *explainer) prefills() {
	for _, p := range []account.Part{account.Prefill, account.Decode} {
		ns := c.a.Split(p, account.SplitPrefills)
		if !c.worth(p, ns) {
			continue
		}
		q, from, to := c.ran(p)
		f := Finding{ID: OthersPrefill, Part: p, Split: account.SplitPrefills, NS: ns, Modelled: true, See: "whylate iterations --request " + c.x.Request.Name}
		var who []string
		for _, k := range byRequest(account.Beside(c.m, q, from, to, account.Prefills)) {
			if len(f.Culprits) == 3 || k.NS < 0.1*float64(ns) {
				break
			}
			name := k.Seq.Request.Name()
			f.Culprits = append(f.Culprits, Culprit{Kind: "request", ID: name, Role: "prefill", NS: int64(k.NS),
				Detail: fmt.Sprintf("%d prompt tokens computed in iterations %d to %d", k.Tokens, k.First, k.Last)})
			f.Iterations = append(f.Iterations, k.First, k.Last)
			who = append(who, fmt.Sprintf("%s (%s: %d prompt tokens in iterations %d to %d)", name, Span(int64(k.NS)), k.Tokens, k.First, k.Last))
		}
		f.Text = fmt.Sprintf("%s of its iterations %s was the prefill of other requests", Span(ns), during(p))
		if len(who) > 0 {
			f.Text += ": " + strings.Join(who, ", ") + "."
		} else {
			f.Text += ", many small ones; none stands out."
		}
		c.find(f)
	}
}

// ran is the iterations of part p, prefill or decode, and whose they are.
func (c *explainer) ran(p account.Part) (q *ledger.Sequence, from, to uint64) {
	q, from, to = c.a.Lead, c.a.Lead.Join, c.a.Lead.FirstEmit
	if p == account.Decode {
		q, from, to = c.a.Tail, c.a.Lead.FirstEmit+1, c.a.Tail.Leave
	}
	if to == 0 {
		to = q.Leave
	}
	return q, from, to
}

func during(p account.Part) string {
	if p == account.Decode {
		return "while it was generating"
	}
	return "before its first token"
}

// decodes finds requests whose own decode made its iterations longer by what is worth a finding: many sequences, or tokens that are dear
// to sample. That others are in the batch is no finding as long as none of them stands out.
func (c *explainer) decodes() {
	for _, p := range []account.Part{account.Prefill, account.Decode} {
		split := account.SplitDecodes
		if p == account.Decode {
			split = account.SplitBatch
		}
		if !c.worth(p, c.a.Split(p, split)) {
			continue
		}
		q, from, to := c.ran(p)
		f := Finding{ID: OthersDecode, Part: p, Split: split, Modelled: true, See: "whylate iterations --request " + c.x.Request.Name}
		var who []string
		for _, k := range byRequest(account.Beside(c.m, q, from, to, account.Decodes)) {
			if !c.worth(p, int64(k.NS)) {
				break
			}
			name, detail := k.Seq.Request.Name(), decoded(k)
			if c.blamed != nil && !c.blamed[name] {
				continue
			}
			f.NS += int64(k.NS)
			f.Culprits = append(f.Culprits, Culprit{Kind: "request", ID: name, Role: "decode", NS: int64(k.NS), Detail: detail})
			f.Iterations = append(f.Iterations, k.First, k.Last)
			who = append(who, fmt.Sprintf("%s (%s: %s)", name, Span(int64(k.NS)), detail))
		}
		if len(who) == 0 {
			continue
		}
		f.Text = fmt.Sprintf("%s of its iterations %s was the decode of %s.", Span(f.NS), during(p), list(who, 3))
		c.find(f)
	}
}

// decoded says how much a request decoded, and what made its tokens dear.
func decoded(k account.Cost) string {
	text := fmt.Sprintf("%d tokens in iterations %d to %d", k.Tokens, k.First, k.Last)
	if n := len(k.Seq.Request.Sequences); n > 1 {
		text = fmt.Sprintf("%d sequences, %s", n, text)
	}
	if k.Seq.Logprobs >= 0 {
		text += ", with logprobs"
	}
	if k.Seq.Features&ledger.FeaturePenalties != 0 {
		text += ", with penalties"
	}
	if k.Seq.Features&ledger.FeatureGrammar != 0 {
		text += ", with a grammar"
	}
	return text
}

// byRequest adds up what the sequences of one request cost; the list stays sorted by cost.
func byRequest(costs []account.Cost) []account.Cost {
	var out []account.Cost
	at := map[*ledger.Request]int{}
	for _, k := range costs {
		i, ok := at[k.Seq.Request]
		if !ok || k.Seq.Request == nil {
			at[k.Seq.Request] = len(out)
			out = append(out, k)
			continue
		}
		out[i].NS += k.NS
		out[i].Tokens += k.Tokens
		out[i].First, out[i].Last = min(out[i].First, k.First), max(out[i].Last, k.Last)
	}
	slices.SortStableFunc(out, func(a, b account.Cost) int { return cmp.Compare(b.NS, a.NS) })
	return out
}

// preemptions finds time lost to preemptions: away, and computed again.
func (c *explainer) preemptions() {
	q := c.a.Tail
	if q == nil || c.e == nil || len(q.Preemptions) == 0 {
		return
	}
	away := c.a.Split(account.Decode, account.SplitPreempted) + c.a.Split(account.Prefill, account.SplitPreempted)
	again := c.a.Split(account.Decode, account.SplitRecompute) + c.a.Split(account.Prefill, account.SplitRecompute)
	ns := away + again
	if !c.worth(account.Decode, ns) {
		return
	}
	f := Finding{ID: Preempted, Part: account.Decode, Split: account.SplitPreempted, NS: ns, Modelled: again > 0, See: "whylate iterations --request " + c.x.Request.Name}
	var parts []string
	for _, p := range q.Preemptions {
		text := fmt.Sprintf("in iteration %d (%s) it lost its %d KV blocks; %d computed tokens were thrown away and had to be computed again", p.Iteration, Clock(p.At), p.Blocks, p.Lost)
		switch {
		case p.Reset:
			text += "; the cause was an administrative reset of the cache"
		case p.Preemptor != nil && p.Preemptor.Request == c.r:
			text += "; the blocks were taken for its own growth"
		case p.Preemptor != nil:
			name := p.Preemptor.Request.Name()
			text += fmt.Sprintf("; the growth of %s took the blocks (%d were free)", name, p.FreeBlocks)
			f.Culprits = append(f.Culprits, Culprit{Kind: "request", ID: name, Role: "preemptor", Detail: fmt.Sprintf("in iteration %d", p.Iteration)})
		}
		f.Iterations = append(f.Iterations, p.Iteration)
		parts = append(parts, text)
	}
	times := "once"
	if n := len(q.Preemptions); n > 1 {
		times = fmt.Sprintf("%d times", n)
		if n > 3 {
			parts = append(parts[:3], fmt.Sprintf("and %d more", n-3))
		}
	}
	f.Text = fmt.Sprintf("It was preempted %s: %s. It stood aside for %s and its recompute took %s.", times, strings.Join(parts, "; "), Span(away), Span(again))
	f.Culprits = append(f.Culprits, c.holders(q, ns, true)...)
	c.find(f)
}

// skips finds time in which a running request was passed over for a reason other than a preemption.
func (c *explainer) skips() {
	for _, p := range []account.Part{account.Prefill, account.Decode} {
		for _, s := range c.a.Line(p).Splits {
			if reason, ok := strings.CutPrefix(s.Name, account.SplitSkipped+": "); ok && c.worth(p, s.NS) {
				c.find(Finding{ID: Skipped, Part: p, Split: s.Name, NS: s.NS, See: "whylate iterations --request " + c.x.Request.Name,
					Text: fmt.Sprintf("It was running and was passed over for %s: %s.", Span(s.NS), reason)})
			}
		}
	}
}

// slowdown finds time that the work does not explain and no single odd iteration holds.
func (c *explainer) slowdown() {
	for _, p := range []account.Part{account.Prefill, account.Decode} {
		for _, s := range c.a.Line(p).Splits {
			if s.Name != account.SplitSlowdown {
				continue
			}
			ns := s.NS
			for _, f := range c.x.Findings {
				if (f.ID == OddIteration || f.ID == FrontendAnswer) && f.Part == p {
					ns -= f.NS
				}
			}
			if c.worth(p, ns) && ns > 2*s.Band { // a model that is somewhat off is no slow machine
				c.find(Finding{ID: Slowdown, Part: p, Split: s.Name, NS: ns, Modelled: true,
					Text: fmt.Sprintf("Its iterations took %s longer than their work explains (the model's median error is %.0f %%). Slower at equal work is the machine, not the load: another process, clocks, memory. Scheduler records cannot say which.", Span(ns), 100*c.m.All.Median)})
			}
		}
	}
}

func (c *explainer) gaps() {
	for _, p := range []account.Part{account.Prefill, account.Decode} {
		if ns := c.a.Split(p, account.SplitHostGap); c.worth(p, ns) {
			c.find(Finding{ID: HostGap, Part: p, Split: account.SplitHostGap, NS: ns,
				Text: fmt.Sprintf("%s passed between its iterations with nothing running: the engine's loop was busy with other things (input, aborts, output), or was not given the processor.", Span(ns))})
		}
	}
}

func (c *explainer) stream() {
	line := c.a.Line(account.Stream)
	if !c.worth(account.Stream, line.NS) {
		return
	}
	if c.r.SendWait > line.NS/2 {
		c.find(Finding{ID: SlowClient, Part: account.Stream, NS: line.NS,
			Text: fmt.Sprintf("Its last token was ready %s before the last byte was gone, and the front end spent %s waiting for the client to take what was sent: the client (or a proxy) reads slowly.", Span(line.NS), Span(c.r.SendWait))})
		return
	}
	c.find(Finding{ID: StreamTail, Part: account.Stream, NS: line.NS,
		Text: fmt.Sprintf("Its last token was ready %s before the exchange ended; the client did not hold it up: the front end was behind with its streams.", Span(line.NS))})
}

func (c *explainer) missing() {
	ns := c.a.Line(account.Unexplained).NS
	if !c.worth(account.Unexplained, ns) {
		return
	}
	c.find(Finding{ID: Missing, Part: account.Unexplained, NS: ns, See: "whylate explain " + c.x.Request.Name + " -o json",
		Text: fmt.Sprintf("%s cannot be explained: records of that time are missing. Nobody is blamed for it.", Span(ns))})
}

func (c *explainer) client() *ClientView {
	if len(c.r.Clients) == 0 {
		return nil
	}
	k := c.r.Clients[len(c.r.Clients)-1]
	v := &ClientView{E2E: k.Ended - k.Sent, Late: max(0, k.Sent-k.Planned), Attempts: len(c.r.Clients), Outcome: k.Outcome, Error: k.Error}
	if k.First != 0 {
		v.TTFT = k.First - k.Sent
	}
	if c.a.From != 0 {
		v.Outside = v.E2E - c.a.E2E()
	}
	return v
}

// inFlight tells an unfinished request of the iteration that is running now. One that runs far longer than it should is a
// finding already: nobody has to wait for its end to hear of it.
func (c *explainer) inFlight() {
	it := c.a.InFlight
	if it == nil || c.a.State == account.Finished {
		return
	}
	f := &InFlight{Iteration: it.Number, Since: it.Decided, For: c.l.Book.Now - it.Decided}
	o := account.Inspect(c.e, c.m, it)
	for _, k := range o.Members {
		if name := k.Seq.Request.Name(); !slices.Contains(f.Members, name) {
			f.Members = append(f.Members, name)
		}
	}
	if c.m != nil {
		f.Expected = int64(c.m.Predict(account.MembersWork(c.e, it.Number)))
	}
	c.x.InFlight = f
	ns, part := int64(0), account.Unexplained
	for _, p := range []account.Part{account.Inbox, account.Queue, account.Prefill, account.Decode} {
		if n := c.a.Split(p, account.SplitInFlight); n > 0 {
			ns, part = n, p
		}
	}
	if c.a.State == account.InInbox {
		part, ns = account.Inbox, min(c.a.Line(account.Inbox).NS, f.For)
	}
	if !c.worth(part, ns) || f.Expected > 0 && f.For < 3*f.Expected {
		return
	}
	o.Excess = float64(f.For - f.Expected)
	why, culprits := c.blameOdd(&o)
	verb := "It waits for"
	if c.memberOf(it.Number) != nil {
		verb = "It sits in"
	}
	text := fmt.Sprintf("%s iteration %d, which was launched %s ago and is not done", verb, it.Number, Span(f.For))
	if f.Expected > 0 {
		text += fmt.Sprintf("; %s were expected", Span(f.Expected))
	}
	c.find(Finding{ID: IterationInFlight, Part: part, Split: account.SplitInFlight, NS: ns, Iterations: []uint64{it.Number}, See: fmt.Sprintf("whylate iterations %d", it.Number),
		Text: fmt.Sprintf("%s. Members: %s.%s", text, list(f.Members, 4), why), Culprits: append([]Culprit{{Kind: "iteration", ID: fmt.Sprint(it.Number), Role: "in flight", NS: ns}}, culprits...)})
}

func (c *explainer) basis() {
	b := Basis{Level: "L1", Coverage: c.l.Book.Coverage(), Sharpen: "the engine's scheduler records: install the probe (whylate-vllm) in the engine"}
	if c.e != nil {
		b.Level = "L2"
		b.Uncertainty = c.e.Clock.Uncertainty
		b.Sharpen = "rank steps and device counters (L3): they tell a slow machine from slow software"
		if row := c.e.Row(c.x.Request.LastIter); row != nil && row.Execution != nil {
			b.Sharpen = "device counters (L3): how long its ranks took is seen already ('whylate iterations N'), and counters tell why"
		}
		if c.r.Received == 0 {
			b.Sharpen = "the front end's records: without them the time before the engine and after the last token is not seen"
		}
		if c.m != nil {
			b.Model = &Model{Iterations: c.m.Rows, HeldOut: c.m.Held, Median: c.m.All.Median, P90: c.m.All.P90}
		} else {
			c.x.Notes = append(c.x.Notes, fmt.Sprintf("No iteration-time model: fewer than %d whole iterations were recorded, so time inside iterations is measured but not split.", account.MinRows))
		}
		b.Untried = Untried(c.e)
	}
	switch {
	case slices.ContainsFunc(c.r.Sequences, func(q *ledger.Sequence) bool { return q.Reason == ledger.FinishLost }):
		c.x.Notes = append(c.x.Notes, "Its end was never told: its engine died, or the records were lost. The account ends with the last that is known of it.")
	case c.r.Received != 0 && c.r.LastByte != 0 && c.r.End == ledger.EndUnknown:
		c.x.Notes = append(c.x.Notes, "The end of its exchange was never told: the account ends with the last that is known of it.")
	}
	if len(c.r.Sequences) > 1 {
		c.x.Notes = append(c.x.Notes, fmt.Sprintf("It has %d sequences: the parts up to prefill are those of the first to emit (%s), decode is that of the last to end (%s).", len(c.r.Sequences), c.a.Lead.ID, c.a.Tail.ID))
	}
	for _, g := range c.l.Book.AllGaps() {
		if g.At == 0 || g.At >= c.a.From && g.At <= c.a.To {
			b.Gaps = append(b.Gaps, g)
		}
	}
	c.x.Basis = b
}

// failed says who ended the request with an error, "" if nobody did. A client that hung up did as it wanted.
func (c *explainer) failed() string {
	lost := slices.ContainsFunc(c.r.Sequences, func(q *ledger.Sequence) bool { return q.Reason == ledger.FinishError })
	switch {
	case c.r.Status >= 400:
		return fmt.Sprintf("status %d", c.r.Status)
	case lost:
		return "the engine ended it with an error"
	case c.r.End == ledger.EndError:
		return "the front end ended it with an error"
	}
	if v := c.x.Client; v != nil && v.Outcome != ledger.OutcomeComplete && v.Outcome != ledger.OutcomeCancelled {
		return fmt.Sprintf("for its client: %s, %s", v.Outcome, cmp.Or(v.Error, "which says no more"))
	}
	return ""
}

func (c *explainer) headline() string {
	name, e2e := c.x.Request.Name, Span(c.a.E2E())
	state := "took"
	if c.a.State != account.Finished {
		state = fmt.Sprintf("is %s after", c.a.State)
	}
	if c.e == nil && c.r.Received == 0 {
		return fmt.Sprintf("%s never reached a server that was recorded.", name)
	}
	if why := c.failed(); why != "" {
		e2e += " and failed (" + why + ")"
	}
	if len(c.x.Findings) == 0 {
		return fmt.Sprintf("%s %s %s; nothing stands out and nobody is to blame.", name, state, e2e)
	}
	f := c.x.Findings[0]
	what := map[string]string{
		IterationInFlight:    "an iteration that is still not done",
		InboxBehindIteration: "waiting in the engine's inbox behind a long iteration",
		QueueKVBlocks:        "waiting in the queue for KV blocks",
		QueueSequenceLimit:   "waiting in the queue for a free place in the batch",
		QueueTokenBudget:     "waiting in the queue for token budget",
		QueueOther:           "waiting in the queue",
		OddIteration:         "one iteration that took far longer than its work",
		OthersPrefill:        "other requests' prefill in its iterations",
		OthersDecode:         "another request's decode in its iterations",
		FrontendAnswer:       "a front end at work on another request's answer",
		Preempted:            "a preemption",
		Skipped:              "being passed over by the scheduler",
		Slowdown:             "iterations slower than their work explains",
		HostGap:              "gaps between iterations",
		FrontendSlow:         "the front end",
		SlowClient:           "a client that reads slowly",
		StreamTail:           "a front end that flushed late",
		Missing:              "time of which records are missing",
	}[f.ID]
	return fmt.Sprintf("%s %s %s; %s of it (%.0f %%) was %s.", name, state, e2e, Span(f.NS), 100*f.Share, what)
}
