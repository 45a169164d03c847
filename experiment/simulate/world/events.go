package world

import "time"

// event is something that happens at a time; of equal times, what was planned first.
type event struct {
	at    time.Duration
	order uint64
	do    func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// agenda is what is planned: a binary heap.
type agenda struct {
	heap  []event
	order uint64
}

func (a *agenda) add(at time.Duration, do func()) {
	a.order++
	a.heap = append(a.heap, event{at, a.order, do})
	h, i := a.heap, len(a.heap)-1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// next takes what happens first.
func (a *agenda) next() (event, bool) {
	h := a.heap
	if len(h) == 0 {
		return event{}, false
	}
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	a.heap = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return first, true
		}
		if down+1 < last && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			return first, true
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}
