package vllm

import (
	"strings"

	"github.com/whylate/whylate/logline"
)

// Start is what one line of an engine's start told. Several make up a start.
type Start struct {
	Version    string // "0.32.0"
	Generation string // "V0" or "V1"
	Model      string // its name or folder
	Settings   []logline.Setting

	Device        string               // whose memory the cache is in
	KVTokens      logline.Opt[int]     // tokens that the KV cache has room for
	Blocks        logline.Opt[int]     // of the KV cache
	SwapBlocks    logline.Opt[int]     // V0
	KVGiB         logline.Opt[float64] // memory of the KV cache
	Concurrency   logline.Opt[float64] // requests of RequestTokens each that fit: a bound of memory, not a number of users
	RequestTokens logline.Opt[int]     // the longest request
	BatchTokens   logline.Opt[int]     // max_num_batched_tokens

	WeightsGiB   logline.Opt[float64]
	LoadSeconds  logline.Opt[float64] // of the weights
	GraphSeconds logline.Opt[float64] // of capturing graphs
	GraphGiB     logline.Opt[float64]
	InitSeconds  logline.Opt[float64] // profiling, cache and warm-up
	Ready        bool                 // it serves from here on
}

// starts are the lines of a start, by a text in them: how each one tells what stands before and after it.
var starts = []struct {
	mark string
	read func(s *Start, subject, rest string)
}{
	{"vLLM API server version ", func(s *Start, _, rest string) { s.Version = word(rest) }},
	{"█  version ", func(s *Start, _, rest string) { s.Version = word(rest) }},
	{"█  model ", func(s *Start, _, rest string) { s.Model = word(rest) }},
	{"non-default args: ", func(s *Start, _, rest string) { s.settings(rest) }},
	{"args: Namespace(", func(s *Start, _, rest string) { s.settings("Namespace(" + rest) }},
	{"Initializing a", initializing},
	{"KV cache size: ", func(s *Start, subject, rest string) {
		s.Device = word(subject)
		s.KVTokens = firstInt(rest)
		if _, more, ok := strings.Cut(rest, concurrencyMark); ok {
			concurrency(s, "", more)
		}
	}},
	{concurrencyMark, concurrency},
	{" blocks: ", func(s *Start, subject, rest string) {
		if strings.HasSuffix(subject, "# GPU") || strings.HasSuffix(subject, "# cuda") {
			s.Device, s.Blocks = "GPU", firstInt(rest)
			s.SwapBlocks = firstInt(after(rest, "# CPU blocks: "))
		}
	}},
	{"after num_gpu_blocks is: ", func(s *Start, _, rest string) { s.Blocks = firstInt(rest) }},
	{"Available KV cache memory: ", func(s *Start, _, rest string) { s.KVGiB = firstFloat(rest) }},
	{"Using max model len ", func(s *Start, _, rest string) { s.RequestTokens = firstInt(rest) }},
	{"Chunked prefill is enabled with max_num_batched_tokens=", func(s *Start, _, rest string) { s.BatchTokens = firstInt(rest) }},
	{"Model loading took ", loading},
	{"Loading model weights took ", loading},
	{"Graph capturing finished in ", func(s *Start, _, rest string) {
		s.GraphSeconds, s.GraphGiB = firstFloat(rest), firstFloat(after(rest, "took "))
	}},
	{"init engine (profile, create kv cache, warmup model) took ", func(s *Start, _, rest string) { s.InitSeconds = firstFloat(rest) }},
	{"Application startup complete", func(s *Start, _, _ string) { s.Ready = true }},
}

const concurrencyMark = "Maximum concurrency for "

func start(begin, text string) (Start, bool) {
	for _, line := range starts {
		if i := strings.Index(begin, line.mark); i >= 0 {
			var s Start
			line.read(&s, text[:i], text[i+len(line.mark):])
			return s, !s.empty()
		}
	}
	return Start{}, false
}

func (s *Start) empty() bool {
	known := s.KVTokens.Known || s.Blocks.Known || s.KVGiB.Known || s.Concurrency.Known || s.RequestTokens.Known || s.BatchTokens.Known ||
		s.WeightsGiB.Known || s.GraphSeconds.Known || s.InitSeconds.Known
	return !known && s.Version == "" && s.Model == "" && len(s.Settings) == 0 && !s.Ready
}

// settings keeps the settings, and the model by its own name.
func (s *Start) settings(text string) {
	s.Settings = logline.Settings(text)
	for _, set := range s.Settings {
		if set.Name == "model" && set.Value != "None" {
			s.Model = set.Value
		}
	}
}

// initializing reads "Initializing a V1 LLM engine (v0.32.0) with config: model='…', …"; V0 calls itself "an LLM engine".
func initializing(s *Start, _, rest string) {
	kind, config, ok := strings.Cut(rest, " with config: ")
	_, version, ok2 := strings.Cut(kind, "LLM engine (v")
	if !ok || !ok2 {
		return
	}
	s.Version = word(strings.TrimSuffix(version, ")"))
	s.Generation = "V0"
	if strings.HasPrefix(kind, " V1 ") {
		s.Generation = "V1"
	}
	s.settings(config)
}

// concurrency reads "32,768 tokens per request: 9.00x".
func concurrency(s *Start, _, rest string) {
	s.RequestTokens, s.Concurrency = firstInt(rest), firstFloat(after(rest, "request: "))
}

// loading reads "14.99 GiB memory and 5.2 seconds".
func loading(s *Start, _, rest string) {
	s.WeightsGiB = firstFloat(rest)
	if _, seconds, ok := strings.Cut(rest, " and "); ok {
		s.LoadSeconds = firstFloat(seconds)
	}
}

// word is the first word of a sentence.
func word(s string) string { return strings.TrimRight(logline.Name(s), ".,") }
