package timing

import (
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/numeric"
	"github.com/whylate/whylate/ledger"
)

// A Calibration is what a ledger taught of an engine's time: what is expected of an iteration's work, and how far the real ones lay
// from it. It does not change once it is made, and any number of models may be drawn from it.
type Calibration struct {
	Provenance Provenance
	basis      basis
	expected   [numParts]coefficients
	kinds      []kind // by class, then by size
	stalls     []stall
}

// Provenance says where a calibration comes from and how good it is.
type Provenance struct {
	Engine   string   `json:"engine"` // "vllm 0.32.0"
	Model    string   `json:"model"`  // what it served
	Producer string   `json:"producer,omitempty"`
	From     uint64   `json:"from"` // first iteration
	To       uint64   `json:"to"`   // last one
	Depth    int      `json:"depth"`
	Device   bool     `json:"device"` // ranks had timed their device
	Rows     int      `json:"rows"`
	Prefill  int      `json:"prefill_rows"`
	Stalls   int      `json:"stalls"`
	Error    Accuracy `json:"error"` // learned on every other stretch of the rows, judged on those between
}

// class of an iteration: what it computes decides how its time spreads.
type class int

const (
	classEmpty class = iota
	classDecode
	classPrefill
	numClasses
)

var classNames = [numClasses]string{"empty", "decode", "prefill"}

func classOf(s *Shape) class {
	switch {
	case s.Tokens == 0:
		return classEmpty
	case s.Prefills > 0:
		return classPrefill
	}
	return classDecode
}

// size is what a class is divided by: the tokens of a batch with prefill, the sequences of one without.
func size(s *Shape) int {
	if s.Prefills > 0 {
		return s.Tokens
	}
	return s.Sequences
}

// kind is iterations of like shape. Their residuals lie in the order in which they happened: a part's real time divided by what was
// expected of it.
type kind struct {
	class     class
	from      int // the least size; it goes up to the next one's
	residuals [numParts][]float32
	medians   parts // of the residuals
}

func (k *kind) len() int { return len(k.residuals[0]) }

// stall is an iteration that took a multiple of what its work explains: what was too long in each part, in nanoseconds.
type stall struct {
	extra parts
	first first // what it was the first to carry; 0 = nothing, it came at random
}

// How many iterations a calibration needs, and how many it keeps.
const (
	MinRows  = 200 // with tokens
	MinClass = 20  // of them with prefill, and as many without
	MaxRows  = 1 << 15

	minKind     = 64  // iterations that a kind of its own needs
	stretch     = 64  // iterations in a row that are kept, or judged, together
	stallFactor = 4   // times what was expected
	stallExcess = 2e6 // and at least so much longer, ns
)

// Calibrate learns from the iterations of e for which use returns true. With fewer than it needs, the error says how many there are.
// It fits by itself: what will judge a simulated run (account.Fit) has no part in making it.
func Calibrate(e *ledger.Engine, use func(n uint64) bool) (*Calibration, error) {
	seen := observe(e, use)
	if err := enough(e, seen); err != nil {
		return nil, err
	}
	seen = thin(seen)
	c := learn(seen)
	c.Provenance.of(e, seen)
	learned, judged := alternate(seen)
	if tooFew(learned) == nil {
		c.Provenance.Error = learn(learned).judge(e, judged)
	}
	return c, nil
}

// enough checks that there is enough to learn from.
func enough(e *ledger.Engine, seen []observation) error {
	if err := tooFew(seen); err != nil {
		return fmt.Errorf("timing: engine %s: %w: record a longer run, under the load that is to be simulated", e.ID, err)
	}
	return nil
}

func tooFew(seen []observation) error {
	var counts [numClasses]int
	for i := range seen {
		counts[classOf(&seen[i].shape)]++
	}
	decode, prefill := counts[classDecode], counts[classPrefill]
	if decode+prefill < MinRows || decode < MinClass || prefill < MinClass {
		return fmt.Errorf("%d iterations without prefill and %d with are wholly known; a calibration needs %d in all, at least %d of each",
			decode, prefill, MinRows, MinClass)
	}
	return nil
}

// thin keeps at most MaxRows, in stretches spread evenly over the run.
func thin(seen []observation) []observation {
	every := (len(seen) + MaxRows - 1) / MaxRows
	if every <= 1 {
		return seen
	}
	var kept []observation
	for i := 0; i < len(seen); i += every * stretch {
		kept = append(kept, seen[i:min(i+stretch, len(seen))]...)
	}
	return kept
}

// Alternate is true of every other stretch of iterations, and parts a run such that both sides saw the same machine.
func Alternate(n uint64) bool { return n/stretch%2 == 0 }

// alternate parts what was seen so.
func alternate(seen []observation) (even, odd []observation) {
	for _, o := range seen {
		if Alternate(o.number) {
			even = append(even, o)
		} else {
			odd = append(odd, o)
		}
	}
	return even, odd
}

// of fills in what the engine tells.
func (p *Provenance) of(e *ledger.Engine, seen []observation) {
	p.Engine, p.Model, p.Producer, p.Depth = e.Name+" "+e.Version, e.Model(), e.Producer, max(e.Depth, 1)
	p.From, p.To = seen[0].number, seen[len(seen)-1].number
	for i := range seen {
		if it := e.Row(seen[i].number); it.Execution != nil && it.Execution.Device > 0 {
			p.Device = true
		}
	}
}

// learn fits what is expected, and keeps what is not.
func learn(seen []observation) *Calibration {
	c := &Calibration{basis: basisOf(seen)}
	xs := make([][]float64, len(seen))
	for i := range seen {
		xs[i] = make([]float64, c.basis.len())
		c.basis.amounts(xs[i], &seen[i].shape)
	}
	for p := range c.expected {
		var rows []sample
		for i := range seen {
			if y := seen[i].took[p]; !math.IsNaN(y) {
				rows = append(rows, sample{xs[i], y, classOf(&seen[i].shape)})
			}
		}
		c.expected[p] = fit(rows, c.basis.len())
	}
	c.keep(seen, xs)
	return c
}

// keep sorts the residuals by kind and the stalls out of them.
func (c *Calibration) keep(seen []observation, xs [][]float64) {
	c.kinds = kindsOf(seen)
	last := make([]parts, len(c.kinds)) // of each kind: what stands in for a part that is not known, or was stalled
	for k := range last {
		last[k] = parts{1, 1, 1, 1}
	}
	for i := range seen {
		o, k := &seen[i], c.kindOf(&seen[i].shape)
		var expected, factor parts
		for p := range expected {
			expected[p] = c.expected[p].expect(xs[i])
			if factor[p] = last[k][p]; !math.IsNaN(o.took[p]) && expected[p] > 0 {
				factor[p] = o.took[p] / expected[p]
			}
		}
		if stalled(o.took.total(), expected.total()) {
			s := stall{first: o.first}
			for p := range factor[:partGap] {
				s.extra[p] = math.Round(max(o.took[p]-expected[p]*last[k][p], 0))
				factor[p] = last[k][p]
			}
			c.stalls = append(c.stalls, s)
		}
		last[k] = factor
		for p := range factor {
			c.kinds[k].residuals[p] = append(c.kinds[k].residuals[p], float32(factor[p]))
		}
	}
	c.settle()
	c.Provenance.Rows, c.Provenance.Stalls = len(seen), len(c.stalls)
	for i := range seen {
		if seen[i].shape.Prefills > 0 {
			c.Provenance.Prefill++
		}
	}
}

// settle reckons what follows from the residuals.
func (c *Calibration) settle() {
	for i := range c.kinds {
		for p, factors := range c.kinds[i].residuals {
			c.kinds[i].medians[p] = numeric.Quantile(wide(factors), 0.5)
		}
	}
}

func wide(xs []float32) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = float64(x)
	}
	return out
}

// kindsOf divides each class at powers of two, as finely as leaves minKind iterations in each.
func kindsOf(seen []observation) []kind {
	var counts [numClasses][32]int
	for i := range seen {
		s := &seen[i].shape
		counts[classOf(s)][bits(size(s))]++
	}
	var kinds []kind
	for class := range numClasses {
		total, n, from := 0, 0, 0
		for _, count := range counts[class] {
			total += count
		}
		if total == 0 {
			continue
		}
		for bit, count := range counts[class] {
			n, total = n+count, total-count
			if n >= minKind && total >= minKind || bit == len(counts[class])-1 {
				kinds = append(kinds, kind{class: class, from: from})
				n, from = 0, 1<<bit
			}
		}
	}
	return kinds
}

// bits is the number of the power of two that size goes up to: 1 → 0, 2 → 1, 3 and 4 → 2.
func bits(size int) int {
	b := 0
	for ; 1<<b < size && b < 30; b++ {
	}
	return b
}

// kindOf is the index of a shape's kind; a shape of which nothing like was seen goes by what is nearest.
func (c *Calibration) kindOf(s *Shape) int {
	class, size := classOf(s), size(s)
	at := -1
	for i := range c.kinds {
		if k := &c.kinds[i]; k.class == class && (at < 0 || size > k.from) {
			at = i
		}
	}
	if at < 0 { // no iteration was empty: one is like those with the least to do
		at = slices.IndexFunc(c.kinds, func(k kind) bool { return k.class == classDecode })
	}
	return at
}
