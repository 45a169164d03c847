package look

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// texts are inputs as they stand: a name, its text, and so on.
func texts(of ...string) (inputs []Input) {
	for i := 0; i < len(of); i += 2 {
		in := named(of[i])
		in.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(of[i+1])), nil }
		inputs = append(inputs, in)
	}
	return inputs
}

func answered(t *testing.T, inputs []Input, interval time.Duration) string {
	t.Helper()
	scene, err := Read(context.Background(), inputs, Options{Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Judge(scene).Text(&b, 110); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestProducers reads a page of each producer that has no field case, in its own names and units.
func TestProducers(t *testing.T) {
	for _, c := range []struct {
		name  string
		texts []string
		says  []string
		never []string
	}{
		{"Envoy: milliseconds, by cluster", []string{"e.t0.prom", "", "e.t1.prom", `# TYPE envoy_cluster_upstream_rq counter
envoy_cluster_upstream_rq{envoy_response_code="200",envoy_cluster_name="vllm"} 980
envoy_cluster_upstream_rq_xx{envoy_response_code_class="2",envoy_cluster_name="vllm"} 980
envoy_cluster_upstream_rq_xx{envoy_response_code_class="5",envoy_cluster_name="vllm"} 20
envoy_cluster_upstream_rq_timeout{envoy_cluster_name="vllm"} 12
envoy_cluster_upstream_rq_retry{envoy_cluster_name="vllm"} 31
envoy_cluster_upstream_rq_pending_overflow{envoy_cluster_name="vllm"} 0
# TYPE envoy_cluster_upstream_rq_time histogram
envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="vllm",le="500"} 10
envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="vllm",le="5000"} 1000
envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="vllm",le="+Inf"} 1000
envoy_cluster_upstream_rq_time_sum{envoy_cluster_name="vllm"} 2400000
envoy_cluster_upstream_rq_time_count{envoy_cluster_name="vllm"} 1000
# TYPE envoy_http_downstream_rq_time histogram
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="http",le="60000"} 40
envoy_http_downstream_rq_time_bucket{envoy_http_conn_manager_prefix="http",le="+Inf"} 100
envoy_http_downstream_rq_time_sum{envoy_http_conn_manager_prefix="http"} 9000000
envoy_http_downstream_rq_time_count{envoy_http_conn_manager_prefix="http"} 100
`}, []string{`found Envoy: vllm`, `12 calls given up`, `31 calls repeated`, `20 failures of engines`, `60 of 100 are above 60\.0 s`}, []string{`60,000`, `turned away`}},
		{"an AI gateway by the conventions: seconds", []string{"g.prom", `# TYPE gen_ai_server_time_to_first_token_seconds histogram
gen_ai_server_time_to_first_token_seconds_bucket{gen_ai_request_model="nova",le="0.5"} 0
gen_ai_server_time_to_first_token_seconds_bucket{gen_ai_request_model="nova",le="1"} 100
gen_ai_server_time_to_first_token_seconds_bucket{gen_ai_request_model="nova",le="+Inf"} 100
gen_ai_server_time_to_first_token_seconds_sum{gen_ai_request_model="nova"} 70
gen_ai_server_time_to_first_token_seconds_count{gen_ai_request_model="nova"} 100
`}, []string{`found GenAI instrumentation: nova`, `TTFT p99 500 ms to 1\.00 s, mean 700 ms`}, nil},
		{"Triton: microseconds, and GPUs by UUID", []string{"t.prom", `# TYPE nv_inference_request_success counter
nv_inference_request_success{model="llm",version="1"} 1000
nv_inference_request_failure{model="llm",reason="REJECTED",version="1"} 10
nv_inference_queue_duration_us{model="llm",version="1"} 42000000
nv_inference_pending_request_count{model="llm",version="1"} 3
nv_trt_llm_request_metrics{model="llm",request_type="active",version="1"} 17
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="llm",version="1"} 0.73
# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_bucket{model="llm",version="1",le="100"} 0
nv_inference_first_response_histogram_ms_bucket{model="llm",version="1",le="500"} 1000
nv_inference_first_response_histogram_ms_bucket{model="llm",version="1",le="+Inf"} 1000
nv_inference_first_response_histogram_ms_sum{model="llm",version="1"} 212000
nv_inference_first_response_histogram_ms_count{model="llm",version="1"} 1000
nv_gpu_utilization{gpu_uuid="GPU-17"} 0.97
nv_gpu_power_usage{gpu_uuid="GPU-17"} 512.4
nv_gpu_memory_used_bytes{gpu_uuid="GPU-17"} 74471964672
`}, []string{`found Triton: llm, 1 target, 1 GPU`, `3 waiting, 17 running`, `queue mean 42\.0 ms`, `10 of 1,010 failed`, `TTFT p99 100 ms to 500 ms, mean 212 ms`, `KV cache 73\.0 %`, `utilisation 97\.0 %`, `power 512\.4 W`, `memory 71,022 MiB`}, nil},
		{"Triton with vLLM: labels of its own", []string{"v.prom", `# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model="nova",version="1"} 7
# TYPE vllm:time_per_output_token_seconds histogram
vllm:time_per_output_token_seconds_bucket{model="nova",version="1",le="0.1"} 10
vllm:time_per_output_token_seconds_bucket{model="nova",version="1",le="+Inf"} 10
vllm:time_per_output_token_seconds_sum{model="nova",version="1"} 0.3
vllm:time_per_output_token_seconds_count{model="nova",version="1"} 10
`}, []string{`found vLLM: nova`, `30\.0 ms between outputs`}, []string{`Mixed versions`}},
		{"LMDeploy", []string{"l.prom", `lmdeploy:num_requests_running{engine="0",model_name="nova"} 4
lmdeploy:num_requests_waiting{engine="0",model_name="nova"} 2
lmdeploy:gpu_cache_usage_perc{engine="0",model_name="nova"} 0.41
# TYPE lmdeploy:time_to_first_token_seconds histogram
lmdeploy:time_to_first_token_seconds_bucket{engine="0",model_name="nova",le="0.5"} 10
lmdeploy:time_to_first_token_seconds_bucket{engine="0",model_name="nova",le="+Inf"} 10
lmdeploy:time_to_first_token_seconds_sum{engine="0",model_name="nova"} 2
lmdeploy:time_to_first_token_seconds_count{engine="0",model_name="nova"} 10
`}, []string{`found LMDeploy: nova`, `2 waiting, 4 running`, `mean 200 ms`, `KV cache 41\.0 %`}, nil},
		{"an endpoint picker of three generations counts once", []string{"p.prom", `inference_objective_request_total{model_name="nova"} 100
llm_d_epp_request_total{model_name="nova"} 100
inference_objective_request_error_total{model_name="nova"} 4
llm_d_epp_request_error_total{model_name="nova",error_code="503"} 4
inference_pool_average_kv_cache_utilization{name="pool"} 0.51
llm_d_epp_average_kv_cache_utilization{name="pool"} 0.51
llm_d_epp_request_running{model_name="nova"} 12
`, "engine.prom", "vllm:num_requests_running{model_name=\"nova\",engine=\"0\"} 12\nvllm:num_requests_waiting{model_name=\"nova\",engine=\"0\"} 0\n"},
			[]string{`found the endpoint picker: nova, 1 target`, `4 failed`, `KV cache 51\.0 %`}, []string{`24 running`, `8 failed`}},
		{"LiteLLM of an older generation", []string{"l.prom", `litellm_requests_metric_total{model="nova",end_user="j@example.org"} 100
# TYPE litellm_request_total_latency_metric histogram
litellm_request_total_latency_metric_bucket{requested_model="nova",end_user="j@example.org",le="10"} 100
litellm_request_total_latency_metric_bucket{requested_model="nova",end_user="j@example.org",le="+Inf"} 100
litellm_request_total_latency_metric_sum{requested_model="nova",end_user="j@example.org"} 230
litellm_request_total_latency_metric_count{requested_model="nova",end_user="j@example.org"} 100
litellm_in_flight_requests 5
`}, []string{`found LiteLLM: nova`, `5 running`}, []string{`example\.org`}},
		{"a router that copies its engines' series", []string{"r.prom", "vllm:num_requests_running{server=\"http://v-0:8000\"} 12\n", "v.prom", "vllm:num_requests_running{model_name=\"nova\",engine=\"0\"} 12\n"},
			[]string{`12 running`, `found vLLM: nova, 1 target`}, []string{`24 running`}},
		{"AMD's exporter: partitions have no power, all ones are none", []string{"a.prom", `# TYPE amd_gpu_package_power gauge
amd_gpu_package_power{gpu_id="0",gpu_partition_id="0",hostname="mi-1"} 612
amd_gpu_package_power{gpu_id="0",gpu_partition_id="1",hostname="mi-1"} 0
amd_gpu_gfx_activity{gpu_id="0",gpu_partition_id="0",hostname="mi-1"} 97
amd_gpu_junction_temperature{gpu_id="0",gpu_partition_id="0",hostname="mi-1"} 65535
amd_gpu_used_vram{gpu_id="0",gpu_partition_id="0",hostname="mi-1"} 180000
amd_gpu_clock{clock_index="0",clock_type="system",gpu_id="0",gpu_partition_id="0",hostname="mi-1"} 2100
amd_gpu_clock{clock_index="1",clock_type="system",gpu_id="0",gpu_partition_id="0",hostname="mi-1"} 132
`}, []string{`utilisation 97\.0 %`, `power 612\.0 W`, `SM clock 2,100 MHz`, `temperature not supported`, `180,000 MiB`, `AMD's exporter: 1 target, 1 GPU`}, []string{`65,?535`, `power 0`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			says(t, answered(t, texts(c.texts...), 0), c.says, c.never...)
		})
	}
}
