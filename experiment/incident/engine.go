package incident

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ledger"
)

// Engine is what an incident is played on. The catalogue's loads are made for the engine of the built-in demo: of a larger one they are
// larger in proportion.
type Engine struct {
	Name     string
	Version  string // of vLLM
	Settings map[string]any
	Model    func(seed uint64) timing.Model
	Tokens   float64 // the prompts of the catalogue are so many times as long
}

// Calibrated is an engine as a ledger has it: its settings, and its times in milliseconds.
func Calibrated(e *ledger.Engine) (Engine, error) {
	c, err := timing.Calibrate(e, func(uint64) bool { return true })
	if err != nil {
		return Engine{}, err
	}
	_, s, err := simulate.FromHello(e.Version, e.Settings)
	if err != nil {
		return Engine{}, err
	}
	settings := maps.Clone(e.Settings)
	settings["model"], settings["served_model"] = "simulated", "simulated"
	name := fmt.Sprintf("calibrated from a run of %s %s", e.Name, e.Version)
	return Engine{name, e.Version, settings, func(seed uint64) timing.Model { return c.Model(seed) }, float64(s.MaxTokens) / demoBudget}, nil
}

// What the catalogue's loads are made for.
const (
	demoBudget = 256 // tokens an iteration
	demoBlocks = 200 // of the KV pool
	demoBlock  = 32  // tokens a block
	demoStep   = 5 * time.Millisecond
)

// presetTokens is how many times as long prompts are that burden a preset as the catalogue's burden the demo's engine.
const presetTokens = 8

// Preset is an engine of a data sheet. Its times are ratios: one decode iteration of one sequence is called 5 ms, and nothing more is
// meant by that.
func Preset(name string) (Engine, error) {
	p, err := timing.PresetNamed(name)
	if err != nil {
		return Engine{}, err
	}
	settings := world.DefaultSettings()
	for name, n := range map[string]int{"max_num_seqs": 16, "max_num_batched_tokens": demoBudget * presetTokens, "max_num_scheduled_tokens": demoBudget * presetTokens,
		"max_model_len": 4096 * presetTokens, "block_size": demoBlock, "hash_block_size": demoBlock, "num_gpu_blocks": demoBlocks * presetTokens, "tensor_parallel_size": p.Count} {
		settings[name] = json.Number(fmt.Sprint(n))
	}
	roofline, err := p.Model(demoBlocks*presetTokens, demoBlock) // it keeps no state
	if err != nil {
		return Engine{}, err
	}
	model := func(uint64) timing.Model { return &rescaled{roofline} }
	return Engine{"preset " + name + ", in ratios", "0.32.0", settings, model, presetTokens}, nil
}

// rescaled is a model in ratios, whose unit is called a demo's step.
type rescaled struct{ timing.Model }

func (r *rescaled) Iteration(at time.Duration, s *timing.Shape) timing.Took {
	t := r.Model.Iteration(at, s)
	const part = float64(demoStep) / float64(timing.RatioReference)
	for _, d := range []*time.Duration{&t.Host, &t.Device, &t.Tail, &t.Gap} {
		*d = time.Duration(float64(*d) * part)
	}
	return t
}

// Unit is that of the model.
func (r *rescaled) Unit() timing.Unit { return timing.UnitOf(r.Model) }

// alteration changes what an iteration takes.
type alteration func(at time.Duration, s *timing.Shape, t *timing.Took)

// altered is a model under a fault.
type altered struct {
	timing.Model
	by []alteration
}

func (a *altered) Iteration(at time.Duration, s *timing.Shape) timing.Took {
	t := a.Model.Iteration(at, s)
	for _, change := range a.by {
		change(at, s, &t)
	}
	return t
}

// Unit is that of the model.
func (a *altered) Unit() timing.Unit { return timing.UnitOf(a.Model) }
