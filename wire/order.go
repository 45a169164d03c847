package wire

// maxHoles is how many holes of one source are remembered, to tell a frame that comes late from one that comes twice.
const maxHoles = 64

// order watches the sequence numbers of one source in a carrier that can lose, repeat and mix up frames.
type order struct {
	first uint64 // the sequence that the source began with; 0 = none yet
	last  uint64 // the highest one that was given or reported as missing
	holes []hole
}

// hole is a run of sequences that were reported as missing.
type hole struct{ from, to uint64 }

// admit takes note of a frame. It returns what is to be reported before it, if anything, and whether the frame itself is to
// be given: one that does not move on would count its event twice, or after its successors. lost is why frames are missing.
func (o *order) admit(sequence uint64, lost string) (gap *Gap, give bool) {
	switch {
	case o.first == 0:
		o.first = max(sequence, 1)
	case sequence < o.first:
		return missing(sequence, sequence, WhyOutOfOrder), false
	case sequence <= o.last:
		return &Gap{From: sequence, To: sequence, Why: o.whyAgain(sequence)}, false
	case sequence > o.last+1:
		gap = missing(o.last+1, sequence-1, lost)
		o.explain(gap)
	}
	o.last = sequence
	return gap, true
}

// whyAgain says what it means that a sequence comes that has been accounted for.
func (o *order) whyAgain(sequence uint64) string {
	for _, h := range o.holes {
		if h.from <= sequence && sequence <= h.to {
			return WhyOutOfOrder
		}
	}
	return WhyDuplicate
}

// explain takes note of sequences that were reported as missing, so that they are not reported again.
func (o *order) explain(g *Gap) {
	if g.Count == 0 || g.To <= o.last {
		return
	}
	if o.first == 0 {
		o.first = max(g.From, 1)
	}
	if len(o.holes) == maxHoles {
		o.holes = append(o.holes[:0], o.holes[1:]...)
	}
	o.holes = append(o.holes, hole{g.From, g.To})
	o.last = g.To
}
