package look

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/signals"
)

// Everything is computed by hand beside it.
func TestDerivedSignals(t *testing.T) {
	page := func(tokens, prompt, computed int, ttft string) string {
		return strings.NewReplacer("TOKENS", count0(tokens), "PROMPT", count0(prompt), "COMPUTED", count0(computed)).Replace(`vllm:num_requests_running{model_name="m"} 10
vllm:kv_cache_usage_perc{model_name="m"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1
vllm:generation_tokens_total{model_name="m"} TOKENS
vllm:prompt_tokens_total{model_name="m"} PROMPT
vllm:prompt_tokens_by_source_total{model_name="m",source="local_compute"} COMPUTED
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="n",modelName="NVIDIA H200"} 0.5
DCGM_FI_PROF_DRAM_ACTIVE{gpu="1",UUID="GPU-b",Hostname="n",modelName="NVIDIA H200"} 0.25
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="n"} 0.5
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-b",Hostname="n"} 0.25
`) + ttft
	}
	const (
		before = "# TYPE vllm:time_to_first_token_seconds histogram\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.5\"} 0\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"1\"} 0\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 0\nvllm:time_to_first_token_seconds_sum{model_name=\"m\"} 0\nvllm:time_to_first_token_seconds_count{model_name=\"m\"} 0\n" +
			"# TYPE vllm:request_time_per_output_token_seconds histogram\nvllm:request_time_per_output_token_seconds_bucket{model_name=\"m\",le=\"0.05\"} 0\nvllm:request_time_per_output_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 0\nvllm:request_time_per_output_token_seconds_sum{model_name=\"m\"} 0\nvllm:request_time_per_output_token_seconds_count{model_name=\"m\"} 0\n"
		after = "# TYPE vllm:time_to_first_token_seconds histogram\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.5\"} 80\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"1\"} 90\nvllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 100\nvllm:time_to_first_token_seconds_sum{model_name=\"m\"} 50\nvllm:time_to_first_token_seconds_count{model_name=\"m\"} 100\n" +
			"# TYPE vllm:request_time_per_output_token_seconds histogram\nvllm:request_time_per_output_token_seconds_bucket{model_name=\"m\",le=\"0.05\"} 60\nvllm:request_time_per_output_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 100\nvllm:request_time_per_output_token_seconds_sum{model_name=\"m\"} 6\nvllm:request_time_per_output_token_seconds_count{model_name=\"m\"} 100\n"
	)
	s := scene(t, pages("e", true, page(1000, 4000, 2000, before), page(10_000, 12_000, 4000, after)))
	s.objectives = Objectives{TTFT: 700 * time.Millisecond, TPOT: 50 * time.Millisecond}
	got := map[string]Derived{}
	for _, d := range Judge(s).Derived {
		if _, twice := got[d.Signal]; twice {
			t.Errorf("%s is there twice: %+v", d.Signal, d)
		}
		got[d.Signal] = d
	}
	for signal, want := range map[string][2]float64{
		"gpu.memory_bandwidth":         {0, 3.6e12},  // (0.5 + 0.25) × 4.8 TB/s
		"gpu.output_per_active_second": {200, 200},   // 9,000 tokens / ((0.5 + 0.25) × 60 s)
		"kv.cache_value":               {0.75, 0.75}, // 1 − 2,000 / 8,000
		"kv.pages_used":                {250, 250},   // 0.25 × 1,000
		"kv.slack":                     {0, 150},     // 10 × 15
		"request.goodput_share":        {0.4, 0.6},   // TTFT 0.80 to 0.90, TPOT 0.60: at least 0.80 + 0.60 − 1
	} {
		if d := got[signal]; math.Abs(d.Low-want[0]) > 1e-9 || math.Abs(d.High-want[1]) > 1e-9 {
			t.Errorf("%s is %v to %v (%s), by hand %v", signal, d.Low, d.High, d.Text, want)
		}
	}
	if len(got) != len(derivations) || len(derivations) != len(signals.AllDerived()) {
		t.Errorf("%d of %d derived signals", len(got), len(signals.AllDerived()))
	}
}

func count0(n int) string { return strings.ReplaceAll(count(float64(n)), ",", "") }
