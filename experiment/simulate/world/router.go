package world

// Router picks a replica for each attempt. It sees what a router sees: how many exchanges each replica has open, and the prompt's
// block hashes.
type Router interface {
	Pick(open []int, prefix []uint64) (replica int)
}

// RoundRobin takes each in turn.
func RoundRobin() Router { return &roundRobin{} }

type roundRobin struct{ next int }

func (r *roundRobin) Pick(open []int, _ []uint64) int {
	r.next++
	return (r.next - 1) % len(open)
}

// LeastLoaded takes the one with the fewest exchanges open, of equals the first.
func LeastLoaded() Router { return leastLoaded{} }

type leastLoaded struct{}

func (leastLoaded) Pick(open []int, _ []uint64) int { return least(open, 0) }

// least is the one with the fewest exchanges open, of equals the first from a place on.
func least(open []int, from int) int {
	best := from % len(open)
	for i := range open {
		if n := (from + i) % len(open); open[n] < open[best] {
			best = n
		}
	}
	return best
}

// PrefixAware sends a prompt to the replica that was sent the longest beginning of it last, unless that has so many exchanges more open
// than the least loaded one; whoever shares nothing goes to the least loaded, of equals to each in turn. It remembers the newest blocks only.
func PrefixAware(blocks, imbalance int) Router {
	return &prefixAware{sent: make(map[uint64]int, blocks), order: make([]uint64, 0, blocks), imbalance: imbalance}
}

type prefixAware struct {
	sent      map[uint64]int // block hash → replica
	order     []uint64       // of the hashes' first sending, in a circle
	oldest    int
	imbalance int
	turn      int
}

func (r *prefixAware) Pick(open []int, prefix []uint64) int {
	best := least(open, r.turn)
	r.turn++
	for i := len(prefix) - 1; i >= 0; i-- {
		if n, known := r.sent[prefix[i]]; known && n < len(open) {
			if open[n]-open[best] <= r.imbalance {
				best = n
			}
			break
		}
	}
	for _, h := range prefix {
		r.note(h, best)
	}
	return best
}

func (r *prefixAware) note(hash uint64, replica int) {
	if _, known := r.sent[hash]; !known {
		switch {
		case cap(r.order) == 0:
			return
		case len(r.order) < cap(r.order):
			r.order = append(r.order, hash)
		default:
			delete(r.sent, r.order[r.oldest])
			r.order[r.oldest] = hash
			r.oldest = (r.oldest + 1) % len(r.order)
		}
	}
	r.sent[hash] = replica
}
