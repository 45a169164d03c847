package look

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// moments is a range answer of a Prometheus: series with a value every 15 s from 10:00:00 UTC on.
func moments(series ...any) string {
	type one struct {
		Metric map[string]string `json:"metric"`
		Values [][2]any          `json:"values"`
	}
	var all []one
	for i := 0; i < len(series); i += 2 {
		s := one{Metric: series[i].(map[string]string)}
		for k, v := range series[i+1].([]float64) {
			s.Values = append(s.Values, [2]any{1773223200 + 15*k, fmt.Sprint(v)})
		}
		all = append(all, s)
	}
	b, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": all}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// along is one value for each of n moments.
func along(n int, f func(i int) float64) (vs []float64) {
	for i := range n {
		vs = append(vs, f(i))
	}
	return vs
}

func steady(n int, v float64) []float64 { return along(n, func(int) float64 { return v }) }

// of is a series of an engine at an address.
func of(name, instance string) map[string]string {
	return map[string]string{"__name__": name, "model_name": "nova", "engine": "0", "instance": instance, "job": "vllm"}
}

// gpu0 is a series of a GPU.
func gpu0(name string) map[string]string {
	return map[string]string{"__name__": name, "gpu": "0", "UUID": "GPU-0", "Hostname": "n1"}
}

// TestRelatives are more relatives of the field cases, most of which need a history.
func TestRelatives(t *testing.T) {
	for _, c := range []struct {
		name     string
		interval time.Duration
		texts    []string
		says     []string
		never    []string
	}{
		{"C70: an engine's counter reads 0 once: no restart", 0, []string{"r.json", moments(
			of("vllm:generation_tokens_total", "a:8000"), along(20, func(i int) float64 {
				if i == 8 {
					return 0
				}
				return 1e6 + 2000*float64(i)
			}), of("vllm:num_requests_running", "a:8000"), steady(20, 5))},
			[]string{`133 tok/s out`, `vllm:generation_tokens_total of nova on a:8000 reads 0 at 10:02:00 UTC \(sample 8\), between 1,014,000 and 1,018,000: a bad read, no restart`}, []string{`restarted`, `3,691`}},
		{"C70: an engine that restarted", 0, []string{"r.json", moments(of("vllm:generation_tokens_total", "a:8000"), along(20, func(i int) float64 { return 2000 * float64(i%10) }))}, []string{`restarted: its counters begin anew`}, []string{`bad read`}},
		{"C70: a last 0 is a reset or a bad read", 0, []string{"r.json", moments(gpu0("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), along(20, func(i int) float64 {
			if i == 19 {
				return 0
			}
			return 126e9 + 15e6*float64(i)
		}))}, []string{`the last one, it reads 0 J: a reset or a bad read, which only the next one tells`, `270\.0 kJ over samples 0 to 18`}, []string{`true reset`, `samples 19 to 19`}},
		{"C70: a rate that is declared a gauge: healthy", 0, []string{"a.t0.prom", "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES gauge\nDCGM_FI_PROF_PCIE_TX_BYTES{gpu=\"0\",UUID=\"GPU-0\"} 2e9\n", "a.t1.prom", "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES gauge\nDCGM_FI_PROF_PCIE_TX_BYTES{gpu=\"0\",UUID=\"GPU-0\"} 1e9\n"}, []string{`1 GPU`}, []string{`wrong`}},
		{"C70: and yet a query takes its rate", 0, []string{"a.t0.prom", "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES gauge\nDCGM_FI_PROF_PCIE_TX_BYTES{gpu=\"0\",UUID=\"GPU-0\"} 2e9\n", "a.t1.prom", "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES gauge\nDCGM_FI_PROF_PCIE_TX_BYTES{gpu=\"0\",UUID=\"GPU-0\"} 1e9\n", "q.promql", "rate(DCGM_FI_PROF_PCIE_TX_BYTES[1m])\n"}, []string{`Wrong so far: q\.promql line 1`}, nil},
		{"a target that is not seen any more is no load of now", 0, []string{"r.json", moments(
			of("vllm:num_requests_running", "a:8000"), steady(40, 5), of("vllm:num_requests_waiting", "a:8000"), steady(40, 0), of("vllm:generation_tokens_total", "a:8000"), along(40, func(i int) float64 { return 1000 * float64(i) }),
			of("vllm:num_requests_running", "b:8000"), steady(10, 50), of("vllm:num_requests_waiting", "b:8000"), steady(10, 90), of("vllm:kv_cache_usage_perc", "b:8000"), steady(10, 0.99), of("vllm:generation_tokens_total", "b:8000"), along(10, func(i int) float64 { return 10 * float64(i) }))},
			[]string{`in all 5 running, 0 waiting|request 0 waiting, 5 running \(nova on a:8000\)`, `67 tok/s out \(nova on a:8000\)`, `nova on b:8000 is not seen any more since 10:02:15 UTC, 450 s before the newest sample: vllm:num_requests_running 50(\.0)?, vllm:num_requests_waiting 90(\.0)?, vllm:kv_cache_usage_perc 0\.990 at last`},
			[]string{`55 running`, `KV cache 99`}},
		{"two that stopped together: nobody is newer", 0, []string{"r.json", moments(of("vllm:num_requests_running", "a:8000"), steady(10, 5), of("vllm:num_requests_running", "b:8000"), steady(10, 6))}, []string{`11 running`}, []string{`any more`}},
		{"labels that are replaced are no loss", 0, []string{"r.json", moments(of("vllm:num_requests_running", "a:8000"), steady(40, 5),
			map[string]string{"__name__": "vllm:num_requests_running", "model_name": "nova", "engine": "0", "instance": "a:8000", "job": "vllm", "version": "1"}, steady(10, 7))}, []string{`5 running`}, []string{`any more`, `12 running`}},
		{"C48: PROF data that are not told any more, while the GPU works on", 0, []string{"r.json", moments(gpu0("DCGM_FI_PROF_SM_ACTIVE"), steady(5, 0.88), gpu0("DCGM_FI_DEV_GPU_UTIL"), steady(20, 99), gpu0("DCGM_FI_DEV_POWER_USAGE"), along(20, func(i int) float64 { return 600 + float64(i%3) }))},
			[]string{`wrong Of GPU 0 of n1 a part is not told any more since 10:01:00 UTC, 225 s before the newest sample, though the rest is: DCGM_FI_PROF_SM_ACTIVE 0\.880 at last`, `SM active unknown by now`}, []string{`SM active 88`}},
		{"a share in per cent", 0, []string{"a.prom", "vllm:num_requests_running{" + v0 + "} 5\nvllm:kv_cache_usage_perc{" + v0 + "} 62\n"}, []string{`vllm:kv_cache_usage_perc of nova on a is no value in 1 sample: corrupt \(outside 0 to 1\.05\), 62 at last`, `divide it by 100`}, []string{`KV cache 6`}},
		{"fewer requests than none", 0, []string{"a.prom", "sglang:num_running_reqs{model_name=\"nova\"} -5\nsglang:token_usage{model_name=\"nova\"} 0.2\n"}, []string{`sglang:num_running_reqs of nova on a is no value in 1 sample: corrupt .*, -5 at last`, `KV cache 20\.0 %`}, []string{`-5 running`}},
		{"C20: steps that took no time", 0, []string{"a.prom", hist("vllm:inter_token_latency_seconds", v0, 0, 0.01, 5000, 1, 5000)}, []string{`vllm:inter_token_latency_seconds of nova on a cannot be: 5,000 of 5,000 observations are at most 10\.0 ms, 0 s on average, which no engine can do\. The time between outputs is unknown, not short`}, []string{`0 s between outputs`}},
		{"C20: requests that took no time", 0, []string{"a.prom", hist("sglang:e2e_request_latency_seconds", `model_name="nova"`, 0.0003, 0.1, 300, 40, 300)}, []string{`End-to-end latency is unknown, not short`}, []string{`can be used`}},
		{"C20: a small and fast engine: healthy", 0, []string{"a.prom", hist("vllm:inter_token_latency_seconds", v0, 2, 0.01, 5000, 1, 5000)}, nil, []string{`cannot be`}},
		{"TGI computes nothing", time.Minute, []string{"e.t0.prom", tgiAt(700), "e.t1.prom", tgiAt(700)}, []string{`BROKEN TGI on e: 11 requests run, and not one token came out in 60\.0 s`}, nil},
		{"TGI computes: healthy", time.Minute, []string{"e.t0.prom", tgiAt(700), "e.t1.prom", tgiAt(900)}, []string{`40 waiting, 11 running`}, []string{`BROKEN`}},
		{"llama.cpp decodes nothing", time.Minute, []string{"e.t0.prom", llamaAt(1000), "e.t1.prom", llamaAt(1000)}, []string{`BROKEN llama\.cpp on e: 2 requests run, and not one token came out in 60\.0 s`}, nil},
		{"llama.cpp decodes, and no request ends: healthy", time.Minute, []string{"e.t0.prom", llamaAt(1000), "e.t1.prom", llamaAt(1400)}, []string{`2 running`}, []string{`BROKEN`, `none ended`, ` 0 tok/s`}},
		{"llama.cpp's count of decodes is rounded: not known", time.Minute, []string{"e.t0.prom", llamaAt(1.23457e+08), "e.t1.prom", llamaAt(1.23457e+08)}, []string{`whether tokens come out is not known`}, []string{`BROKEN`}},
		{"a restart between scrapes without a time", time.Minute, []string{"e.t0.prom", "vllm:generation_tokens_total{" + v0 + "} 9000\n", "e.t1.prom", "vllm:generation_tokens_total{" + v0 + "} 10\n"}, []string{`changed e: restarted`}, []string{`1970`}},
		{"names whose colon somebody has replaced", 0, []string{"a.prom", "vllm_num_requests_running{" + v0 + "} 5\nvllm_kv_cache_usage_perc{" + v0 + "} 0.5\n" + hist("vllm_time_to_first_token_seconds", v0, 300, 0.25, 500, 1, 1000), "q.promql", "avg(vllm_kv_cache_usage_perc)\n"},
			[]string{`vLLM: nova`, `5 running`, `KV cache 50\.0 %`, `TTFT p99`}, []string{`finds nothing`}},
		{"and in a Prometheus", 0, []string{"r.json", moments(map[string]string{"__name__": "sglang_num_running_reqs", "model_name": "nova", "instance": "a:8000"}, steady(5, 6))}, []string{`SGLang: nova`, `6 running`}, nil},
		{"C34: somebody else's names are no TensorRT-LLM", 0, []string{"a.prom", hist("time_to_first_token_seconds", `app="mine"`, 9, 0.1, 1, 1, 9)}, []string{`nothing that is known`}, []string{`TensorRT`}},
		{"C38: longer on the way than until the first token, and the engine is silent", 0, []string{"frontend.prom", hist("dynamo_frontend_time_to_first_token_seconds", `model="nova"`, 2600, 0.1, 0, 0.47, 9000, 1, 10000), "worker.prom", hist("dynamo_work_handler_network_transit_seconds", `dynamo_component="backend"`, 1750, 0.1, 0, 0.5, 5000)},
			[]string{`of worker cannot be: 350 ms on average, .* more than the 260 ms that the front end saw`, `ahead, by at least 90\.0 ms`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			says(t, answered(t, texts(c.texts...), c.interval), c.says, c.never...)
		})
	}
}

// tgiAt and llamaAt are pages of a busy engine that has made so many steps.
func tgiAt(steps float64) string {
	return "tgi_batch_current_size 11\ntgi_queue_size 40\n" + hist("tgi_batch_forward_duration", `method="decode"`, steps/25, 0.05, steps)
}

func llamaAt(steps float64) string {
	return fmt.Sprintf("llamacpp:requests_processing 2\n# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total 5123\n# TYPE llamacpp:n_decode_total counter\nllamacpp:n_decode_total %v\n", steps)
}
