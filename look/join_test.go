package look

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/identity"
)

const (
	scraped = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="llama",namespace="prod",pod="llama-0",instance="10.0.0.3:8000"} 3
vllm:num_requests_running{engine="1",model_name="llama",namespace="prod",pod="llama-0",instance="10.0.0.3:8000"} 4
`
	other = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="llama",namespace="prod",pod="llama-1",instance="10.0.0.4:8000"} 3
`
	gpus = `# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="gpu-7",exported_namespace="prod",exported_pod="llama-0",namespace="ops",pod="exporter-x"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",Hostname="gpu-7",exported_namespace="prod",exported_pod="gone-5",namespace="ops",pod="exporter-x"} 0
`
	spans = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"vllm"}},{"key":"k8s.pod.name","value":{"stringValue":"llama-0"}},{"key":"k8s.namespace.name","value":{"stringValue":"prod"}}]},
"scopeSpans":[{"spans":[{"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"0001020304050607","name":"llm_request","kind":2,"startTimeUnixNano":"1768471200000000000","endTimeUnixNano":"1768471201000000000",
"attributes":[{"key":"gen_ai.request.id","value":{"stringValue":"r1"}},{"key":"gen_ai.usage.completion_tokens","value":{"intValue":"5"}}]}]}]}]}`
)

// The ranks of one engine are one thing, a relabelled scrape's pod is the exporter's, and the models of two replicas join nothing.
func TestSourcesAreJoined(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.prom": scraped, "b.prom": other, "gpu.prom": gpus, "traces.otlp.json": spans} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inputs, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), inputs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := Join(s)
	name := func(i int) string { return j.Things[i].Name }
	var got []string
	for _, l := range j.Links {
		verb := " is "
		if l.WorksOn {
			verb = " works on "
		}
		if !l.Certain {
			verb = " may be "
		}
		got = append(got, name(l.A)+verb+name(l.B)+" by "+string(l.Attr)+" "+l.Value+" ("+l.FromA+"; "+l.FromB+")")
	}
	for _, l := range j.Loose {
		got = append(got, name(l.Thing)+" alone: "+l.Why)
	}
	want := []string{
		"vLLM at s/a works on GPU 0 of gpu-7 at s/gpu by pod prod/llama-0 (label pod; labels of the workload)",
		"vLLM at s/a is vllm llama-0 by pod prod/llama-0 (label pod; k8s.pod.name)",
		"GPU 1 of gpu-7 at s/gpu alone: no other source has its uuid GPU-b, and no engine was seen of its pod prod/gone-5",
		"vLLM at s/b alone: no other source has its pod prod/llama-1, pod name llama-1, address 10.0.0.4:8000, model llama",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("joined\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, thing := range j.Things {
		if thing.Kind == identity.Gateway {
			t.Errorf("%s is an engine", thing.Name)
		}
	}
}
