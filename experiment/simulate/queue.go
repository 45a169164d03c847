package simulate

import (
	"slices"
	"sort"
)

// queue is a line of sequences: first come first served, or by priority, where there is no front to be put at.
type queue struct {
	line       []*Sequence
	byPriority bool
}

func (q *queue) push(s *Sequence) {
	if !q.byPriority {
		q.line = append(q.line, s)
		return
	}
	i := sort.Search(len(q.line), func(i int) bool { return before(s, q.line[i]) })
	q.line = slices.Insert(q.line, i, s)
}

// pushFront puts sequences ahead of all others, in their order.
func (q *queue) pushFront(all ...*Sequence) {
	if !q.byPriority {
		q.line = slices.Insert(q.line, 0, all...)
		return
	}
	for _, s := range all {
		q.push(s)
	}
}

func (q *queue) pop() {
	q.line[0] = nil
	q.line = q.line[1:]
}

func (q *queue) remove(s *Sequence) {
	if i := slices.Index(q.line, s); i >= 0 {
		q.line = slices.Delete(q.line, i, i+1)
	}
}
