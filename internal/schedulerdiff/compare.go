package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/ledger"
)

// comparison holds the ledger of one run against the truth of that run.
type comparison struct {
	engine *ledger.Engine
	truth  []line
	run    line // how to make this run again
	seqs   map[string]*ledger.Sequence
	steps  []step            // by iteration − 1, from the ledger
	redo   map[string]uint32 // tokens that a preemption took, until they have been computed again
	prompt map[string]uint32
	first  map[string]uint64 // iteration of the first token
	last   map[string]uint64 // … of the last one
	output map[string]uint32
	flight []*line // decided and not done

	simulation  *simulation
	reasons     map[ledger.SkipReason]int // of traced iterations
	iterations  int
	traced      int
	evictions   int
	failure     string // of the engine's own
	differences []string
	count       int
}

// step is one iteration as the ledger tells it.
type step struct {
	members map[string]share
	waits   map[string]ledger.Skip
}

// share is one member's part of an iteration.
type share struct {
	tokens, before, drafts, rejected uint32
	phase                            ledger.Phase
}

const maxDifferences = 20 // that are kept in words

func (c *comparison) differ(n uint64, id, what string, want, got any) {
	c.count++
	if len(c.differences) < maxDifferences {
		c.differences = append(c.differences, fmt.Sprintf("iteration %d, %s: %s: truth %v, ledger %v", n, id, what, want, got))
	}
}

func same[V comparable](c *comparison, n uint64, id, what string, want, got V) {
	if want != got {
		c.differ(n, id, what, want, got)
	}
}

// compare returns what differs between a book and the truth of the same run.
func compare(b *ledger.Book, truth []line) *comparison {
	c := &comparison{truth: truth, run: truth[0], seqs: map[string]*ledger.Sequence{}, redo: map[string]uint32{}, prompt: map[string]uint32{},
		first: map[string]uint64{}, last: map[string]uint64{}, output: map[string]uint32{}, reasons: map[ledger.SkipReason]int{}}
	if len(b.Engines) != 1 {
		c.differ(0, "the run", "engines", 1, len(b.Engines))
		return c
	}
	c.engine = b.Engines[0]
	for _, g := range b.AllGaps() { // also a book that does not balance
		c.differ(g.From, g.Producer, "gaps in an undamaged run", "none", g.Why)
	}
	c.expand()
	for i := range truth {
		switch t := &truth[i]; t.Event {
		case "queued":
			c.queued(t)
		case "scheduled":
			c.scheduled(t)
		case "done":
			c.done(t)
		case "finished":
			c.finished(0, t.ID, ledger.FinishReason(t.Reason))
		case "end":
			same(c, 0, "the run", "iterations", t.Iterations, len(c.steps))
			c.iterations, c.traced, c.failure = t.Iterations, t.Traced, t.Failure
			if t.Failure == "" { // else what was evicted last had no next decision to tell it
				c.evicted(t)
			}
		}
	}
	c.sequences()
	return c
}

// expand lays the ledger's stints and skips out over its iterations.
func (c *comparison) expand() {
	c.steps = make([]step, len(c.engine.Iterations))
	for i := range c.steps {
		c.steps[i] = step{map[string]share{}, map[string]ledger.Skip{}}
	}
	at := func(n uint64) *step {
		if n == 0 || n > uint64(len(c.steps)) {
			c.differ(n, "the run", "runs outside of its iterations", len(c.steps), n)
			return &step{map[string]share{}, map[string]ledger.Skip{}}
		}
		return &c.steps[n-1]
	}
	for _, q := range c.engine.Sequences {
		if c.seqs[q.ID] != nil {
			c.differ(0, q.ID, "sequences with this id", 1, 2)
		}
		c.seqs[q.ID] = q
		for k := range q.Stints {
			s := &q.Stints[k]
			before := s.Before
			for n := s.First; n <= s.Last; n++ {
				if _, twice := at(n).members[q.ID]; twice {
					c.differ(n, q.ID, "stints that hold it", 1, 2)
				}
				m := share{tokens: s.TokensIn(n), before: before, phase: s.Phase}
				m.drafts, m.rejected = s.DraftsIn(n)
				at(n).members[q.ID] = m
				before += m.tokens - m.rejected
			}
		}
		for _, s := range q.Skips {
			for n := s.First; n <= s.Last; n++ {
				at(n).waits[q.ID] = s
			}
		}
	}
}

func (c *comparison) queued(t *line) {
	q := c.seqs[t.ID]
	if q == nil {
		c.differ(0, t.ID, "sequence", "queued", "absent")
		return
	}
	c.prompt[t.ID] = t.Prompt
	if t.External != "" {
		same(c, 0, t.ID, "id towards the client", t.External, q.External)
		same(c, 0, t.ID, "it arrived before it was queued", true, q.Arrived != 0 && q.Arrived <= q.Queued)
	}
	same(c, 0, t.ID, "priority", t.Priority, q.Priority)
	if !t.Session {
		same(c, 0, t.ID, "output tokens at most", t.Max, q.Max)
	}
}

func (c *comparison) scheduled(t *line) {
	if t.N > uint64(len(c.steps)) {
		c.differ(t.N, "the run", "iteration", "scheduled", "absent")
		return
	}
	c.flight = append(c.flight, t)
	row, s := c.engine.Row(t.N), c.steps[t.N-1]
	var tokens uint32
	for _, m := range t.Members {
		tokens += m[0]
	}
	same(c, t.N, "the row", "tokens", tokens, row.Tokens)
	same(c, t.N, "the row", "members", uint32(len(t.Members)), row.Members)
	same(c, t.N, "the row", "running", t.Running, row.Running)
	same(c, t.N, "the row", "waiting", t.Waiting, row.Waiting)
	same(c, t.N, "the row", "free blocks", t.Free, row.FreeBlocks)
	same(c, t.N, "the row", "alias", t.Alias, row.Alias)
	c.preempted(t)
	for id, m := range t.Members {
		got, in := s.members[id]
		if !in {
			c.differ(t.N, id, "member", m[0], "no member")
			continue
		}
		c.prompt[id] = m[3]
		same(c, t.N, id, "tokens", m[0], got.tokens)
		same(c, t.N, id, "drafts", t.Drafts[id], got.drafts)
		want := ledger.Decode
		switch {
		case m[1] < c.redo[id]:
			want = ledger.Recompute
		case m[1] < m[3]:
			want = ledger.Prefill
		}
		same(c, t.N, id, "phase", want, got.phase)
		if m[1]+m[0]-t.Drafts[id] >= m[2] {
			delete(c.redo, id)
		}
	}
	for id := range s.members {
		if _, in := t.Members[id]; !in {
			c.differ(t.N, id, "member", "no member", "member")
		}
	}
	for id, cached := range t.New {
		if q := c.seqs[id]; q != nil {
			same(c, t.N, id, "prompt tokens from cache", cached, q.Cached)
			same(c, t.N, id, "first iteration", t.N, q.Join)
		}
	}
	c.waits(t, s, row)
}

// preempted compares the victims of a decision, in order.
func (c *comparison) preempted(t *line) {
	var got []*ledger.Preemption
	for _, p := range c.engine.Preemptions {
		if p.Iteration == t.N {
			got = append(got, p)
		}
	}
	by := func(p *ledger.Preemption) string { return p.Victim.ID }
	for _, want := range t.Preempted {
		c.redo[want.Victim] = max(c.redo[want.Victim], want.Lost)
		i := slices.IndexFunc(got, func(p *ledger.Preemption) bool { return p.Victim.ID == want.Victim })
		if i < 0 {
			c.differ(t.N, want.Victim, "preemption", "victim", "none")
			continue
		}
		p := got[i]
		got = slices.Delete(got, i, i+1)
		same(c, t.N, want.Victim, "tokens lost", want.Lost, p.Lost)
		same(c, t.N, want.Victim, "tokens emitted before its preemption", want.Output, p.Output)
		same(c, t.N, want.Victim, "reset", want.Reset, p.Reset)
		preemptor := ""
		if p.Preemptor != nil {
			preemptor = p.Preemptor.ID
		}
		if want.By != nil || want.Reset {
			same(c, t.N, want.Victim, "preemptor", deref(want.By), preemptor)
		}
		if want.Free != nil {
			same(c, t.N, want.Victim, "free blocks before its preemption", *want.Free, p.FreeBlocks)
		}
		if want.Blocks != nil {
			same(c, t.N, want.Victim, "blocks held", *want.Blocks, p.Blocks)
		}
	}
	for _, p := range got {
		c.differ(t.N, by(p), "preemption", "none", "victim")
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// waits compares who was left out, and where the iteration was traced for what reason.
func (c *comparison) waits(t *line, s step, row *ledger.Iteration) {
	for _, id := range t.Waits {
		if _, waits := s.waits[id]; !waits {
			c.differ(t.N, id, "left out", "yes", "no")
		}
	}
	if len(s.waits) > len(t.Waits) {
		c.differ(t.N, "the row", "left out", t.Waits, slices.Sorted(maps.Keys(s.waits)))
	}
	if t.Head == nil {
		return
	}
	head := ""
	if row.Head != nil {
		head = row.Head.ID
	}
	same(c, t.N, "the row", "head of the line", *t.Head, head)
	if t.Need != 0 {
		same(c, t.N, "the row", "blocks the head needs", t.Need, row.Need)
	}
	for _, id := range t.Waits {
		want, told := t.Reasons[id]
		got := s.waits[id]
		if !told {
			c.differ(t.N, id, "why it was left out", "in none of the engine's queues", got.Reason)
			continue
		}
		reason := ledger.SkipReason(want[0])
		c.reasons[reason]++
		same(c, t.N, id, "why it was left out", reason, got.Reason)
		if reason == ledger.SkipOther && got.Reason == reason {
			same(c, t.N, id, "code", want[1], got.Code)
		}
		if reason == ledger.SkipHeadOfLine && (got.Head == nil || got.Head.ID != *t.Head) {
			c.differ(t.N, id, "behind", *t.Head, got.Head)
		}
	}
}

func (c *comparison) done(t *line) {
	if len(c.flight) == 0 || c.flight[0].N != t.N {
		c.differ(t.N, "the run", "completion", "in launch order", "not")
		return
	}
	decision := c.flight[0]
	c.flight = c.flight[1:]
	row := c.engine.Row(t.N)
	same(c, t.N, "the row", "what is known", ledger.KnownAll, row.Known)
	var emitted uint32
	for id, n := range t.Emitted {
		emitted += n
		c.output[id] += n
		if c.first[id] == 0 {
			c.first[id] = t.N
		}
		c.last[id] = t.N
	}
	same(c, t.N, "the row", "emitted tokens", emitted, row.Emitted)
	same(c, t.N, "the row", "discarded tokens", t.Discarded, row.Discarded)
	for id, m := range decision.Members {
		got, in := c.steps[t.N-1].members[id]
		if !in {
			continue // told already
		}
		same(c, t.N, id, "tokens computed before", m[1], got.before)
		same(c, t.N, id, "rejected drafts", t.Rejected[id], got.rejected)
	}
	// What was decided meanwhile took the drafts for accepted.
	for id, n := range t.Rejected {
		for _, later := range c.flight {
			if m, in := later.Members[id]; in {
				m[1] -= n
				later.Members[id] = m
			}
		}
	}
	for id, f := range t.Finished {
		c.finished(t.N, id, ledger.FinishReason(f[0]))
	}
}

func (c *comparison) finished(n uint64, id string, reason ledger.FinishReason) {
	q := c.seqs[id]
	if q == nil {
		return // told already
	}
	if q.Finished == 0 {
		c.differ(n, id, "end", reason, "none")
	}
	same(c, n, id, "finish reason", reason, q.Reason)
}

// evicted compares how many blocks of each last user were evicted from the prefix cache.
func (c *comparison) evicted(t *line) {
	got := map[string]uint32{}
	for _, e := range c.engine.Evictions {
		id := ""
		if e.Seq != nil {
			id = e.Seq.ID
		}
		got[id] += e.Blocks
	}
	for id, n := range t.Evicted {
		same(c, 0, id, "blocks evicted", n, got[id])
		c.evictions += int(n)
		delete(got, id)
	}
	for id, n := range got {
		c.differ(0, id, "blocks evicted", 0, n)
	}
}

// sequences compares what is known of each sequence at the end.
func (c *comparison) sequences() {
	for id, q := range c.seqs {
		prompt, queued := c.prompt[id]
		if !queued {
			c.differ(0, id, "sequence", "never queued", "present")
			continue
		}
		same(c, 0, id, "prompt tokens", prompt, q.Prompt)
		same(c, 0, id, "output tokens", c.output[id], q.Output)
		same(c, 0, id, "iteration of the first token", c.first[id], q.FirstEmit)
		same(c, 0, id, "iteration of the last token", c.last[id], q.LastEmit)
	}
}
