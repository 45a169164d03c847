package ingest

import (
	"fmt"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// engine follows one scheduler: who is a member, who waits and why, which decisions are open. It does work in proportion to what
// changed: members in steady decode (one token an iteration) are carried as sums and are not touched at all.
type engine struct {
	a *Assembler
	s *source
	e *ledger.Engine

	members map[uint32]*member          // every sequence introduced by this scheduler and not finished
	known   map[uint32]*ledger.Sequence // those that have finished, too, until they are let go
	count   uint32                      // members of the newest decision
	digest  uint64                      // XOR of their marks, as on the wire
	steady  steady
	active  []*member                 // members not in steady decode
	waiting []*member                 // live and not members, in order of arrival
	fresh   []*member                 // queued since the newest decision
	aborted []*member                 // finished outside a completion since the book was last brought up to date
	mute    []*member                 // emitted nothing when their prefill ended, nor since
	gone    []*member                 // finished, and still members until the next decision says otherwise
	past    map[*ledger.Sequence]bool // let go, and still known as who sat beside those that are not

	stop      ledger.SkipReason
	stopCode  uint8
	head      *ledger.Sequence
	own       map[uint32]wire.SkipEntry // sequences skipped for a reason of their own
	uncertain bool                      // the membership is not known

	holes   uint64      // missing iterations that were given rows
	open    []*decision // decided and not done, oldest first
	lastEnd int64
}

// steady is what the members in steady decode add to every iteration.
type steady struct {
	n                            float64
	context                      float64 // Σ tokens computed before the next iteration
	logprobs, penalties, grammar float64
}

func (t *steady) add(q *ledger.Sequence, context uint32, sign float64) {
	t.n += sign
	t.context += sign * float64(context)
	if q.Logprobs >= 0 {
		t.logprobs += sign
	}
	if q.Features&ledger.FeaturePenalties != 0 {
		t.penalties += sign
	}
	if q.Features&ledger.FeatureGrammar != 0 {
		t.grammar += sign
	}
}

func (t *steady) work() ledger.Work {
	return ledger.Work{ledger.WorkDecodeSeqs: t.n, ledger.WorkDecodeContext: t.context,
		ledger.WorkLogprobRows: t.logprobs, ledger.WorkPenaltyRows: t.penalties, ledger.WorkGrammarRows: t.grammar}
}

// decision is an iteration that has been decided and is not done.
type decision struct {
	number uint64
	work   ledger.Work
	finals []*member // members whose prefill or recompute ends in it: they emit
	drafts []drafted
	known  bool // decision and membership
}

// drafted is a member with speculative tokens in a decision.
type drafted struct {
	k      *member
	tokens uint32
	stint  int // index of its stint
}

// member is a sequence as its scheduler knows it.
type member struct {
	seq    *ledger.Sequence
	handle uint32
	named  uint64 // iteration up to which its scheduler has named it
	in     bool   // a member of the newest decision
	steady bool
	phase  ledger.Phase
	tokens uint32 // scheduled in the newest decision
	before uint32 // computed before the next decision; for steady members: at since
	since  uint64 // the iteration at which a steady member had before
	total  uint32 // prompt and output tokens known when it last (re)joined
	redo   uint32 // tokens below this were computed before a preemption
	lost   uint64 // the newest decision in which it was preempted
	final  bool   // the newest decision ends its prefill
	away   bool   // preempted, not back yet
	// skipping says that the last of its skips is still going on.
	skipping bool
	ended    bool
	quiet    []uint64 // iterations in which it emitted nothing although it was due
	extra    int      // tokens emitted beyond one for each iteration in which it was due
}

// stintOf returns the stint that holds iteration i, nil if k was no member of it.
func (k *member) stintOf(i uint64) *ledger.Stint {
	for n := len(k.seq.Stints) - 1; n >= 0; n-- {
		if st := &k.seq.Stints[n]; st.First <= i {
			if i <= st.Last || k.in && n == len(k.seq.Stints)-1 {
				return st
			}
			break
		}
	}
	return nil
}

// due reports whether k should have emitted a token in iteration i, one whose successor has been decided or that is the newest.
func (k *member) due(i uint64) bool {
	st := k.stintOf(i)
	return st != nil && (st.Phase == ledger.Decode || st.Final && i == st.Last)
}

// lost is told that a record of this scheduler is missing or was refused.
func (g *engine) lost() { g.uncertain = true }

func (g *engine) queued(m *wire.Queued) error {
	if m.ID == "" {
		return fmt.Errorf("field id: empty")
	}
	t := g.s.clock.at
	if k := g.members[m.Handle]; k != nil {
		if k.seq.ID != m.ID {
			return fmt.Errorf("field handle: %d belongs to %s, not to %s: handles are never reused", m.Handle, k.seq.ID, m.ID)
		}
		k.named = g.current()
		return nil // a restatement, or a further chunk of a streaming session
	}
	q := g.a.sequence(g.s, m.ID)
	if q.Finished != 0 {
		return fmt.Errorf("field id: %s has finished", m.ID)
	}
	q.Engine = g.e
	q.Queued = t(m.Time)
	if m.Repeat && m.Time == 0 { // it was there before the recording began
		q.Queued = g.s.lastTime
	}
	if q.Arrived == 0 {
		q.Arrived = t(m.Arrived)
	}
	if m.External != "" {
		q.External = m.External
	}
	q.Prompt, q.Max, q.Priority, q.N = m.Prompt, m.Max, m.Priority, max(m.N, 1)
	q.Logprobs, q.PromptLogprobs, q.Features = m.Logprobs, m.PromptLogprobs, m.Features
	k := &member{seq: q, handle: m.Handle, total: m.Prompt, named: g.current()}
	g.members[m.Handle], g.known[m.Handle] = k, q
	g.e.Sequences = append(g.e.Sequences, q)
	g.waiting = append(g.waiting, k)
	g.fresh = append(g.fresh, k)
	return nil
}

func (g *engine) hashes(m *wire.Hashes) error {
	k := g.members[m.Handle]
	if k == nil {
		return unknownHandle(m.Handle)
	}
	if g.a.KeepHashes && int(m.First) == len(k.seq.BlockHashes) { // after a lost record the chain ends
		k.seq.BlockHashes = append(k.seq.BlockHashes, m.Hashes...)
	}
	k.seq.Hashes += len(m.Hashes)
	return nil
}

// cache takes what happened to blocks. Those that fill are kept in the capture; no question asks for them yet.
func (g *engine) cache(m *wire.Cache) error {
	if m.Kind == wire.CacheEvicted {
		g.e.Evictions = append(g.e.Evictions, ledger.Eviction{Iteration: g.current() + 1, At: g.s.clock.at(m.Time), Seq: g.known[m.Handle], Blocks: m.Blocks})
	}
	return nil
}

// finished takes an end outside a completion: an abort, an error, a shut-down. It counts once.
func (g *engine) finished(m *wire.Finished) error {
	k := g.members[m.Handle]
	if k == nil || k.ended {
		return unknownHandle(m.Handle)
	}
	g.end(k, g.s.clock.at(m.Time), m.Reason, m.Output)
	g.aborted = append(g.aborted, k)
	return nil
}

// end closes the life of a sequence. If it is a member now, its stint stays open until the next decision leaves it out.
func (g *engine) end(k *member, at int64, reason ledger.FinishReason, output uint32) {
	k.ended = true
	q := k.seq
	q.Finished = at
	if q.Reason == ledger.FinishUnknown || q.Reason == ledger.FinishAbort {
		q.Reason = reason
	}
	if output > 0 || q.Output == 0 {
		q.Output = output
	}
	delete(g.members, k.handle)
	if k.in {
		g.gone = append(g.gone, k)
		return
	}
	g.stopWaiting(k)
}

// current is the number of the newest decision, 0 before the first.
func (g *engine) current() uint64 { return g.e.Last() }

// who returns the sequence of a handle, nil if there is none.
func (g *engine) who(handle uint32) *ledger.Sequence {
	if k := g.members[handle]; k != nil {
		return k.seq
	}
	for _, k := range g.gone {
		if k.handle == handle {
			return k.seq
		}
	}
	return nil
}
