package ingest

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Missing iterations get rows of their own, so that a number always says where its row is. How many there may be, in one hole and
// in all, is bounded: a number further ahead is nonsense, or belongs into a capture of its own.
const (
	maxHole  = 1 << 17
	maxHoles = 1 << 20
)

// holeError refuses a decision or completion that is too far ahead.
func (g *engine) holeError(i uint64) error {
	last := g.e.Last()
	if missing := i - last - 1; missing > maxHole || g.holes+missing > maxHoles {
		return fmt.Errorf("field iteration: %d after %d: too many iterations missing (at most %d in one hole and %d in all); read what comes after the hole as a capture of its own", i, last, maxHole, maxHoles)
	}
	return nil
}

// scheduled takes a decision.
func (g *engine) scheduled(m *wire.Scheduled) error {
	e, i := g.e, m.Iteration
	switch last := e.Last(); {
	case i == 0 || i > 1<<62:
		return fmt.Errorf("field iteration: %d; iterations are numbered from 1", i)
	case last == 0:
		e.First, e.Began = i, i
		g.uncertain = g.uncertain || i != 1 && !m.Full
	case i <= last:
		return fmt.Errorf("field iteration: %d after %d: an iteration number never goes back within an incarnation; a restarted engine must open a new ring", i, last)
	default:
		if err := g.holeError(i); err != nil {
			return err
		}
	}
	at := g.s.clock.at
	decided := at(m.Time)
	if decided < g.lastEnd-clockSlack {
		return fmt.Errorf("field time: decided %d ns before the previous completion: the producer's monotonic clock went back", g.lastEnd-decided)
	}
	for n := e.Last() + 1; e.Last() != 0 && n < i; n++ {
		g.openRow(ledger.Iteration{Number: n}, decided)
		g.uncertain = true
		g.holes++
	}
	g.openRow(ledger.Iteration{
		Number: i, Alias: m.Alias, Decided: decided, Launched: at(m.Returned),
		Tokens: m.Tokens, Members: m.Members, Running: m.Running, Waiting: m.Waiting, FreeBlocks: m.Free,
		Known: ledger.KnownDecision, Stop: m.Stop, Need: m.Need,
	}, decided)
	d := g.open[len(g.open)-1]

	g.preempt(m)
	g.leaves(m)
	g.settle(i)
	if m.Full {
		g.restate(m)
	} else {
		g.change(m)
		if g.uncertain {
			g.repair(m)
		}
	}

	g.steadyUp(i)
	g.draft(m, d)
	tokens := g.step(i, d)
	row := e.Row(i)
	if right := g.count == m.Members && g.digest == m.Digest && tokens == uint64(m.Tokens); right || m.Full {
		g.uncertain = !right
	} else if !g.uncertain {
		g.uncertain = true
		g.a.gap(g.s, ledger.Gap{At: decided, Why: fmt.Sprintf(
			"iteration %d: %d members with %d tokens by its changes, %d with %d by its own count: membership is unknown up to the next full record", i, g.count, tokens, m.Members, m.Tokens)})
	}
	if !g.uncertain {
		row.Known |= ledger.KnownMembers
		d.known = true
	}

	head := g.who(m.Head)
	row.Head = head
	if len(m.Holders) > 0 {
		h := ledger.Holding{Iteration: i, Head: head, Need: m.Need, Free: m.Free}
		for _, holder := range m.Holders {
			if q := g.who(holder.Handle); q != nil {
				h.Holders = append(h.Holders, ledger.Holder{Seq: q, Blocks: holder.Blocks, Weight: holder.Weight})
			}
		}
		e.Holdings = append(e.Holdings, h)
	}
	g.skip(m, i, head)
	return nil
}

// openRow appends the row of a decision. An engine has at most depth decisions open: whatever is older has lost its
// completion, and ended before this one was decided.
func (g *engine) openRow(it ledger.Iteration, decided int64) {
	for len(g.open) >= g.e.Depth {
		g.close(g.open[0], decided, 0, 0)
	}
	g.e.Iterations = append(g.e.Iterations, it)
	g.open = append(g.open, &decision{number: it.Number})
}

// preempt takes the preemptions of a decision. They come before the membership: a victim is among the leaves.
func (g *engine) preempt(m *wire.Scheduled) {
	for _, p := range m.Preemptions {
		k := g.members[p.Victim]
		if k == nil {
			continue // finished since, or never introduced; the count of the row's members still tells
		}
		lost := &ledger.Preemption{
			Iteration: m.Iteration, At: g.s.clock.at(m.Time) + int64(p.TimeDelta)*1000, Victim: k.seq, Preemptor: g.who(p.Preemptor),
			Lost: p.Lost, Output: p.Output, FreeBlocks: p.Free, Blocks: p.Blocks, Reset: p.Cause == wire.CauseReset,
		}
		g.e.Preemptions = append(g.e.Preemptions, lost)
		k.seq.Preemptions = append(k.seq.Preemptions, lost)
		k.away = true
		if k.final { // it had caught up with what it lost before
			k.final, k.redo = false, 0
		}
		k.redo, k.lost = max(k.redo, p.Lost), m.Iteration
	}
}

// settle moves members whose prefill ended in an earlier decision into decode, and those that have caught up with what they had
// lost to what comes next, before iteration i is looked at.
func (g *engine) settle(i uint64) {
	for _, k := range g.active {
		if !k.in {
			continue
		}
		if !k.final && k.phase == ledger.Recompute && k.before >= k.redo {
			k.phase = ledger.Prefill
			if k.before >= k.seq.Prompt {
				k.phase = ledger.Decode
			}
			k.seq.Stints = append(k.seq.Stints, ledger.Stint{Seq: k.seq, Phase: k.phase, First: i, Last: i, Before: k.before, Tokens: []uint32{}})
		}
		if k.final {
			k.final, k.redo = false, 0
			k.phase = ledger.Decode
			k.seq.Stints = append(k.seq.Stints, ledger.Stint{Seq: k.seq, Phase: ledger.Decode, First: i, Last: i, Before: k.before, Tokens: []uint32{}})
		}
	}
	g.active = slices.DeleteFunc(g.active, func(k *member) bool { return !k.in })
}

// steadyUp carries on as sums those whose decode begins with one token in iteration i.
func (g *engine) steadyUp(i uint64) {
	g.active = slices.DeleteFunc(g.active, func(k *member) bool {
		st := k.stint()
		if k.phase != ledger.Decode || k.tokens != 1 || st.First != i {
			return false
		}
		st.Tokens = nil
		g.makeSteady(k, i)
		return true
	})
}

func (g *engine) makeSteady(k *member, i uint64) {
	k.steady, k.since = true, i
	g.steady.add(k.seq, k.before, 1)
}

// unsteady takes a member out of the sums; before is then what it had computed before iteration i.
func (g *engine) unsteady(k *member, i uint64) {
	k.before += uint32(i - k.since)
	g.steady.add(k.seq, k.before, -1)
	k.steady = false
}

// leaves ends the memberships that this decision does not continue: before anything else, so that a member that leaves
// right after its prefill never looks like one in decode.
func (g *engine) leaves(m *wire.Scheduled) {
	last := m.Iteration - 1
	if m.Full {
		listed := make(map[uint32]bool, len(m.Joins))
		for _, j := range m.Joins {
			listed[j.Handle] = true
		}
		for _, k := range g.members {
			if k.in && !listed[k.handle] {
				g.leave(k, last)
			}
		}
	}
	for _, h := range m.Leaves {
		if k := g.find(h); k != nil && k.in {
			g.leave(k, last)
		} else if !m.Full {
			g.uncertain = true
		}
	}
	for _, k := range g.gone { // finished: no later decision has them
		if k.in {
			g.leave(k, last)
		}
	}
	g.gone = g.gone[:0]
}

// change applies changed token counts and joins to the members of the last decision.
func (g *engine) change(m *wire.Scheduled) {
	for _, c := range m.Changes {
		if k := g.find(c.Handle); k != nil && k.in {
			g.setTokens(k, c.Tokens, m.Iteration)
		} else {
			g.uncertain = true
		}
	}
	for _, j := range m.Joins {
		g.join(j, m.Iteration)
	}
}

// restate makes the members those of a full record. What a member had computed is right again from here on, also if
// records were lost in between.
func (g *engine) restate(m *wire.Scheduled) {
	i := m.Iteration
	for _, j := range m.Joins {
		k := g.find(j.Handle)
		if k == nil || !k.in {
			g.join(j, i)
			continue
		}
		before := k.before
		if k.steady {
			before += uint32(i - k.since)
		}
		if before != j.Before || j.Kind == wire.JoinSession {
			g.leave(k, i-1)
			g.join(j, i)
			continue
		}
		k.total = j.Total
		g.setTokens(k, j.Tokens, i)
	}
}

// setTokens gives a continuing member its token count from iteration i on.
func (g *engine) setTokens(k *member, tokens uint32, i uint64) {
	if tokens != 1 {
		g.listTokens(k, i)
	}
	k.tokens = tokens
}

// listTokens makes the stint of a member in steady decode carry a list from iteration i on.
func (g *engine) listTokens(k *member, i uint64) {
	if !k.steady {
		return
	}
	g.unsteady(k, i)
	g.active = append(g.active, k)
	st := k.stint()
	st.Tokens = ones(i - st.First)
}

// draft notes the speculative tokens of a decision. Which of them count is known at its completion.
func (g *engine) draft(m *wire.Scheduled, d *decision) {
	for _, entry := range m.Drafts {
		k := g.find(entry.Handle)
		if k == nil || !k.in {
			g.uncertain = true
			continue
		}
		g.listTokens(k, m.Iteration)
		st := k.stint()
		st.Drafts = at16(st.Drafts, m.Iteration-st.First, entry.Tokens)
		d.drafts = append(d.drafts, drafted{k, entry.Tokens, len(k.seq.Stints) - 1})
	}
}

// reject takes the drafts that the model did not agree with off what their members have computed, also where later decisions
// have been made meanwhile. sampled says how many tokens came out of a member, those that were thrown away included.
func (d *decision) reject(g *engine, sampled func(*member) uint32) {
	for _, x := range d.drafts {
		n := sampled(x.k)
		if n == 0 || n > x.tokens || x.k.lost > d.number || x.k.ended { // nothing came out, all were right, or nobody asks any more
			continue
		}
		rejected := x.tokens + 1 - n
		st := &x.k.seq.Stints[x.stint]
		st.Rejected = at16(st.Rejected, d.number-st.First, rejected)
		for i := x.stint + 1; i < len(x.k.seq.Stints); i++ { // what began meanwhile took them for computed
			x.k.seq.Stints[i].Before -= rejected
		}
		for _, later := range g.open[1:] {
			if st := x.k.stintOf(later.number); st != nil && st.Phase == ledger.Decode {
				later.work[ledger.WorkDecodeContext] -= float64(rejected)
			}
		}
		x.k.before -= rejected
		if x.k.steady {
			g.steady.context -= float64(rejected)
		}
	}
}

// at16 sets entry i of a list, which grows as far as it must.
func at16(list []uint16, i uint64, v uint32) []uint16 {
	for uint64(len(list)) <= i {
		list = append(list, 0)
	}
	list[i] = uint16(v)
	return list
}

// repair guesses who joined in a lost decision, and keeps the guess only if the digest proves it: admission follows the order
// of the queue, so the missing members are neighbours in it.
func (g *engine) repair(m *wire.Scheduled) {
	n := int(m.Members) - int(g.count)
	if n <= 0 || n > len(g.waiting) {
		return
	}
	want := m.Digest ^ g.digest
	for k := 0; k+n <= len(g.waiting); k++ {
		var sum uint64
		for _, q := range g.waiting[k : k+n] {
			sum ^= wire.Digest(q.handle)
		}
		if sum == want {
			g.rejoin(slices.Clone(g.waiting[k:k+n]), m)
			return
		}
	}
}

// rejoin makes members of sequences that joined in a lost decision. Where the tokens that are left to them are one each,
// their prefill ended in it and they emitted their first token; otherwise what they had computed is told by the next full record.
func (g *engine) rejoin(ks []*member, m *wire.Scheduled) {
	listed := map[uint32]uint32{}
	for _, c := range m.Changes {
		listed[c.Handle] = c.Tokens
	}
	left := int64(m.Tokens) - int64(g.steady.n)
	for _, k := range g.active {
		left -= int64(k.tokens)
	}
	for _, k := range ks {
		tokens, ok := listed[k.handle]
		if !ok {
			tokens = uint32(max(left/int64(len(ks)), 1))
		}
		j := wire.Join{Handle: k.handle, Tokens: tokens, Total: k.total, Kind: wire.JoinContinued}
		if tokens == 1 {
			j.Before, j.Total = k.total, k.total+1
			if q := k.seq; q.FirstEmit == 0 {
				if row := g.e.Row(m.Iteration - 1); row != nil {
					q.FirstEmit, q.FirstToken, q.FirstUncertain = row.Number, row.End, true
				}
			}
		}
		g.join(j, m.Iteration)
	}
}

// find returns a live sequence, or one that finished and may still be a member of decisions in flight.
func (g *engine) find(handle uint32) *member {
	if k := g.members[handle]; k != nil {
		return k
	}
	for _, k := range g.gone {
		if k.handle == handle {
			return k
		}
	}
	return nil
}

// join makes a sequence a member from iteration i on.
func (g *engine) join(j wire.Join, i uint64) {
	k := g.find(j.Handle)
	if k == nil { // its introduction is missing; it still took its share of the iteration
		q := &ledger.Sequence{ID: fmt.Sprintf("unknown-%d", j.Handle), Engine: g.e, N: 1, Logprobs: -1, PromptLogprobs: -1}
		k = &member{seq: q, handle: j.Handle}
		g.members[j.Handle] = k
		g.e.Sequences = append(g.e.Sequences, q)
		g.a.fresh = append(g.a.fresh, q)
	}
	if k.in { // it was reset and resumed in one step
		g.leave(k, i-1)
	}
	q := k.seq
	g.stopWaiting(k)
	k.in, k.away, k.final, k.steady = true, false, false, false
	k.tokens, k.before, k.total = j.Tokens, j.Before, j.Total
	if j.Kind == wire.JoinSession { // what it had emitted is prompt now, and there is more
		q.Prompt = j.Total
	}
	if q.Join == 0 {
		q.Join = i
		q.Cached = j.Cached
	}
	switch {
	case j.Before < k.redo:
		k.phase = ledger.Recompute
	case j.Before < q.Prompt || q.Prompt == 0 && j.Tokens > 1:
		k.phase = ledger.Prefill
	default:
		k.phase = ledger.Decode
	}
	st := ledger.Stint{Seq: q, Phase: k.phase, First: i, Last: i, Before: j.Before}
	if k.phase == ledger.Decode && j.Tokens == 1 {
		g.makeSteady(k, i)
	} else {
		st.Tokens = []uint32{}
		g.active = append(g.active, k)
	}
	q.Stints = append(q.Stints, st)
	g.count++
	g.digest ^= wire.Digest(k.handle)
}

// leave ends a membership; last is the last iteration it was part of.
func (g *engine) leave(k *member, last uint64) {
	if k.steady {
		g.unsteady(k, last+1)
	}
	k.in, k.final = false, false
	k.named = max(k.named, last)
	if st := k.stint(); st.First > last { // opened for the iteration that turns out not to have it
		k.seq.Stints = k.seq.Stints[:len(k.seq.Stints)-1]
	} else {
		st.Last = last
	}
	k.seq.Leave = last
	g.count--
	g.digest ^= wire.Digest(k.handle)
	if i := slices.Index(g.active, k); i >= 0 {
		g.active = slices.Delete(g.active, i, i+1)
	}
	if !k.ended {
		g.waiting = append(g.waiting, k)
		g.fresh = append(g.fresh, k)
	}
}

func (k *member) stint() *ledger.Stint { return &k.seq.Stints[len(k.seq.Stints)-1] }

// step counts iteration i for the members that are not in steady decode, adds up its work and returns its tokens.
func (g *engine) step(i uint64, d *decision) (tokens uint64) {
	d.work = g.steady.work()
	tokens = uint64(g.steady.n)
	g.steady.context += g.steady.n
	for _, k := range g.active {
		tokens += uint64(k.tokens)
		st := k.stint()
		for i-st.First > uint64(len(st.Tokens)) {
			st.Tokens = append(st.Tokens, 0) // iterations whose records are missing
		}
		st.Tokens = append(st.Tokens, k.tokens)
		st.Last = i
		context := uint64(k.before)
		k.before += k.tokens
		if k.phase != ledger.Decode && k.before >= k.total {
			k.final, st.Final = true, true
			d.finals = append(d.finals, k)
		}
		d.work = d.work.Add(ledger.IterationWork(k.seq, k.phase, k.tokens, context, k.final))
	}
	if tokens > 0 {
		d.work[ledger.WorkIterations] = 1
	}
	return tokens
}

func ones(n uint64) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = 1
	}
	return list
}
