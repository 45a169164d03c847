// Package fidelity holds simulated decisions against those that a real engine made: decision by decision, by kind of difference, and
// beside the score of doing nothing. docs/fidelity.md says what was found.
package fidelity

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/experiment/simulate"
)

// Decided is one decision as an engine made it.
type Decided struct {
	Number    uint64
	Members   map[string]Share
	Preempted []string // for blocks; those of a reset are no part of the decision
	Left      bool     // somebody that was live was left out
	Running   int      // afterwards, as the next two
	Waiting   int
	Free      int // blocks
}

// Share is one member's part of a decision.
type Share struct {
	Tokens int
	Before int // computed before
	Drafts int // of Tokens
	Prompt int
}

// Score counts decisions that are as the engine's.
type Score struct {
	Decisions   int            `json:"decisions"`
	Right       int            `json:"right"`
	Nontrivial  int            `json:"nontrivial"`
	RightOfThem int            `json:"right_of_nontrivial"`
	Kinds       map[string]int `json:"differences,omitempty"` // by kind, where a right decision or a beginning was before
	Examples    []string       `json:"examples,omitempty"`
	wrong       bool           // the last one was
}

// maxExamples of a run are kept in words.
const maxExamples = 3

// Add counts a decision. kind and words say in what it differs; "" if in nothing.
func (s *Score) Add(number uint64, nontrivial bool, kind, words string) {
	s.Decisions++
	right := kind == ""
	if nontrivial {
		s.Nontrivial++
	}
	switch {
	case right:
		s.Right++
		if nontrivial {
			s.RightOfThem++
		}
	case !s.wrong:
		if s.Kinds == nil {
			s.Kinds = map[string]int{}
		}
		s.Kinds[kind]++
		if len(s.Examples) < maxExamples {
			s.Examples = append(s.Examples, fmt.Sprintf("iteration %d: %s: %s", number, kind, words))
		}
	}
	s.wrong = !right
}

// Sum adds the score of another run.
func (s *Score) Sum(o Score) {
	s.Decisions += o.Decisions
	s.Right += o.Right
	s.Nontrivial += o.Nontrivial
	s.RightOfThem += o.RightOfThem
	for kind, n := range o.Kinds {
		if s.Kinds == nil {
			s.Kinds = map[string]int{}
		}
		s.Kinds[kind] += n
	}
}

// Differs says in what a simulated decision is not the engine's: "" if in nothing.
func Differs(s *simulate.Scheduler, d *simulate.Decision, t *Decided) (kind, words string) {
	want, got := slices.Clone(t.Preempted), []string(nil)
	for _, p := range d.Preempted {
		got = append(got, p.Victim.ID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return "preempted", fmt.Sprintf("engine %v, simulated %v", want, got)
	}
	if len(d.Members) != len(t.Members) {
		return "members", fmt.Sprintf("engine %d, simulated %d", len(t.Members), len(d.Members))
	}
	for i := range d.Members {
		m := &d.Members[i]
		id := m.Sequence.ID
		e, in := t.Members[id]
		switch {
		case !in:
			return "members", fmt.Sprintf("the engine has no %s", id)
		case m.Joined && e.Before != m.Before:
			return "found in the cache", fmt.Sprintf("%s: engine %d, simulated %d", id, e.Before, m.Before)
		case e.Tokens != m.Tokens:
			return "tokens", fmt.Sprintf("%s: engine %d, simulated %d", id, e.Tokens, m.Tokens)
		case e.Before != m.Before:
			return "computed before", fmt.Sprintf("%s: engine %d, simulated %d", id, e.Before, m.Before)
		case e.Drafts != m.Drafts:
			return "drafts", fmt.Sprintf("%s: engine %d, simulated %d", id, e.Drafts, m.Drafts)
		}
	}
	want3, got3 := [3]int{t.Running, t.Waiting, t.Free}, [3]int{s.Running(), s.Waiting(), s.FreeBlocks()}
	if want3 != got3 {
		return "running, waiting, free blocks", fmt.Sprintf("engine %v, simulated %v", want3, got3)
	}
	return "", ""
}

// Repeats says in what a decision is not the last one again.
func Repeats(last, t *Decided) (kind, words string) {
	if last == nil || len(last.Members) != len(t.Members) || len(t.Preempted) > 0 {
		return "members", ""
	}
	for id, m := range t.Members {
		if before, in := last.Members[id]; !in || before.Tokens != m.Tokens {
			return "tokens", ""
		}
	}
	return "", ""
}

// Nontrivial says whether somebody joins, leaves, computes a part of a prompt, finds something in the cache, is preempted or left out.
func Nontrivial(last, t *Decided) bool {
	if last == nil || len(t.Preempted) > 0 || t.Left || len(last.Members) != len(t.Members) {
		return true
	}
	for id, m := range t.Members {
		if _, was := last.Members[id]; !was || m.Before < m.Prompt {
			return true
		}
	}
	return false
}
