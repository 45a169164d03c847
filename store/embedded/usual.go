package embedded

import (
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// usual are the stints of a sequence that ran as most do: its whole prompt, or what of it was not cached, in the first iteration, and from
// then on one token in each. They follow from its row, and where they are all that there is they are not written.
func usual(r *store.SequenceRow, row int32) []store.StintRow {
	if r.Join == 0 || r.Leave < r.Join {
		return nil
	}
	prefill := store.StintRow{Engine: r.Engine, Sequence: row, Phase: int32(ledger.Prefill), First: r.Join, Iterations: 1, Before: r.Cached, Final: true}
	if n := r.Prompt - r.Cached; n != 1 {
		prefill.Tokens = []int32{n}
	}
	out := []store.StintRow{prefill}
	if n := r.Leave - r.Join; n > 0 {
		out = append(out, store.StintRow{Engine: r.Engine, Sequence: row, Phase: int32(ledger.Decode), First: r.Join + 1, Iterations: int32(n), Before: r.Prompt})
	}
	return out
}

// omitUsual leaves out the stints of the last sequence if they are the usual ones.
func (c *content) omitUsual(r *store.SequenceRow, row int32) {
	if slices.EqualFunc(c.stints[r.StintRow:], usual(r, row), sameStint) {
		r.Usual = true
		c.stints = c.stints[:r.StintRow]
	}
}

func sameStint(a, b store.StintRow) bool {
	return a.Engine == b.Engine && a.Sequence == b.Sequence && a.Phase == b.Phase && a.First == b.First && a.Iterations == b.Iterations && a.Before == b.Before &&
		a.Final == b.Final && slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Drafts, b.Drafts) && slices.Equal(a.Rejected, b.Rejected)
}

// spelt returns the stints with the usual ones, and the sequences pointing to them.
func spelt(sequences []store.SequenceRow, stints []store.StintRow) ([]store.SequenceRow, []store.StintRow) {
	var all []store.StintRow
	for i := range sequences {
		r := &sequences[i]
		mine := stints[min(int(r.StintRow), len(stints)):min(int(r.StintRow+r.Stints), len(stints))]
		if r.Usual {
			mine = usual(r, int32(i))
		}
		r.StintRow, r.Stints, r.Usual = int32(len(all)), int32(len(mine)), false
		all = append(all, mine...)
	}
	return sequences, all
}
