package look

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// An engine that takes nobody up, and one that runs requests without a token.
const (
	idle = "vllm:num_requests_running{" + v0 + "} 0\nvllm:num_requests_waiting{" + v0 + "} 14\nvllm:generation_tokens_total{" + v0 + "} 777\nvllm:kv_cache_usage_perc{" + v0 + "} 0.1\n"
	hung = "vllm:num_requests_running{" + v0 + "} 33\nvllm:generation_tokens_total{" + v0 + "} 777\n"
)

// decodeNode is what one tensor-parallel worker of a decode node says.
func decodeNode(worker int) string {
	ls := fmt.Sprintf(`{model_name="nova",engine_type="decode",tp_rank="%d"}`, worker)
	return "sglang:num_running_reqs" + ls + " 8\nsglang:num_queue_reqs" + ls + " 0\nsglang:token_usage" + ls + " 0.98\nsglang:num_decode_prealloc_queue_reqs" + ls + " 61\nsglang:num_decode_transfer_queue_reqs" + ls + " 9\n"
}

// TestTraps are what the dialects hide: each is a page that invites to say something wrong.
func TestTraps(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		texts    []string
		says     []string
		never    []string
	}{
		{"three prompt throughputs without the time between the scrapes", 0, []string{
			"e.t0.prom", "vllm:prompt_tokens_total{" + v0 + "} 0\nvllm:prompt_tokens_by_source_total{" + v0 + ",source=\"local_compute\"} 0\n" + hist("vllm:request_prompt_tokens", v0, 0, 1000, 0),
			"e.t1.prom", "vllm:prompt_tokens_total{" + v0 + "} 24000\nvllm:prompt_tokens_by_source_total{" + v0 + ",source=\"local_compute\"} 6000\n" + hist("vllm:request_prompt_tokens", v0, 300000, 1000, 300)},
			[]string{`between the scrapes: requests that ended had prompts of 300,000 tokens \(demand served; prefilled earlier\), 24,000 tokens were taken up \(75\.0 % of them cached\), and 6,000 tokens were really computed`, `--interval`},
			[]string{`tok/s`}},
		{"preemptions are counted between scrapes, not since the start", time.Minute, []string{
			"e.t0.prom", "vllm:num_preemptions_total{" + v0 + "} 212\nvllm:kv_cache_usage_perc{" + v0 + "} 0.99\nvllm:request_success_total{" + v0 + ",finished_reason=\"stop\"} 100\n",
			"e.t1.prom", "vllm:num_preemptions_total{" + v0 + "} 341\nvllm:kv_cache_usage_perc{" + v0 + "} 0.999\nvllm:request_success_total{" + v0 + ",finished_reason=\"stop\"} 109\n"},
			[]string{`preempted 129 times in 60\.0 s, 2\.15 a second; 9 requests ended meanwhile, 14\.3 preemptions for each; KV cache 99\.9 %`}, []string{`341`}},
		{"preemptions of a single scrape are history", 0, []string{"e.prom", "vllm:num_preemptions_total{" + v0 + "} 341\n"}, nil, []string{`preempted`}},
		{"KV from elsewhere is no work of the prefix cache", time.Minute, []string{
			"e.t0.prom", "vllm:prompt_tokens_total{" + v0 + "} 0\nvllm:prompt_tokens_by_source_total{" + v0 + ",source=\"local_compute\"} 0\nvllm:prompt_tokens_by_source_total{" + v0 + ",source=\"external_kv_transfer\"} 0\n",
			"e.t1.prom", "vllm:prompt_tokens_total{" + v0 + "} 18528\nvllm:prompt_tokens_by_source_total{" + v0 + ",source=\"local_compute\"} 96\nvllm:prompt_tokens_by_source_total{" + v0 + ",source=\"external_kv_transfer\"} 18432\n"},
			[]string{`18,432 of 18,528 prompt tokens \(99\.5 %\) needed no prefill`}, []string{`prefix cache spared`}},
		{"a p99 of eight requests says so", 0, []string{"e.prom", hist("vllm:time_to_first_token_seconds", v0, 9, 1, 7, 10, 8)}, []string{`mean 1\.12 s, n 8 since its start`}, nil},
		{"a gateway's failures are of all models that were asked for", 0, []string{"g.prom", `litellm_proxy_failed_requests_metric_total{requested_model="nova",exception_class="RateLimitError"} 30
litellm_proxy_failed_requests_metric_total{requested_model="None",exception_class="BadRequestError"} 12
`}, []string{`42 failed \(RateLimitError 30, BadRequestError 12\)`}, nil},
		{"nobody is taken up: requests wait and none runs", time.Minute, []string{"e.t0.prom", idle, "e.t1.prom", idle},
			[]string{`BROKEN nova on e: 14 requests wait, none runs, and not one token came out in 60\.0 s: nobody is taken up\. KV cache 10\.0 %`}, nil},
		{"an idle engine is not broken", time.Minute, []string{"e.t0.prom", strings.ReplaceAll(idle, " 14", " 0"), "e.t1.prom", strings.ReplaceAll(idle, " 14", " 0")}, nil, []string{`BROKEN`}},
		{"an engine that sleeps while requests wait", 0, []string{"e.prom", "vllm:num_requests_waiting{" + v0 + "} 4\nvllm:engine_sleep_state{" + v0 + ",sleep_state=\"awake\"} 0\nvllm:engine_sleep_state{" + v0 + ",sleep_state=\"weights_offloaded\"} 1\n"},
			[]string{`BROKEN nova on e is asleep .* while 4 requests wait`}, nil},
		{"one that is awake", 0, []string{"e.prom", "vllm:num_requests_waiting{" + v0 + "} 4\nvllm:engine_sleep_state{" + v0 + ",sleep_state=\"awake\"} 1\nvllm:engine_sleep_state{" + v0 + ",sleep_state=\"weights_offloaded\"} 0\n"}, nil, []string{`asleep`}},
		{"deferred is contained in waiting", 0, []string{"e.prom", "vllm:num_requests_waiting{" + v0 + "} 5\nvllm:kv_cache_usage_perc{" + v0 + "} 0.64\nvllm:num_requests_waiting_by_reason{" + v0 + ",reason=\"deferred\"} 4\nvllm:num_requests_waiting_by_reason{" + v0 + ",reason=\"capacity\"} 1\n"},
			[]string{`4 of 5 waiting requests are deferred: .*; 1 wait for room \(KV cache 64\.0 %\)`}, []string{`10 waiting`}},
		{"the queue of a decode node is elsewhere, and workers repeat it", 0, []string{"e.prom", decodeNode(0) + decodeNode(1)},
			[]string{`does not count who waits 61 for room on the decode node \(prealloc\), 9 for their KV \(transfer\)\. It has no room: KV cache 98\.0 %`, `More prefill nodes do not help`}, []string{`122`}},
		{"grammars have a queue of their own", 0, []string{"e.prom", "sglang:num_queue_reqs{model_name=\"nova\"} 0\nsglang:num_grammar_queue_reqs{model_name=\"nova\"} 9\nsglang:num_grammar_total{model_name=\"nova\"} 151\nsglang:num_grammar_cache_hit_total{model_name=\"nova\"} 21\n" + hist("sglang:grammar_compilation_time_seconds", `model_name="nova"`, 470.6, 10, 130)},
			[]string{`9 requests wait until their grammar .* beside the ordinary one \(0\); compiling one takes 3\.62 s on average \(n 130 since its start\); 21 of 151 were found compiled`}, nil},
		{"a pool without an endpoint", 0, []string{"e.prom", "llm_d_epp_ready_endpoints{name=\"p\"} 0\n"}, []string{`BROKEN .* no endpoint of its pool is ready`}, nil},
		{"NVLink traffic is a rate in a unit of its own", 0, []string{"d.prom", "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter\nDCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu=\"0\",UUID=\"GPU-1\"} 1000\n"},
			[]string{`a rate in units of 1,024,000 bytes/s already`}, []string{`rate in bytes/s`}},
		{"memory that broke", 0, []string{"d.prom", "DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu=\"0\",UUID=\"GPU-1\"} 1\nDCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=\"0\",UUID=\"GPU-1\"} 3\n"},
			[]string{`BROKEN GPU 0 .*could not replace a broken row`, `note GPU 0 .*had 3 uncorrected errors`}, nil},
		{"memory that is sound, or not told", 0, []string{"d.prom", "DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu=\"0\",UUID=\"GPU-1\"} 0\nDCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=\"0\",UUID=\"GPU-1\"} 9223372036854775794\n"}, nil, []string{`row of`, `had \d`}},
		{"a busy GPU is no progress", time.Minute, []string{"e.t0.prom", hung, "e.t1.prom", hung, "d.prom", "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-1\"} 100\nDCGM_FI_PROF_DRAM_ACTIVE{gpu=\"0\",UUID=\"GPU-1\"} 0.001\nDCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"GPU-1\"} 231.4\n"},
			[]string{`33 requests run, and not one token came out .* A GPU that is busy is no progress \(GPU 0 .*utilisation 100\.0 %, DRAM active 0\.1 %, power 231\.4 W\)`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			says(t, answered(t, texts(c.texts...), c.interval), c.says, c.never...)
		})
	}
}

// TestReadEndsInTheMiddle ends a read while an input is being read, not after it.
func TestReadEndsInTheMiddle(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	read := 0
	in := named("engine.log")
	in.Open = func() (io.ReadCloser, error) {
		return io.NopCloser(readerFunc(func(p []byte) (int, error) {
			if read++; read == 3 {
				cancel()
			}
			return copy(p, strings.Repeat("INFO 03-11 09:30:05 [a.py:1] nothing of note\n", 100)), nil
		})), nil
	}
	if _, err := Read(ctx, []Input{in}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d reads of an endless log", err, read)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
