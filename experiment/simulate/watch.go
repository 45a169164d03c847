package simulate

import "slices"

// Watcher is told what happens to the prefix cache, as it happens.
type Watcher interface {
	// Filled is told of full blocks of a sequence that may be found from now on: how many, from which on.
	Filled(q *Sequence, first, blocks int)
	// Evicted is told of a block that was given up for another use: the number of the sequence that held it last, and its hash.
	Evicted(last uint32, hash uint64)
}

// Watch lets w be told of the prefix cache from now on; nil ends it.
func (s *Scheduler) Watch(w Watcher) { s.watcher = w }

// Holder is one of those who hold the pool.
type Holder struct {
	Sequence *Sequence
	Blocks   int
	Weight   float64 // blocks, a shared one counted 1/references
}

// Holders are the running sequences that hold most blocks, the largest first.
func (s *Scheduler) Holders(most int) []Holder {
	var all []Holder
	for _, q := range s.running {
		h := Holder{Sequence: q, Blocks: len(q.Blocks), Weight: float64(len(q.Blocks))}
		for _, b := range q.Blocks {
			h.Weight -= 1 - 1/float64(s.pool.refs[b])
		}
		if h.Blocks > 0 {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b Holder) int { return b.Blocks - a.Blocks })
	return all[:min(len(all), most)]
}
