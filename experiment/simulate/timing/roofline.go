package timing

import (
	"time"

	"github.com/whylate/whylate/ledger"
)

// Roofline is a model reckoned from a [Preset] alone. Nothing of it was measured, so it answers in [Ratio]: how many times as long as a
// decode iteration of one sequence. Host, tail and gap are not known, and 0.
type Roofline struct {
	preset Preset
	one    float64 // the reference, s
}

// Model makes a model of a preset whose engine has a KV pool of the given size. It refuses a pool that does not fit.
func (p Preset) Model(blocks, blockSize int) (*Roofline, error) {
	if err := p.Fits(blocks, blockSize); err != nil {
		return nil, err
	}
	return &Roofline{p, p.one()}, nil
}

// one is what the data sheets give for the reference, s.
func (p *Preset) one() float64 {
	memory, compute := p.reckon(&Shape{Work: ledger.Work{ledger.WorkIterations: 1, ledger.WorkDecodeSeqs: 1}, Sequences: 1, Tokens: 1}, 1)
	return memory + compute
}

// Stretch is by how much the times of a workload, which are in seconds, are to be multiplied for a model that calls its reference one: the
// load is then as heavy as the data sheets have it.
func (p *Preset) Stretch() float64 { return RatioReference.Seconds() / p.one() }

// Unit is [Ratio].
func (r *Roofline) Unit() Unit { return Ratio }

// Iteration implements [Model].
func (r *Roofline) Iteration(_ time.Duration, s *Shape) Took {
	memory, compute := r.preset.reckon(s, s.Tokens)
	all := memory + compute
	if all == 0 {
		return Took{}
	}
	return Took{Device: seconds(all / r.one * RatioReference.Seconds()), Memory: memory / all}
}

func seconds(s float64) time.Duration { return time.Duration(min(s*1e9, longest)) }
