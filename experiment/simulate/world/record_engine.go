package world

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// How often a probe tells more than what changed (docs/formats/stream.md §2, scheduled).
const (
	fullEvery  = 64 // iterations between two decisions that list every member, and two reports of who holds the pool
	turns      = 16 // a live sequence is restated every fullEvery × turns iterations
	mostHolder = 32
)

// noted is what has been told of a sequence.
type noted struct {
	handle  uint32
	tokens  int    // in the last decision that it was a member of
	member  uint64 // number of that
	kind    wire.JoinKind
	cached  int // prompt tokens from the cache at its last admission
	hashed  int // hashes that have been told
	message wire.Queued
}

// decisionRecorder tells what a scheduler decides as a probe does: as differences from the last decision.
type decisionRecorder struct {
	members   []*sequence      // of the last decision
	skips     []wire.SkipEntry // in force
	stop      ledger.SkipReason
	preempted []wire.Preemption // by a reset since the last decision
	scheduled wire.Scheduled
	completed wire.Done
	hashes    wire.Hashes
	restated  []*sequence
}

// queued tells that a scheduler has taken up a sequence, and the hashes of its prompt.
func (r *decisionRecorder) queued(e *Engine, q *sequence) {
	q.note = noted{handle: q.of.Number(), kind: wire.JoinNew, hashed: len(q.asks.Hashes)}
	if !e.scheduling.heard() {
		return
	}
	n := uint16(1)
	if q.parent != "" {
		n = 0
	}
	q.note.message = wire.Queued{Time: e.mono(q.queued), Handle: q.note.handle, Prompt: uint32(q.asks.Prompt), Max: uint32(q.asks.Max), Priority: int32(q.asks.Priority),
		Arrived: e.mono(q.arrived), Wall: q.wall, N: n, Logprobs: q.book.Logprobs, PromptLogprobs: q.book.PromptLogprobs, Features: q.book.Features, ID: q.id, External: q.external}
	e.scheduling.record(q.queued, &q.note.message)
	for first := 0; first < len(q.asks.Hashes); first += mostHashes {
		r.hashes = wire.Hashes{Time: e.mono(q.queued), Handle: q.note.handle, First: uint32(first), Hashes: q.asks.Hashes[first:min(first+mostHashes, len(q.asks.Hashes))]}
		e.scheduling.record(q.queued, &r.hashes)
	}
}

// mostHashes is how many a message holds.
const mostHashes = 4096

// finished tells an end outside a completion.
func (r *decisionRecorder) finished(e *Engine, q *sequence, t time.Duration) {
	if e.scheduling.heard() {
		e.scheduling.record(t, &wire.Finished{Time: e.mono(t), Finish: wire.Finish{Handle: q.note.handle, Reason: ledger.FinishAbort, Output: uint32(q.of.Output())}})
	}
}

// reset keeps who was preempted by a reset for the next decision.
func (r *decisionRecorder) reset(e *Engine, lost []simulate.Preemption) {
	for _, p := range lost {
		r.preempted = append(r.preempted, r.preemption(e, p, wire.CauseReset))
	}
}

func (r *decisionRecorder) preemption(e *Engine, p simulate.Preemption, cause wire.PreemptionCause) wire.Preemption {
	q := e.sequences[p.Victim]
	q.note.kind, q.note.member = wire.JoinResumed, 0
	m := wire.Preemption{Victim: q.note.handle, Lost: uint32(p.Lost), Output: uint32(p.Output), Free: uint32(p.Free), Blocks: uint32(p.Blocks), Cause: cause}
	if p.Preemptor != nil {
		m.Preemptor = p.Preemptor.Number()
	}
	return m
}

// decided tells a decision.
func (r *decisionRecorder) decided(e *Engine, f *flight, t time.Duration) {
	e.log.flushFills(e, t)
	e.log.flushEvictions(e, t, f.iteration, len(f.Members) == 0)
	full := f.iteration%fullEvery == 1
	m := &r.scheduled
	*m = wire.Scheduled{Time: e.mono(t), Full: full, Iteration: f.iteration, Alias: f.iteration, Returned: e.mono(f.launched), Members: uint32(len(f.Members)),
		Running: uint32(e.scheduler.Running()), Waiting: uint32(e.scheduler.Waiting()), Free: uint32(e.scheduler.FreeBlocks()),
		TokenBudget: uint32(e.settings.MaxTokens), SeqBudget: uint32(e.settings.MaxSequences),
		Stop: f.Why.Stop, StopCode: f.Why.Code, Need: uint32(f.Why.Need), Preemptions: append(m.Preemptions[:0], r.preempted...),
		Joins: m.Joins[:0], Leaves: m.Leaves[:0], Changes: m.Changes[:0], Skips: m.Skips[:0], Holders: m.Holders[:0], Drafts: m.Drafts[:0]}
	r.preempted = r.preempted[:0]
	if f.Why.Head != nil {
		m.Head = f.Why.Head.Number()
	}
	for _, p := range f.Preempted {
		m.Preemptions = append(m.Preemptions, r.preemption(e, p, wire.CauseKVBlocks))
	}
	if full {
		r.restate(e, t, uint32(f.iteration/fullEvery%turns))
	}
	r.differences(f, full)
	r.skipped(f, full)
	if m.Stop == ledger.SkipKVBlocks && (full || r.stop != ledger.SkipKVBlocks) {
		for _, h := range e.scheduler.Holders(mostHolder) {
			m.Holders = append(m.Holders, wire.Holder{Handle: h.Sequence.Number(), Blocks: uint32(h.Blocks), Weight: float32(h.Weight)})
		}
	}
	r.stop = m.Stop
	e.scheduling.record(t, m)
}

// differences fills in who joined, who left, and whose tokens changed.
func (r *decisionRecorder) differences(f *flight, full bool) {
	m, last := &r.scheduled, f.iteration-1
	for i := range f.Members {
		d, q := &f.Members[i], f.who[i]
		n := &q.note
		m.Tokens += uint32(d.Tokens)
		if d.Drafts > 0 {
			m.Drafts = append(m.Drafts, wire.Draft{Handle: n.handle, Tokens: uint32(d.Drafts)})
		}
		stayed := n.member == last && last > 0
		switch {
		case stayed && !full && n.tokens != d.Tokens:
			m.Changes = append(m.Changes, wire.Change{Handle: n.handle, Tokens: uint32(d.Tokens)})
		case !stayed || full:
			if !stayed && (n.kind == wire.JoinNew || n.kind == wire.JoinResumed) {
				n.cached = d.Before
			}
			kind := wire.JoinContinued
			if !stayed {
				kind = n.kind
			}
			m.Joins = append(m.Joins, wire.Join{Handle: n.handle, Tokens: uint32(d.Tokens), Before: uint32(d.Before), Total: uint32(q.of.Tokens), Cached: uint32(n.cached), Kind: kind})
			n.kind = wire.JoinContinued
		}
		n.member, n.tokens = f.iteration, d.Tokens
		m.Digest ^= wire.Digest(n.handle)
	}
	if !full {
		for _, q := range r.members {
			if q.note.member != f.iteration {
				m.Leaves = append(m.Leaves, q.note.handle)
			}
		}
	}
	r.members = append(r.members[:0], f.who...)
}

// skipped lists who was left out for a reason of its own, if that has changed.
func (r *decisionRecorder) skipped(f *flight, full bool) {
	m := &r.scheduled
	for _, s := range f.Why.Skips {
		m.Skips = append(m.Skips, wire.SkipEntry{Handle: s.Sequence.Number(), Reason: s.Reason})
	}
	if m.SkipsListed = full || !slices.Equal(m.Skips, r.skips); m.SkipsListed {
		r.skips = append(r.skips[:0], m.Skips...)
	} else {
		m.Skips = m.Skips[:0]
	}
}

// restate tells a part of those that live again, for readers that came late.
func (r *decisionRecorder) restate(e *Engine, t time.Duration, turn uint32) {
	r.restated = r.restated[:0]
	for _, q := range e.sequences {
		if q.note.handle%turns == turn {
			r.restated = append(r.restated, q)
		}
	}
	slices.SortFunc(r.restated, func(a, b *sequence) int { return cmp.Compare(a.note.handle, b.note.handle) })
	for _, q := range r.restated {
		again := q.note.message
		again.Repeat = true
		e.scheduling.record(t, &again)
	}
}

// done tells a completion: what differs from one token for each member that reached the end of what was known of it.
func (r *decisionRecorder) done(e *Engine, f *flight, t, returned time.Duration) {
	e.log.flushFills(e, t)
	m := &r.completed
	*m = wire.Done{Time: e.mono(t), Iteration: f.iteration, Returned: e.mono(returned), Key: float64(e.mono(returned)) / 1e9, Tokens: uint32(f.emitted),
		Emits: m.Emits[:0], Finishes: m.Finishes[:0]}
	for i := range f.Members {
		d, q := &f.Members[i], f.who[i]
		due, sampled := 0, 0
		if d.Samples {
			due, sampled = 1, 1+d.Accepted
		}
		if discarded := max(sampled-d.Emitted, 0); d.Emitted != due || discarded > 0 {
			m.Emits = append(m.Emits, wire.Emit{Handle: q.note.handle, Tokens: uint16(d.Emitted), Discarded: uint16(discarded)})
		}
		if d.Emitted > 0 && q.of.Finished() {
			m.Finishes = append(m.Finishes, wire.Finish{Handle: q.note.handle, Reason: reasonOf(q), Output: uint32(q.of.Output())})
		}
	}
	for _, of := range f.Failed {
		m.Finishes = append(m.Finishes, wire.Finish{Handle: of.Number(), Reason: ledger.FinishError, Output: uint32(of.Output())})
	}
	e.scheduling.record(t, m)
}

// reasonOf is why a sequence ended by itself.
func reasonOf(q *sequence) ledger.FinishReason {
	if q.asks.Length > 0 && q.of.Output() >= q.asks.Length && q.of.Output() < q.asks.Max {
		return ledger.FinishStop
	}
	return ledger.FinishLength
}
