package dialect

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// family is one of vLLM's, without its prefix. Of each engine, values or observations give its series.
type family struct {
	name, kind, help string
	since            version
	values           func(c *counts, put func(value float64, labels ...label))
	observations     func(c *counts) *histogram
	shared           bool // by the engines: a series of the front end
}

const (
	counterKind   = "counter"
	gaugeKind     = "gauge"
	histogramKind = "histogram"
)

// one is a family with one series an engine.
func one(name, kind, help string, value func(c *counts) float64) family {
	return family{name: name, kind: kind, help: help, values: func(c *counts, put func(float64, ...label)) { put(value(c)) }}
}

// none is a family that stays zero here: nothing on the wire tells of it.
func none(name, help string) family {
	return one(name, counterKind, help, func(*counts) float64 { return 0 })
}

func observed(name, help string, h func(c *counts) *histogram) family {
	return family{name: name, kind: histogramKind, help: help, observations: h}
}

func (f family) from(v version) family {
	f.since = v
	return f
}

// families are vLLM's, in the order of its page.
var families = []family{
	none("estimated_flops_per_gpu", "Estimated floating point operations, per GPU."),
	none("estimated_read_bytes_per_gpu", "Estimated bytes read from memory, per GPU."),
	none("estimated_write_bytes_per_gpu", "Estimated bytes written to memory, per GPU."),
	one("num_requests_running", gaugeKind, "Requests that run.", func(c *counts) float64 { return float64(c.now.running) }),
	one("num_requests_waiting", gaugeKind, "Requests that wait.", func(c *counts) float64 { return float64(c.now.waiting) }),
	{name: "num_requests_waiting_by_reason", kind: gaugeKind, help: "Requests that wait for room (capacity), or for something else (deferred).",
		values: func(c *counts, put func(float64, ...label)) {
			put(float64(c.now.waiting-c.now.deferred), label{"reason", "capacity"})
			put(float64(c.now.deferred), label{"reason", "deferred"})
		}},
	{name: "engine_sleep_state", kind: gaugeKind, help: "Whether the engine sleeps, and how deeply.", values: func(_ *counts, put func(float64, ...label)) {
		put(1, label{"sleep_state", "awake"})
		put(0, label{"sleep_state", "weights_offloaded"})
		put(0, label{"sleep_state", "discard_all"})
	}},
	one("kv_cache_usage_perc", gaugeKind, "Share of the KV cache that live requests hold, 0 to 1.", func(c *counts) float64 { return c.now.usage }),
	one("prefix_cache_queries", counterKind, "Tokens looked up in the prefix cache.", func(c *counts) float64 { return c.queries }),
	one("prefix_cache_hits", counterKind, "Tokens found in the prefix cache.", func(c *counts) float64 { return c.hits }),
	none("external_prefix_cache_queries", "Tokens looked up in a connector's cache."),
	none("external_prefix_cache_hits", "Tokens found in a connector's cache."),
	none("mm_cache_queries", "Multimodal items looked up."),
	none("mm_cache_hits", "Multimodal items found."),
	one("num_preemptions", counterKind, "Preemptions, told with the next output of whom they hit.", func(c *counts) float64 { return c.preemptions }),
	one("prompt_tokens", counterKind, "Prompt tokens of requests whose first token has come.", func(c *counts) float64 { return c.prompt }),
	{name: "prompt_tokens_by_source", kind: counterKind, help: "Prompt tokens by where their KV came from.", values: func(c *counts, put func(float64, ...label)) {
		put(c.prompt-c.cached, label{"source", "local_compute"})
		put(c.cached, label{"source", "local_cache_hit"})
		put(0, label{"source", "external_kv_transfer"})
	}},
	one("prompt_tokens_cached", counterKind, "Prompt tokens from a cache.", func(c *counts) float64 { return c.cached }),
	family{name: "prompt_tokens_cached_by_source", kind: counterKind, help: "Prompt tokens from a cache, by its tier.", values: func(c *counts, put func(float64, ...label)) {
		put(c.cached, label{"source", "device"})
		for _, tier := range []string{"host", "p2p", "disk", "external_unspecified"} {
			put(0, label{"source", tier})
		}
	}}.from(newest),
	one("generation_tokens", counterKind, "Generated tokens.", func(c *counts) float64 { return c.generated }),
	{name: "request_success", kind: counterKind, help: "Requests whose final output has passed, by how they ended.", values: func(c *counts, put func(float64, ...label)) {
		for i, r := range reasons {
			put(c.success[i], label{"finished_reason", r.String()})
		}
	}},
	family{name: "admission_rejections", kind: counterKind, help: "Requests that a limit of the queue refused, by the limit.", shared: true, values: func(_ *counts, put func(float64, ...label)) {
		put(0, label{"reason", "max_num_queued_reqs"})
		put(0, label{"reason", "max_num_queued_tokens"})
	}}.from(newest),
	observed("request_prompt_tokens", "Prompt tokens of a request.", func(c *counts) *histogram { return c.promptTokens }),
	observed("request_generation_tokens", "Generated tokens of a request.", func(c *counts) *histogram { return c.generationTokens }),
	observed("iteration_tokens_total", "Tokens of a message with output: generated ones, and the prompts that it ends.", func(c *counts) *histogram { return c.iterationTokens }),
	observed("request_max_num_generation_tokens", "Generated tokens of a request's longest sequence.", func(c *counts) *histogram { return c.mostTokens }),
	observed("request_params_n", "Sequences that a request asks for.", func(c *counts) *histogram { return c.paramN }),
	observed("request_params_max_tokens", "Tokens that a request asks for at most.", func(c *counts) *histogram { return c.paramMost }),
	observed("time_to_first_token_seconds", "Arrival at the front end to the first output there.", func(c *counts) *histogram { return c.ttft }),
	observed("inter_token_latency_seconds", "Between two outputs of a sequence, at the engine.", func(c *counts) *histogram { return c.itl }),
	observed("request_time_per_output_token_seconds", "Mean time per token of a request, after its first.", func(c *counts) *histogram { return c.tpot }),
	observed("e2e_request_latency_seconds", "Arrival at the front end to the last output there.", func(c *counts) *histogram { return c.e2e }),
	observed("request_queue_time_seconds", "Taken up by the scheduler to first scheduled.", func(c *counts) *histogram { return c.queue }),
	observed("request_inference_time_seconds", "First scheduled to last token.", func(c *counts) *histogram { return c.inference }),
	observed("request_prefill_time_seconds", "First scheduled to first token.", func(c *counts) *histogram { return c.prefill }),
	observed("request_decode_time_seconds", "First token to last token.", func(c *counts) *histogram { return c.decode }),
	observed("request_num_preemptions", "Preemptions of a request.", func(c *counts) *histogram { return c.preempted }).from(newest),
	observed("request_prefill_kv_computed_tokens", "Prompt tokens of a request that were computed.", func(c *counts) *histogram { return c.computed }),
}

// speculation are the families of an engine that drafts tokens.
var speculation = []family{
	one("spec_decode_num_drafts", counterKind, "Drafts verified.", func(c *counts) float64 { return c.drafts }),
	one("spec_decode_num_draft_tokens", counterKind, "Tokens drafted.", func(c *counts) float64 { return c.drafted }),
	one("spec_decode_num_accepted_tokens", counterKind, "Drafted tokens accepted.", func(c *counts) (n float64) {
		for _, at := range c.acceptedAt {
			n += at
		}
		return n
	}),
	{name: "spec_decode_num_accepted_tokens_per_pos", kind: counterKind, help: "Drafted tokens accepted, by position.", values: func(c *counts, put func(float64, ...label)) {
		for i, n := range c.acceptedAt {
			put(n, label{"position", fmt.Sprint(i)})
		}
	}},
}

// page is the front end's metrics page. The memory of b is used for it.
func (f *front) page(b []byte) []byte {
	p := page{text: b[:0]}
	if len(f.processes) == 1 { // several share theirs through files, which have no room for such
		h := &f.processes[0]
		p.created = float64(h.Clock[1]) / 1e9
		started := math.Floor(p.created-float64(h.Clock[0])/1e9) + float64(h.Start)/ticks // the kernel tells its own start in whole seconds
		p.gauge("process_start_time_seconds", "When the process started, in Unix time.", func(put func(float64, ...label)) { put(started) })
	}
	for i := range families {
		f.write(&p, &families[i])
		if families[i].name == "mm_cache_hits" && f.speculates() {
			for k := range speculation {
				f.write(&p, &speculation[k])
			}
		}
	}
	p.gauge("vllm:cache_config_info", "What the KV cache is like.", func(put func(float64, ...label)) {
		for _, e := range f.engines {
			put(1, e.cacheConfig()...)
		}
	})
	f.web.write(&p)
	return p.text
}

// ticks are those of a process's start, per second.
const ticks = 100

func (f *front) speculates() bool {
	return slices.ContainsFunc(f.engines, func(e *engine) bool { return number(e.hello.Settings, "num_speculative_tokens") > 0 })
}

// write writes a family, if the engines' version has it.
func (f *front) write(p *page, w *family) {
	if len(f.engines) == 0 || f.engines[0].version < w.since {
		return
	}
	name := "vllm:" + w.name
	if w.kind == histogramKind {
		p.histogram(name, w.help, func(put func(*histogram, ...label)) {
			for _, e := range f.engines {
				put(w.observations(e.counts), e.labels()...)
			}
		})
		return
	}
	each := func(put func(float64, ...label)) {
		if e := f.engines[0]; w.shared {
			w.values(e.counts, func(v float64, more ...label) { put(v, append(more, label{"model_name", e.model()})...) })
			return
		}
		for _, e := range f.engines {
			w.values(e.counts, func(v float64, more ...label) { put(v, append(more, e.labels()...)...) })
		}
	}
	if w.kind == gaugeKind {
		p.gauge(name, w.help, each)
	} else {
		p.counter(name, w.help, each)
	}
}

// labels are the engine's own.
func (e *engine) labels() []label {
	return []label{{"engine", fmt.Sprint(e.hello.Engine.Rank)}, {"model_name", e.model()}}
}

// model is the name under which the engine serves its model.
func (e *engine) model() string {
	if name, _ := e.hello.Settings["served_model"].(string); name != "" {
		return name
	}
	name, _ := e.hello.Settings["model"].(string)
	return name
}

// cacheConfig are the labels of cache_config_info that the engine's settings tell; the engine itself has about twice as many.
func (e *engine) cacheConfig() []label {
	labels := []label{{"engine", fmt.Sprint(e.hello.Engine.Rank)}}
	for _, name := range slices.Sorted(maps.Keys(e.hello.Settings)) {
		if slices.Contains(cacheSettings, name) {
			labels = append(labels, label{name, python(e.hello.Settings[name])})
		}
	}
	if size := number(e.hello.Settings, "num_gpu_blocks") * number(e.hello.Settings, "block_size"); size > 0 && e.version >= newest {
		labels = append(labels, label{"kv_cache_size_tokens", fmt.Sprint(size)})
		if longest := number(e.hello.Settings, "max_model_len"); longest > 0 {
			labels = append(labels, label{"kv_cache_max_concurrency", string(appendPython(nil, float64(size)/float64(longest)))})
		}
	}
	return labels
}

// cacheSettings are those of the hello that are fields of vLLM's cache configuration.
var cacheSettings = []string{"block_size", "cache_dtype", "enable_prefix_caching", "num_gpu_blocks", "prefix_caching_hash_algo", "sliding_window"}

// python writes a value as Python's str does.
func python(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		text := fmt.Sprint(v)
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return fmt.Sprint(v)
}
