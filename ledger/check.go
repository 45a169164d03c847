package ledger

import "fmt"

// Violation is a book that does not balance: which invariant of DESIGN §5, where, and what was found.
type Violation struct {
	Invariant int
	Engine    EngineID
	Iteration uint64 // 0 if it is about no single iteration
	Sequence  string // internal id, "" if it is about no single sequence
	At        int64
	Found     string
}

// String names the rule, the place and the finding.
func (v Violation) String() string {
	s := fmt.Sprintf("invariant %d", v.Invariant)
	if v.Iteration != 0 {
		s += fmt.Sprintf(", iteration %d", v.Iteration)
	}
	if v.Sequence != "" {
		s += ", sequence " + v.Sequence
	}
	return s + ": " + v.Found
}

// maxViolations bounds what one call of Check returns: a book that is wrong throughout is told in as many lines.
const maxViolations = 100

// Check tests whether an engine's books balance (DESIGN §5, invariants 1 to 4), in time proportional to its rows and
// stints. Iterations of which records are missing are exempt: they are told by gap records, not by this.
func Check(e *Engine) []Violation {
	c := checker{e: e, unknown: make([]int, len(e.Iterations)+1)}
	for i := range e.Iterations {
		c.unknown[i+1] = c.unknown[i]
		if e.Iterations[i].Known&(KnownMembers|KnownDecision) != KnownMembers|KnownDecision {
			c.unknown[i+1]++
		}
	}
	c.tokens()
	for _, q := range e.Sequences {
		c.sequence(q)
	}
	c.order()
	return c.found
}

type checker struct {
	e       *Engine
	unknown []int // rows before index i whose decision or membership is not known
	found   []Violation
}

func (c *checker) add(v Violation) {
	if len(c.found) < maxViolations {
		v.Engine = c.e.ID
		c.found = append(c.found, v)
	}
}

// tokens tests invariant 1: an iteration's scheduled tokens equal the sum over its members. Members with one token an
// iteration are added as differences at both ends of their stint.
func (c *checker) tokens() {
	n := len(c.e.Iterations)
	tokens, members := make([]int64, n+1), make([]int64, n+1)
	extra := make([]int64, n+1) // tokens of members that carry a list
	at := func(i uint64) int { return int(min(max(i, c.e.First)-c.e.First, uint64(n))) }
	for _, q := range c.e.Sequences {
		for k := range q.Stints {
			s := &q.Stints[k]
			first, after := at(s.First), at(s.Last+1)
			members[first]++
			members[after]--
			if s.Tokens == nil {
				tokens[first]++
				tokens[after]--
				continue
			}
			for j, t := range s.Tokens {
				if i := at(s.First + uint64(j)); i < n && s.First+uint64(j) <= s.Last {
					extra[i] += int64(t)
				}
			}
		}
	}
	var steady, count int64
	for i := range c.e.Iterations {
		it := &c.e.Iterations[i]
		steady += tokens[i]
		count += members[i]
		if it.Known&KnownMembers == 0 || it.Known&KnownDecision == 0 {
			continue
		}
		if sum := steady + extra[i]; sum != int64(it.Tokens) || count != int64(it.Members) {
			c.add(Violation{Invariant: 1, Iteration: it.Number, At: it.Decided,
				Found: fmt.Sprintf("%d tokens in %d members scheduled, but its members add up to %d in %d", it.Tokens, it.Members, sum, count)})
		}
	}
}

// sequence tests invariants 2 and 3 for one sequence.
func (c *checker) sequence(q *Sequence) {
	if !c.whole(q) {
		return
	}
	var prefilled uint64
	for k := range q.Stints {
		s := &q.Stints[k]
		if s.Phase == Prefill {
			prefilled += s.Sum()
			for _, d := range s.Drafts { // an admission may be padded with drafts, which are no prompt
				prefilled -= uint64(d)
			}
		}
		if s.Last < s.First || s.Tokens != nil && uint64(len(s.Tokens)) != s.Last-s.First+1 {
			c.add(Violation{Invariant: 3, Iteration: s.First, Sequence: q.ID, Found: fmt.Sprintf("stint of iterations %d to %d with %d token counts", s.First, s.Last, len(s.Tokens))})
		}
	}
	if q.FirstEmit != 0 && len(q.Preemptions) == 0 && q.Features&FeatureStreaming == 0 && uint64(q.Prompt) != uint64(q.Cached)+prefilled {
		c.add(Violation{Invariant: 2, Sequence: q.ID, At: q.FirstToken,
			Found: fmt.Sprintf("%d prompt tokens, but %d from cache and %d computed", q.Prompt, q.Cached, prefilled)})
	}
	c.tiling(q)
}

// whole reports whether all iterations of the sequence's life are known; only then can its books be held against it.
func (c *checker) whole(q *Sequence) bool {
	from, to := q.Join, q.Leave
	if n := len(q.Skips); n > 0 {
		if from == 0 || q.Skips[0].First < from {
			from = q.Skips[0].First
		}
		to = max(to, q.Skips[n-1].Last)
	}
	if from == 0 {
		return true
	}
	if c.e.Row(from) == nil || c.e.Row(to) == nil {
		return false
	}
	return c.unknown[to-c.e.First+1] == c.unknown[from-c.e.First]
}

// tiling tests invariant 3: stints and skips touch and do not overlap.
func (c *checker) tiling(q *Sequence) {
	var next uint64
	i, j := 0, 0
	for i < len(q.Stints) || j < len(q.Skips) {
		var first, last uint64
		if j == len(q.Skips) || i < len(q.Stints) && q.Stints[i].First < q.Skips[j].First {
			first, last = q.Stints[i].First, q.Stints[i].Last
			i++
		} else {
			first, last = q.Skips[j].First, q.Skips[j].Last
			j++
		}
		if next != 0 && first != next {
			c.add(Violation{Invariant: 3, Iteration: first, Sequence: q.ID, Found: fmt.Sprintf("a run begins at iteration %d, the one before it ends at %d", first, next-1)})
			return
		}
		next = last + 1
	}
}

// order tests invariant 4: a decision precedes its completion, completions follow launch order, and no more than depth
// decisions are open at once.
func (c *checker) order() {
	var end int64
	depth := max(c.e.Depth, 1)
	for i := range c.e.Iterations {
		it := &c.e.Iterations[i]
		if it.Known&KnownDecision != 0 && it.Known&KnownCompletion != 0 && it.Completed < it.Decided {
			c.add(Violation{Invariant: 4, Iteration: it.Number, At: it.Decided, Found: fmt.Sprintf("done %d ns before it was decided", it.Decided-it.Completed)})
		}
		if it.End != 0 && it.End < end {
			c.add(Violation{Invariant: 4, Iteration: it.Number, At: it.End, Found: "ended before the iteration before it"})
		}
		end = max(end, it.End)
		if i >= depth && it.Known&KnownDecision != 0 {
			if old := &c.e.Iterations[i-depth]; old.Known&KnownCompletion != 0 && old.Completed > it.Decided {
				c.add(Violation{Invariant: 4, Iteration: it.Number, At: it.Decided, Found: fmt.Sprintf("decided while %d decisions were open, %d is the engine's depth", depth+1, depth)})
			}
		}
	}
}
