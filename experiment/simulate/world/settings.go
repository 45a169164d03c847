package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/experiment/simulate"
)

// DefaultSettings are a hello's settings of a vLLM that was started with its defaults on a large GPU: change what the engine at hand has
// otherwise.
func DefaultSettings() map[string]any {
	n := func(text string) json.Number { return json.Number(text) }
	return map[string]any{
		"scheduler": "Scheduler", "model": "simulated", "served_model": "simulated", "policy": "fcfs", "enable_chunked_prefill": true,
		"enable_prefix_caching": true, "scheduler_reserve_full_isl": true, "async_scheduling": false, "max_model_len": n("8192"),
		"max_num_seqs": n("256"), "max_num_batched_tokens": n("8192"), "max_num_scheduled_tokens": n("8192"), "block_size": n("16"),
		"hash_block_size": n("16"), "num_gpu_blocks": n("16384"), "kv_cache_groups": n("1"), "long_prefill_token_threshold": n("0"),
		"watermark_blocks": n("0"), "num_speculative_tokens": n("0"), "max_loras": n("0"), "tensor_parallel_size": n("1"), "pipeline_parallel_size": n("1"),
	}
}

// follow are settings that an engine derives from another where nobody gives them.
var follow = map[string][]string{
	"max_num_batched_tokens": {"max_num_scheduled_tokens"},
	"max_num_seqs":           {"max_num_active_seqs"},
	"block_size":             {"hash_block_size"},
}

// Set changes one of an engine's settings, and with it what the engine derives from it. The text is a number, true, false, or words. A
// setting that the engine does not have is refused.
func Set(settings map[string]any, name, text string) error {
	old, known := settings[name]
	if !known {
		return fmt.Errorf("setting %q: the engine has none of that name; it has %s", name, strings.Join(slices.Sorted(maps.Keys(settings)), ", "))
	}
	value, err := valueOf(old, text)
	if err != nil {
		return fmt.Errorf("setting %q: %q: %w", name, text, err)
	}
	settings[name] = value
	for _, other := range follow[name] {
		if settings[other] != nil {
			settings[other] = value
		}
	}
	if name == "async_scheduling" {
		settings["scheduler"] = map[bool]string{false: "Scheduler", true: "AsyncScheduler"}[value == true]
	}
	return nil
}

// valueOf reads a value of the kind that a setting has; one that has none yet takes any.
func valueOf(old any, text string) (any, error) {
	var value any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil || d.More() {
		value = text
	}
	switch old.(type) {
	case json.Number:
		if _, is := value.(json.Number); !is {
			return nil, fmt.Errorf("give a number, such as %v", old)
		}
	case bool:
		if _, is := value.(bool); !is {
			return nil, fmt.Errorf("give true or false")
		}
	case string:
		value = text
	}
	return value, nil
}

// settingsOf reads an engine's rules and settings from its hello's, and refuses what would never end: a pool that one sequence of full
// length does not fit into. The engine itself refuses to start then, too.
func settingsOf(k *Rank) (simulate.Rules, simulate.Settings, error) {
	rules, s, err := simulate.FromHello(k.Version, k.Settings)
	if err != nil {
		return rules, s, err
	}
	if fits := (s.Blocks - 1) * s.BlockSize; s.MaxLength > fits {
		return rules, s, fmt.Errorf("world: num_gpu_blocks = %d: the pool holds %d tokens, and a sequence may have max_model_len = %d: raise the one or lower the other", s.Blocks, fits, s.MaxLength)
	}
	if s.WholePrompts && s.MaxTokens < s.MaxLength {
		return rules, s, fmt.Errorf("world: max_num_scheduled_tokens = %d: without chunked prefill a prompt of max_model_len = %d must fit into an iteration: raise the one or lower the other", s.MaxTokens, s.MaxLength)
	}
	return rules, s, nil
}
