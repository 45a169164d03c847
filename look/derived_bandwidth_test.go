package look

import (
	"strings"
	"testing"
)

// A bandwidth is refused, with the reason, where it would not be honest.
func TestBandwidthIsRefused(t *testing.T) {
	const engine = "vllm:num_requests_running{model_name=\"m\"} 1\nvllm:generation_tokens_total{model_name=\"m\"} 9\n"
	for series, want := range map[string]string{
		`DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="n",modelName="NVIDIA Secret 9000"} 0.5`:                               "no peak bandwidth is known of NVIDIA Secret 9000",
		`DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="n"} 0.5`:                                                              "its model is not told",
		`DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a",Hostname="n",modelName="NVIDIA H200",GPU_I_PROFILE="3g.71gb",GPU_I_ID="2"} 0.5`: "partitioned (MIG)",
		`DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",UUID="GPU-a",Hostname="n",modelName="NVIDIA H200"} 50`:                                      "DRAM active is not read",
	} {
		s := scene(t, pages("e", true, engine+series+"\n"))
		said := strings.Join(notDerived(s), "; ")
		if !strings.Contains(said, want) {
			t.Errorf("%s: %q", series, said)
		}
		for _, d := range derivedIn(s) {
			if d.Signal == "gpu.memory_bandwidth" {
				t.Errorf("%s: %+v", series, d)
			}
		}
	}
}
