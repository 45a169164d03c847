package look

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// hist is a histogram of a page: bounds and cumulative counts, the last of which is of all.
func hist(name, labels string, sum float64, pairs ...float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# TYPE %s histogram\n", name)
	var n float64
	for i := 0; i < len(pairs); i += 2 {
		n = pairs[i+1]
		fmt.Fprintf(&b, "%s_bucket{%s,le=\"%v\"} %v\n", name, labels, pairs[i], n)
	}
	fmt.Fprintf(&b, "%s_bucket{%s,le=\"+Inf\"} %v\n%s_sum{%s} %v\n%s_count{%s} %v\n", name, labels, n, name, labels, sum, name, labels, n)
	return b.String()
}

// ranks are the load of data-parallel ranks: running, waiting, KV usage of each.
func ranksOf(label string, loads ...[3]float64) string {
	var b strings.Builder
	for i, l := range loads {
		of := fmt.Sprintf(label, i)
		fmt.Fprintf(&b, "vllm:num_requests_running{%s} %v\nvllm:num_requests_waiting{%s} %v\nvllm:kv_cache_usage_perc{%s} %v\n", of, l[0], of, l[1], of, l[2])
	}
	return b.String()
}

const v0 = `model_name="nova",engine="0"`

// TestVariants are relatives of the field cases: another engine with the same disease, other labels and units, and healthy twins.
func TestVariants(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		texts    []string
		says     []string
		never    []string
	}{
		{"C20: SGLang's first tokens within microseconds", 0, []string{"a.prom", "sglang:prompt_tokens_total{model_name=\"nova\"} 500000\n" + hist("sglang:time_to_first_token_seconds", `model_name="nova"`, 0.0021, 0.1, 300, 40, 300)},
			[]string{`300 of 300 observations are at most 100 ms, 7\.00 µs on average, while prompts average 1,667 tokens`}, []string{`TTFT p99`}},
		{"C20: sooner than a tokenizer reads the prompt", 0, []string{"a.prom", "vllm:prompt_tokens_total{" + v0 + "} 800000\n" + hist("vllm:time_to_first_token_seconds", v0, 0.16, 0.001, 400, 0.01, 400)},
			[]string{`400 µs on average, while prompts average 2,000 tokens`}, []string{`TTFT p99`}},
		{"C20: soon, and of short prompts: healthy", 0, []string{"a.prom", "vllm:prompt_tokens_total{" + v0 + "} 4000\n" + hist("vllm:time_to_first_token_seconds", v0, 1.9, 0.001, 0, 0.005, 300, 0.01, 400)},
			[]string{`TTFT p99 5\.00 ms to 10\.0 ms`}, []string{`cannot be`}},
		{"C20: a sum less than its buckets", 0, []string{"a.prom", hist("vllm:request_queue_time_seconds", v0, 900, 10, 0, 40, 100)}, []string{`is 900 s, less than the 1000 s that its buckets hold at least`}, nil},
		{"C23: SGLang with attention data parallelism: rank 1 has no worker 0", 0, []string{"a.prom", `sglang:num_running_reqs{model_name="nova",dp_rank="0",tp_rank="0",moe_ep_rank="0"} 40
sglang:num_queue_reqs{model_name="nova",dp_rank="0",tp_rank="0",moe_ep_rank="0"} 60
sglang:num_running_reqs{model_name="nova",dp_rank="0",tp_rank="1",moe_ep_rank="1"} 40
sglang:num_queue_reqs{model_name="nova",dp_rank="0",tp_rank="1",moe_ep_rank="1"} 60
sglang:num_running_reqs{model_name="nova",dp_rank="1",tp_rank="2",moe_ep_rank="2"} 1
sglang:num_queue_reqs{model_name="nova",dp_rank="1",tp_rank="2",moe_ep_rank="2"} 0
sglang:num_running_reqs{model_name="nova",dp_rank="1",tp_rank="2",moe_ep_rank="2",priority="1"} 1
`}, []string{`ranks 0 of 2 hold 40 of 41 running and 60 of 60 waiting`, `ranks 1 are nearly empty`}, []string{`80`}},
		{"C23: a full rank beside ranks with room", 0, []string{"a.prom", ranksOf(`model_name="nova",engine="%d"`, [3]float64{40, 60, 0.97}, [3]float64{14, 0, 0.21}, [3]float64{12, 0, 0.2})},
			[]string{`BROKEN .*ranks 0 \(KV 97 %\) of 3 hold 40 of 66 running and 60 of 60 waiting`, `nobody waits at ranks 1 \(KV 21 %\), 2`}, []string{`nearly empty`}},
		{"C23: uneven, and nobody waits", 0, []string{"a.prom", ranksOf(`model_name="nova",engine="%d"`, [3]float64{60, 0, 0.97}, [3]float64{0, 0, 0.01})}, []string{`note .*ranks 0 \(KV 97 %\) of 2 hold 60 of 60`}, []string{`BROKEN`}},
		{"C23: hardly anything to do: healthy", 0, []string{"a.prom", ranksOf(`model_name="nova",engine="%d"`, [3]float64{2, 0, 0.05}, [3]float64{0, 0, 0})}, []string{`2 data-parallel ranks`}, []string{`balance`}},
		{"C23: all full: healthy balance", 0, []string{"a.prom", ranksOf(`model_name="nova",engine="%d"`, [3]float64{30, 40, 0.95}, [3]float64{28, 37, 0.96})}, []string{`in all 58 running, 77 waiting`}, []string{`balance`}},
		{"C23: /federate: three engines are no ranks, and their KV is not added up", 0, []string{"a.prom", ranksOf(`model_name="nova",engine="0",instance="v-%d:8000",job="vllm"`, [3]float64{30, 44, 0.97}, [3]float64{1, 0, 0.1}, [3]float64{2, 0, 0.11})},
			[]string{`vLLM: nova, 3 targets`, `KV cache 97\.0 % \(nova on v-0:8000\)`}, []string{`118`, `ranks`}},
		{"C23: a namespace's pods on one page", 0, []string{"a.prom", ranksOf(`model_name="nova",engine="0",namespace="x",pod="v-%d"`, [3]float64{30, 44, 0.97}, [3]float64{1, 0, 0.1})}, []string{`2 targets`, `44 waiting, 30 running \(nova on x/v-0\)`}, []string{`1\.07|107`}},
		{"C25: SGLang that counts all prompt tokens and the cached ones", 900 * time.Second, []string{"a.t0.prom", "sglang:cache_hit_rate{model_name=\"nova\"} 0\nsglang:prompt_tokens_total{model_name=\"nova\"} 1000000\nsglang:cached_tokens_total{model_name=\"nova\"} 400000\n",
			"a.t1.prom", "sglang:cache_hit_rate{model_name=\"nova\"} 0.31\nsglang:prompt_tokens_total{model_name=\"nova\"} 3000000\nsglang:cached_tokens_total{model_name=\"nova\"} 1900000\n"}, []string{`1,500,000 of 2,000,000 prompt tokens came from the cache, 75\.0 %`}, []string{`100\.0 %`}},
		{"C26: SGLang's prompt counter moves at the end: it is not what was taken up", time.Minute, []string{
			"a.t0.prom", "sglang:realtime_tokens_total{model_name=\"nova\",mode=\"prefill_compute\"} 0\nsglang:realtime_tokens_total{model_name=\"nova\",mode=\"prefill_cache\"} 0\n" + hist("sglang:prompt_tokens_histogram", `model_name="nova"`, 1e6, 10000, 100),
			"a.t1.prom", "sglang:realtime_tokens_total{model_name=\"nova\",mode=\"prefill_compute\"} 6000\nsglang:realtime_tokens_total{model_name=\"nova\",mode=\"prefill_cache\"} 18000\n" + hist("sglang:prompt_tokens_histogram", `model_name="nova"`, 1.3e6, 10000, 130)},
			[]string{`prompts of 5,000 tok/s`, `400 tok/s were taken up \(75\.0 % of them cached\)`, `100 tok/s were really computed`}, nil},
		{"C26: a mean prompt is no throughput", 0, []string{"a.prom", hist("vllm:request_prompt_tokens", v0, 1e6, 10000, 100), "b.promql", "rate(vllm:request_prompt_tokens_sum[5m]) / rate(vllm:request_prompt_tokens_count[5m])\n"}, nil, []string{`throughput`}},
		{"C28: NaN as everybody may write it", 0, []string{"a.prom", "llamacpp:requests_processing 0\nllamacpp:predicted_tokens_seconds nan\n"}, []string{`line 2: llamacpp:predicted_tokens_seconds: not a number: it is unknown, not 0`}, nil},
		{"C30: a late counter at rest is no speed", 30 * time.Second, []string{"a.t0.prom", "llamacpp:requests_processing 2\nllamacpp:tokens_predicted_total 1.28405e+08\n", "a.t1.prom", "llamacpp:requests_processing 2\nllamacpp:tokens_predicted_total 1.28405e+08\n"},
			[]string{`whether tokens come out is not known`}, []string{` 0 tok/s`, `BROKEN`}},
		{"C32: who asked is not shown", 0, []string{"a.prom", func() string {
			var b strings.Builder
			for i := range 150 {
				fmt.Fprintf(&b, "litellm_proxy_total_requests_metric_total{end_user=\"person-%d@example.org\",requested_model=\"nova\"} 1\n", i)
			}
			return b.String()
		}()}, []string{`label end_user takes`, `All 150 are counted`}, []string{`example\.org`}},
		{"C34: ranks of attention data parallelism, and a server without KV statistics", 0, []string{"a.json", `[{"iter":5,"attentionDpRank":0,"numActiveRequests":4,"numQueuedRequests":0,"kvCacheStats":{"maxNumBlocks":100,"usedNumBlocks":10,"tokensPerBlock":32}},{"iter":5,"attentionDpRank":1,"numActiveRequests":40,"numQueuedRequests":10,"kvCacheStats":{"maxNumBlocks":100,"usedNumBlocks":97,"tokensPerBlock":32}}]`,
			"b.json", "{\"iter\":1,\"iterLatencyMS\":20.5,\"numActiveRequests\":3}\n{\"iter\":2,\"iterLatencyMS\":20.5,\"numActiveRequests\":5}\n"},
			[]string{`rank 0: 4 requests active, 0 queued, KV 10 of 100 blocks .*; rank 1: 40 requests active, 10 queued, KV 97 of 100`, `b: 2 iterations; in the last one 5 requests active\.`}, []string{`KV 0 of 0`}},
		{"C37: several tokens a step, told by the counts alone", 0, []string{"a.prom", "vllm:generation_tokens_total{" + v0 + "} 400000\nvllm:request_success_total{finished_reason=\"stop\"," + v0 + "} 2000\n" +
			hist("vllm:inter_token_latency_seconds", v0, 5804.1, 0.05, 138194) + hist("vllm:request_time_per_output_token_seconds", v0, 29.2, 0.05, 2000)},
			[]string{`is the time of a step \(42\.0 ms on average, 138,194 observations\), not of a token: 398,000 tokens came after the first ones, about 2\.88 a step`, `the two agree`}, []string{`42\.0 ms between outputs`}},
		{"C37: one token a step: healthy", 0, []string{"a.prom", "vllm:generation_tokens_total{" + v0 + "} 400000\nvllm:request_success_total{finished_reason=\"stop\"," + v0 + "} 2000\n" + hist("vllm:inter_token_latency_seconds", v0, 7164, 0.05, 398000)},
			[]string{`18\.0 ms between outputs`}, []string{`of a step`}},
		{"C50: nvidia-smi's single reasons, on a host without a name", 0, []string{"a.csv", "index, uuid, clocks.current.sm [MHz], clocks_throttle_reasons.hw_slowdown, clocks_throttle_reasons.hw_power_brake_slowdown, utilization.gpu [%]\n0, GPU-0, 1980 MHz, Not Active, Not Active, 100 %\n1, GPU-1, 1980 MHz, Not Active, Not Active, 100 %\n2, GPU-2, 1095 MHz, Active, Active, 100 %\n"},
			[]string{`GPU 2 \(GPU-2\) is the straggler of the 3 GPUs at work on its host`, `136 = 0x88`, `the power feed`}, nil},
		{"C54: both names on one page", 0, []string{"a.prom", "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-0\"} 97\nDCGM_FI_DEV_GPU_UTIL_RATIO{gpu=\"0\",UUID=\"GPU-0\"} 97\n"}, []string{`GPU 0 \(GPU-0\): utilisation 97\.0 %\.`}, []string{`9,?700`}},
		{"the screen of nvidia-smi", 0, []string{"a.txt", `| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   61C    P0            512W /  700W |   71022MiB /  81559MiB |     97%      Default |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
| N/A   30C    P0             N/A /  N/A  |   71022MiB /  81559MiB |     N/A      Default |
`}, []string{`2 GPUs: utilisation 97\.0 %`, `power 512\.0 W`, `71,022 MiB`, `utilisation N/A`}, []string{`utilisation 0`}},
		{"a dead vLLM", 0, []string{"a.log", "INFO 03-11 09:00:00 [loggers.py:271] Engine 000: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 61.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 11.1%, Prefix cache hit rate: 75.0%\nERROR 03-11 09:00:11 [core.py:9] EngineCore encountered a fatal error.\n"},
			[]string{`BROKEN log: the engine died, in line 2`}, nil},
		{"SGLang's KV does not arrive", 0, []string{"a.log", "[2026-03-11 09:00:00 TP0] Decode batch, #running-req: 8, #token: 41211, token usage: 0.09, gen throughput (token/s): 412.33, #queue-req: 0\n[2026-03-11 09:00:10 TP0] Decode transfer failed for request rank=0 decode_req.req.rid='secret'\n"},
			[]string{`BROKEN log: KV did not get from the prefill node to the decode node, in line 2`}, []string{`secret`}},
		{"an expression's result", 0, []string{"a.json", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"a"},"value":[1,"2"]}]}}`}, []string{`1 series has no name`}, nil},
		{"a list of exports of traces", 0, []string{"a.json", `[{"resourceSpans":[]},{"resourceSpans":[]}]`}, nil, []string{`not traces`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			says(t, answered(t, texts(c.texts...), c.interval), c.says, c.never...)
		})
	}
}

// TestCrowd reads a metric with more series than anybody can tell apart: it is counted, named and not used, and takes no time.
func TestCrowd(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "vllm:num_requests_running{model_name=\"m%d\",engine=\"0\"} 1\n", i)
	}
	says(t, answered(t, texts("a.prom", b.String()), 0), []string{`All 5,000 are counted`, `has 5,000 series, and 2,000 are understood of one metric: none of them is used`}, `5000 models`)
}

// TestLaterCases look at cases whose whole answer needs more than a look: what is certain already is said.
func TestLaterCases(t *testing.T) {
	for _, c := range []fieldCase{
		{name: "C08", interval: time.Minute, says: []string{`68,880 of 336,000 drafted tokens were accepted while it was watched, 20\.5 %; a step brought 1\.82 tokens`, `Since its start it is 50\.7 %`}},
		{name: "C10", interval: time.Minute, says: []string{`TTFT is 2\.91 s on average, of it queue 4\.00 ms and prefill 208 ms\. The other 2\.70 s passed outside of the scheduler`, `0\.99 of a core`}},
		{name: "C14", says: []string{`9 waiting for a grammar`}},
		{name: "C18", says: []string{`pod-a \(KV 98 %\) of 2 hold 41 of 47 running and 96 of 96 waiting`, `pod-b \(KV 5 %\) are nearly empty`, `there is room`}, never: []string{`BROKEN`}},
	} {
		t.Run(c.name, func(t *testing.T) { says(t, answered(t, inputsOf(t, c.name), c.interval), c.says, c.never...) })
	}
}
