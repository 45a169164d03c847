package simulate

import "fmt"

// State is all that a scheduler's next decision depends on, beside its rules and settings.
type State struct {
	Step    int
	Paused  Pause
	Running []*Sequence // with Progress
	Waiting []*Sequence
	Held    []*Sequence // who was passed over, where they have a line of their own
	Free    []int32     // in the order of their use
	Cached  []CachedHash
}

// CachedHash is what the prefix cache knows under one hash.
type CachedHash struct {
	Hash   uint64
	Blocks []int32 // in the order in which they were cached
}

// Restore returns a scheduler in a state that was seen somewhere else. A state that no scheduler can be in is an error.
func Restore(r Rules, s Settings, from State) (*Scheduler, error) {
	made, err := New(r, s)
	if err != nil {
		return nil, err
	}
	made.step, made.paused = from.Step, from.Paused
	p := made.pool
	p.next[0], p.prev[0], p.free = 0, 0, 0
	seen := make([]bool, s.Blocks)
	for _, b := range from.Free {
		if b < 1 || int(b) >= s.Blocks || seen[b] {
			return nil, fmt.Errorf("simulate: state: free block %d: outside of the pool of %d blocks, or there twice", b, s.Blocks)
		}
		seen[b] = true
		p.append(b)
	}
	for _, list := range [][]*Sequence{from.Running, from.Waiting, from.Held} {
		for _, q := range list {
			for _, b := range q.Blocks {
				if b < 1 || int(b) >= s.Blocks || seen[b] {
					return nil, fmt.Errorf("simulate: state: sequence %q holds block %d, which is free or outside of the pool of %d blocks", q.ID, b, s.Blocks)
				}
				p.refs[b]++
			}
		}
	}
	for _, c := range from.Cached {
		for _, b := range c.Blocks {
			if b < 1 || int(b) >= s.Blocks {
				return nil, fmt.Errorf("simulate: state: block %d is cached, and outside of the pool of %d blocks", b, s.Blocks)
			}
			p.cache(b, c.Hash)
		}
	}
	for _, q := range from.Running {
		q.state = running
	}
	made.running = from.Running
	made.waiting.line, made.held.line = from.Waiting, from.Held
	return made, made.Check()
}

// NewSequence returns a sequence for a State.
func NewSequence(r Request, p Progress) *Sequence {
	q := &Sequence{Request: r, Progress: p}
	if r.Grammar {
		q.grammar = grammarCompiling
	}
	return q
}
