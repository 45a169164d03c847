package whatif

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/world"
)

// Setting is a change of one setting of the engine.
type Setting struct {
	Name string `json:"setting"` // as the engine's hello has it
	From string `json:"from"`
	To   string `json:"to"`
}

// Knobs are the settings that may be changed: those that decide who is scheduled, and do not change how long the same work takes.
var Knobs = []string{"max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks", "long_prefill_token_threshold", "watermark_blocks", "enable_chunked_prefill",
	"enable_prefix_caching", "scheduler_reserve_full_isl", "policy"}

// aliases are the engine's flags that are called otherwise in its hello.
var aliases = map[string]string{"num_gpu_blocks_override": "num_gpu_blocks", "scheduling_policy": "policy"}

// apply makes the engine's settings with the changes, which are "setting=value". What changes nothing is an error: it would be answered
// with a comparison of noise.
func apply(version string, settings map[string]any, changes []string) (map[string]any, []Setting, error) {
	if len(changes) == 0 {
		return nil, nil, fmt.Errorf("whatif: nothing is changed: give a setting and its value, such as max_num_batched_tokens=1024; settings are %s", strings.Join(Knobs, ", "))
	}
	out := maps.Clone(settings)
	var made []Setting
	for _, c := range changes {
		name, text, ok := strings.Cut(c, "=")
		if !ok {
			return nil, nil, fmt.Errorf("whatif: %q: write it as setting=value", c)
		}
		name = strings.ReplaceAll(strings.TrimLeft(strings.TrimSpace(name), "-"), "-", "_")
		if other, ok := aliases[name]; ok {
			name = other
		}
		switch {
		case !slices.Contains(Knobs, name):
			return nil, nil, fmt.Errorf("whatif: %q is no setting that can be asked about: those are %s", name, strings.Join(Knobs, ", "))
		case slices.ContainsFunc(made, func(s Setting) bool { return s.Name == name }):
			return nil, nil, fmt.Errorf("whatif: %s is set twice", name)
		}
		if err := world.Set(out, name, strings.TrimSpace(text)); err != nil {
			return nil, nil, fmt.Errorf("whatif: %w", err)
		}
		if out[name] == settings[name] {
			return nil, nil, fmt.Errorf("whatif: %s is %v in the capture already", name, out[name])
		}
		made = append(made, Setting{name, fmt.Sprint(settings[name]), fmt.Sprint(out[name])})
	}
	if p := out["policy"]; p != "fcfs" && p != "priority" {
		return nil, nil, fmt.Errorf("whatif: policy = %v: give fcfs or priority", p)
	}
	_, _, err := simulate.FromHello(version, out)
	return out, made, err
}
