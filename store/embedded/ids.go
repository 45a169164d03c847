package embedded

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// extraID is how many bytes of an id are kept beyond what tells it from its neighbours: an id that is not here at all is then mostly
// refused by the index alone.
const extraID = 3

// index makes what requests are found with.
func (c *content) index(requests []*ledger.Request) {
	c.ids, c.filter = indexIDs(requests), filterOf(requests)
}

// indexIDs makes the index of the requests' ids: sorted, each cut to what tells it from its neighbours and a little more. Whether a
// request really has an id is seen in its own row.
func indexIDs(requests []*ledger.Request) []store.IDRow {
	var all []store.IDRow
	for i, r := range requests {
		for _, id := range r.IDs() {
			all = append(all, store.IDRow{ID: id, Request: int32(i)})
		}
	}
	return cutIDs(all)
}

func cutIDs(all []store.IDRow) []store.IDRow {
	slices.SortFunc(all, func(a, b store.IDRow) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Request, b.Request))
	})
	keep := make([]int, len(all))
	for i := range all {
		keep[i] = extraID
		if i > 0 {
			n := common(all[i-1].ID, all[i].ID)
			keep[i] = max(keep[i], n+1+extraID)
			keep[i-1] = max(keep[i-1], n+1+extraID)
		}
	}
	for i := range all {
		all[i].ID = all[i].ID[:min(len(all[i].ID), keep[i])]
	}
	// One request's ids often share a beginning, and are then one entry.
	return slices.CompactFunc(all, func(a, b store.IDRow) bool { return a == b })
}

// common is the length of the longest common beginning.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
