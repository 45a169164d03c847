package timing

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/ledger"
)

// A basis turns a shape into the amounts that an expected time is linear in. It is that of DESIGN §8 with one thing more: time need
// not grow evenly with the batch. Where graphs were seen, it steps up at each of their sizes; where none were, it bends at powers
// of two. All coefficients are ≥ 0 and all amounts grow with the work, so more work never takes less time.
type basis struct {
	graphs []Graph // in order of size, those of batches without prefill first
	steps  []int   // the sizes of graphs
	bends  []int   // of the number of sequences in decode, where there are no graphs
}

// Graph is a size at which an engine was seen to launch a captured graph.
type Graph struct {
	Size    int // tokens with padding
	Mode    ledger.GraphMode
	Prefill bool // of batches that compute tokens of prompts
}

// The first amounts of every basis. Those of work have the names of [ledger.WorkNames].
const (
	amountEmpty = ledger.NumWork     // 1 for an iteration that computes nothing
	amountEager = ledger.NumWork + 1 // 1 for a batch that no graph fits, of an engine that has graphs
	numFixed    = ledger.NumWork + 2
)

// launch is how a batch of this shape is launched: by the smallest graph that it fits in. One without prefill may use those of
// batches with prefill, too.
func (b *basis) launch(s *Shape) (mode ledger.GraphMode, padded int) {
	if len(b.graphs) == 0 || s.Tokens == 0 {
		return ledger.GraphUnknown, 0
	}
	for _, g := range b.graphs {
		if g.Size >= s.Tokens && (g.Prefill || s.Prefills == 0) {
			return g.Mode, g.Size
		}
	}
	return ledger.GraphNone, 0
}

func (b *basis) len() int { return numFixed + len(b.steps) + len(b.bends) }

// amounts writes the shape's amounts into x, which has the basis's length.
func (b *basis) amounts(x []float64, s *Shape) {
	clear(x)
	if s.Tokens == 0 {
		x[amountEmpty] = 1
		return
	}
	copy(x, s.Work[:])
	x[ledger.WorkIterations] = 1
	mode, size := b.launch(s)
	if mode == ledger.GraphNone {
		x[amountEager], size = 1, s.Tokens
	}
	rest := x[numFixed:]
	for i, at := range b.steps {
		if size >= at {
			rest[i] = 1
		}
	}
	rest = rest[len(b.steps):]
	for i, at := range b.bends {
		rest[i] = math.Min(s.Work[ledger.WorkDecodeSeqs], float64(at))
	}
}

// names are those of the amounts, in order.
func (b *basis) names() []string {
	names := append(slices.Clone(ledger.WorkNames[:]), "empty iterations", "without a graph")
	for _, at := range b.steps {
		names = append(names, fmt.Sprintf("graph of %d", at))
	}
	for _, at := range b.bends {
		names = append(names, fmt.Sprintf("decode sequences up to %d", at))
	}
	return names
}

// ofPrefill reports whether an amount is one that only prefill has.
func ofPrefill(amount int) bool {
	switch amount {
	case ledger.WorkPrefillTokens, ledger.WorkPrefillContext, ledger.WorkPrefillSeqs, ledger.WorkPromptLogprobs:
		return true
	}
	return false
}

// basisOf is the basis that suits what was observed.
func basisOf(seen []observation) basis {
	var b basis
	most := 1.0
	for i := range seen {
		o := &seen[i]
		most = max(most, o.shape.Work[ledger.WorkDecodeSeqs])
		if o.mode != ledger.GraphPiecewise && o.mode != ledger.GraphFull || o.padded < o.shape.Tokens {
			continue
		}
		g := Graph{Size: o.padded, Mode: o.mode, Prefill: o.shape.Prefills > 0}
		if !slices.ContainsFunc(b.graphs, func(have Graph) bool { return have.Size == g.Size && have.Prefill == g.Prefill }) {
			b.graphs = append(b.graphs, g)
		}
	}
	b.order()
	if len(b.graphs) == 0 {
		for at := 1; float64(at) < most; at *= 2 {
			b.bends = append(b.bends, at)
		}
	}
	return b
}

// order sorts the graphs and finds the steps they make. The smallest one is no step: all batches are at least that large.
func (b *basis) order() {
	slices.SortFunc(b.graphs, func(a, c Graph) int {
		if a.Prefill != c.Prefill {
			if a.Prefill {
				return 1
			}
			return -1
		}
		return cmp.Or(a.Size-c.Size, int(a.Mode)-int(c.Mode))
	})
	b.steps = nil
	for _, g := range b.graphs {
		b.steps = append(b.steps, g.Size)
	}
	slices.Sort(b.steps)
	b.steps = slices.Compact(b.steps)
	if len(b.steps) > 0 {
		b.steps = b.steps[1:]
	}
}
