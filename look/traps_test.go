package look

import (
	"testing"
	"time"
)

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
	} {
		t.Run(c.name, func(t *testing.T) {
			says(t, answered(t, texts(c.texts...), c.interval), c.says, c.never...)
		})
	}
}
