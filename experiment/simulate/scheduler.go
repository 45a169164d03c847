package simulate

import (
	"fmt"
	"slices"
)

// Pause is how far a scheduler is held.
type Pause uint8

const (
	Unpaused  Pause = iota
	PausedNew       // nobody is admitted
	PausedAll       // nobody runs
)

// Scheduler is one engine's. It is not safe for concurrent use.
type Scheduler struct {
	rules    Rules
	settings Settings
	pool     *pool

	running []*Sequence
	waiting queue
	held    queue // without Rules.DeferredInFront: who was passed over
	step    int
	arrived uint32
	paused  Pause
	failed  []*Sequence // of a grammar, found by the last decisions

	watcher Watcher

	hits        []int32 // scratch of a decision
	passed      []*Sequence
	idle, aside []Skip // of those that run and get nothing, and of those that were passed over in line
	adapters    []int
}

// New returns a scheduler that nothing has arrived at.
func New(r Rules, s Settings) (*Scheduler, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Scheduler{rules: r, settings: s, pool: newPool(s.Blocks, r.UncachedFirst), waiting: queue{byPriority: s.Priorities}, held: queue{byPriority: s.Priorities}}, nil
}

// Add puts a request in line.
func (s *Scheduler) Add(r Request) (*Sequence, error) {
	if r.Prompt < 1 || r.Max < 1 || r.Length < 0 {
		return nil, fmt.Errorf("simulate: request %q: %d tokens of prompt, %d of output at most, ending after %d: a prompt and an output have at least one token", r.ID, r.Prompt, r.Max, r.Length)
	}
	if r.Prompt > s.settings.MaxLength {
		return nil, fmt.Errorf("simulate: request %q: a prompt of %d tokens; the engine takes %d", r.ID, r.Prompt, s.settings.MaxLength)
	}
	if most := (r.Prompt + r.Max) / s.settings.BlockSize; len(r.Hashes) > most {
		return nil, fmt.Errorf("simulate: request %q: %d block hashes; a prompt of %d tokens and an output of at most %d fill %d blocks", r.ID, len(r.Hashes), r.Prompt, r.Max, most)
	}
	s.arrived++
	q := &Sequence{Request: r, number: s.arrived}
	q.Tokens = r.Prompt
	if r.Grammar {
		q.grammar = grammarCompiling
	}
	if r.Grammar && !s.rules.DeferredInFront {
		s.held.push(q)
	} else {
		s.waiting.push(q)
	}
	return q, nil
}

// GrammarReady ends the wait of a request for its grammar.
func (s *Scheduler) GrammarReady(q *Sequence) { q.grammar = grammarNone }

// GrammarFailed lets a request end once a decision has found that its grammar does not compile.
func (s *Scheduler) GrammarFailed(q *Sequence) { q.grammar = grammarFailed }

// Pause holds the scheduler, or lets it go.
func (s *Scheduler) Pause(p Pause) { s.paused = p }

// Draft offers tokens for the next iteration of a running sequence. While it is in its prompt, none are taken.
func (s *Scheduler) Draft(q *Sequence, tokens int) {
	if q.Drafts = tokens; q.Prefilling {
		q.Drafts = 0
	}
}

// Abort ends a sequence from outside. One that is over already stays so.
func (s *Scheduler) Abort(q *Sequence) {
	if q.state == finished {
		return
	}
	s.leave(q)
	s.finish(q)
}

// Reset preempts everybody and empties the prefix cache. It returns who was preempted.
func (s *Scheduler) Reset() (preempted []Preemption) {
	for n := len(s.running) - 1; n >= 0; n-- {
		q := s.running[n]
		s.running = s.running[:n]
		placeholders := q.Placeholders
		preempted = append(preempted, s.lossOf(q))
		s.preempt(q, true)
		q.Placeholders = 0
		switch {
		case s.rules.HoldStale || !s.settings.Asynchronous:
		case s.rules.DiscardOne:
			q.Discard = 1
		default:
			q.Discard = placeholders
		}
	}
	s.pool.forgetAll()
	return preempted
}

// Running and Waiting count sequences, FreeBlocks the blocks that nobody holds.
func (s *Scheduler) Running() int    { return len(s.running) }
func (s *Scheduler) Waiting() int    { return len(s.waiting.line) + len(s.held.line) }
func (s *Scheduler) FreeBlocks() int { return s.pool.free }

// Each calls a function with every running sequence, in order.
func (s *Scheduler) Each(do func(*Sequence)) {
	for _, q := range s.running {
		do(q)
	}
}

// leave takes a sequence out of the list it is in.
func (s *Scheduler) leave(q *Sequence) {
	if q.state == running {
		s.running = slices.DeleteFunc(s.running, func(other *Sequence) bool { return other == q })
		return
	}
	s.waiting.remove(q)
	s.held.remove(q)
}

func (s *Scheduler) finish(q *Sequence) {
	q.state = finished
	s.release(q)
}

// lossOf is what a preemption takes from a sequence.
func (s *Scheduler) lossOf(q *Sequence) Preemption {
	return Preemption{Victim: q, Lost: q.Computed, Output: q.Output(), Free: s.pool.free, Blocks: len(q.Blocks)}
}

func (s *Scheduler) release(q *Sequence) {
	s.pool.release(q.number, q.Blocks)
	q.Blocks, q.Cached = q.Blocks[:0], 0
}

// preempt takes all blocks from a sequence that has left the running list, and puts it first in line.
func (s *Scheduler) preempt(q *Sequence, drop bool) {
	s.release(q)
	q.state = waiting
	q.Computed, q.Drafts = 0, 0
	if s.rules.HoldStale {
		q.Drop = drop || q.Drop && q.Stale > 0
		q.Stale, q.Placeholders = q.InFlight, 0
	}
	s.waiting.pushFront(q)
}
