package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Settings are those of an engine that its scheduler's decisions depend on.
type Settings struct {
	BlockSize int // tokens a block
	Blocks    int // of the pool, with the one that is never given out

	MaxSequences    int // running at once
	MaxTokens       int // an iteration
	MaxLength       int // tokens of a sequence, prompt and output
	LongPrefill     int // most tokens of one prompt an iteration; 0 = no such limit
	AdaptiveLong    bool
	WholePrompts    bool // a prompt is never cut into chunks
	PrefixCaching   bool
	ReserveInput    bool // an admission needs blocks for its whole input
	WatermarkBlocks int  // that an admission leaves free
	Priorities      bool // the line, and who is preempted, go by priority

	Asynchronous bool // decisions are made before the output of the last is known
	Stagger      int  // with Rules.Cadence: iterations between two decodes of a sequence; 0 = none
	Drafts       int  // speculated tokens a sequence at most
	Adapters     int  // in one iteration at most; 0 = no limit
}

// MaxBlocks is how many blocks a pool may have: more is a slip of the pen, and would take the machine's memory.
const MaxBlocks = 1 << 26

// Validate names the first setting that no engine can have.
func (s Settings) Validate() error {
	for _, f := range []struct {
		name       string
		value, min int
	}{
		{"block size", s.BlockSize, 1}, {"blocks", s.Blocks, 2}, {"sequences", s.MaxSequences, 1}, {"tokens an iteration", s.MaxTokens, 1},
		{"length", s.MaxLength, 2}, {"tokens of a long prompt", s.LongPrefill, 0}, {"watermark", s.WatermarkBlocks, 0},
		{"stagger", s.Stagger, 0}, {"drafts", s.Drafts, 0}, {"adapters", s.Adapters, 0},
	} {
		if f.value < f.min {
			return fmt.Errorf("simulate: %s: %d: it must be at least %d", f.name, f.value, f.min)
		}
	}
	if s.Blocks > MaxBlocks {
		return fmt.Errorf("simulate: blocks: %d: at most %d are simulated", s.Blocks, MaxBlocks)
	}
	return nil
}

// FromHello reads rules and settings from what an engine's scheduler said of itself: the version and the settings of its hello
// (docs/formats/stream.md). What is not simulated is refused by name.
func FromHello(version string, settings map[string]any) (Rules, Settings, error) {
	r, err := RulesOf(version)
	if err != nil {
		return Rules{}, Settings{}, err
	}
	said := reader{settings: settings}
	s := Settings{
		BlockSize: said.number("block_size"), Blocks: said.number("num_gpu_blocks"), MaxSequences: said.number("max_num_seqs"),
		MaxTokens: said.number("max_num_scheduled_tokens"), MaxLength: said.number("max_model_len"),
		LongPrefill: said.number("long_prefill_token_threshold"), AdaptiveLong: said.flag("long_prefill_token_threshold_adaptive"),
		WholePrompts: !said.flag("enable_chunked_prefill"), PrefixCaching: said.flag("enable_prefix_caching"),
		ReserveInput: said.flag("scheduler_reserve_full_isl"), WatermarkBlocks: said.number("watermark_blocks"),
		Priorities: said.text("policy") == "priority", Asynchronous: said.text("scheduler") == "AsyncScheduler",
		Drafts: said.number("num_speculative_tokens"), Adapters: said.number("max_loras"),
	}
	if active := said.number("max_num_active_seqs"); active > 0 {
		s.MaxSequences = min(s.MaxSequences, active)
	}
	if s.Asynchronous && said.flag("model_runner_v2") {
		s.Stagger = max(1, said.number("pipeline_parallel_size"))
	}
	said.atMost("kv_cache_groups", 1)
	said.atMost("sliding_window", 0)
	said.atMost("num_lookahead_tokens", 0)
	said.atMost("draft_slots", 0)
	said.atMost("decode_context_parallel_size", 1)
	if said.text("kv_connector") != "" {
		said.refuse("kv_connector")
	}
	if n := said.number("hash_block_size"); n != 0 && n != s.BlockSize {
		said.refuse("hash_block_size")
	}
	return r, s, errors.Join(append(said.errors, s.Validate())...)
}

// reader takes settings apart that came as JSON. What an engine does not know is absent or null, and reads as nothing.
type reader struct {
	settings map[string]any
	errors   []error
}

func (r *reader) refuse(name string) {
	r.errors = append(r.errors, fmt.Errorf("simulate: %s = %v: not simulated", name, r.settings[name]))
}

func (r *reader) number(name string) int {
	switch v := r.settings[name].(type) {
	case nil:
		return 0
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return int(n)
		}
	}
	r.errors = append(r.errors, fmt.Errorf("simulate: %s = %v: not a whole number", name, r.settings[name]))
	return 0
}

func (r *reader) flag(name string) bool {
	on, _ := r.settings[name].(bool)
	return on
}

func (r *reader) text(name string) string {
	s, _ := r.settings[name].(string)
	return s
}

func (r *reader) atMost(name string, most int) {
	if r.number(name) > most {
		r.refuse(name)
	}
}
