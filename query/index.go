package query

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/ledger"
)

// index finds requests by any of their ids, or by the beginning of one. It grows with a live book: what is new is kept aside and
// merged into the sorted part now and then, so that adding costs little and finding stays a binary search.
type index struct {
	sorted []idEntry
	recent []idEntry
	gone   int                     // entries, about, of requests that were let go
	seen   map[*ledger.Request]int // ids indexed so far; a request may get more as more sources speak of it
	open   map[*ledger.Request]bool
}

type idEntry struct {
	id string
	r  *ledger.Request
}

// recentMax is how many ids may be looked through one by one.
const recentMax = 4096

// refresh takes up the requests that are new, and the new ids of those whose exchange was still open.
func (x *index) refresh(requests []*ledger.Request) {
	if x.seen == nil || len(requests) < len(x.seen) { // another book
		*x = index{seen: make(map[*ledger.Request]int, len(requests)), open: map[*ledger.Request]bool{}}
	}
	for r := range x.open {
		x.add(r)
	}
	for i := len(requests) - 1; i >= 0; i-- { // new ones stand mostly at the end
		r := requests[i]
		if _, known := x.seen[r]; known {
			if len(x.seen) == len(requests) {
				break
			}
			continue
		}
		x.add(r)
	}
	if len(x.recent) > max(recentMax, len(x.sorted)/16) || x.gone > max(recentMax, len(x.sorted)/2) {
		x.sorted = slices.DeleteFunc(append(x.sorted, x.recent...), func(e idEntry) bool { return !x.has(e.r) })
		slices.SortStableFunc(x.sorted, func(a, b idEntry) int { return cmp.Compare(a.id, b.id) })
		x.recent, x.gone = nil, 0
	}
}

// has reports whether a request has not been let go.
func (x *index) has(r *ledger.Request) bool {
	_, ok := x.seen[r]
	return ok
}

// forget lets go of requests. Their entries are passed over until there are many.
func (x *index) forget(requests []*ledger.Request) {
	for _, r := range requests {
		x.gone += x.seen[r]
		delete(x.seen, r)
		delete(x.open, r)
	}
}

func (x *index) add(r *ledger.Request) {
	ids := r.IDs()
	if n := x.seen[r]; n != len(ids) { // the order may have changed with the number: a doubled entry does no harm
		for _, id := range ids {
			x.recent = append(x.recent, idEntry{id, r})
		}
	}
	x.seen[r] = len(ids)
	if r.Received != 0 && r.LastByte == 0 || len(r.Sequences) == 0 {
		x.open[r] = true
	} else {
		delete(x.open, r)
	}
}

// find returns the requests that have the id, and those that have one that begins with it.
func (x *index) find(id string) (exact, prefix []*ledger.Request) {
	if id == "" {
		return nil, nil
	}
	take := func(e idEntry) bool {
		if !strings.HasPrefix(e.id, id) {
			return false
		}
		if !x.has(e.r) {
			return true
		}
		if e.id == id && !slices.Contains(exact, e.r) {
			exact = append(exact, e.r)
		}
		if !slices.Contains(prefix, e.r) {
			prefix = append(prefix, e.r)
		}
		return true
	}
	from, _ := slices.BinarySearchFunc(x.sorted, id, func(e idEntry, id string) int { return cmp.Compare(e.id, id) })
	for _, e := range x.sorted[from:] {
		if !take(e) || len(prefix) > maxMatches {
			break
		}
	}
	for _, e := range x.recent {
		take(e)
	}
	return exact, prefix
}

// maxMatches bounds how many requests an ambiguous beginning is matched with: a person needs no more to give more of it.
const maxMatches = 1000
