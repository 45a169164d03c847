package look

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sceneOf reads pages by the names of their targets.
func sceneOf(t *testing.T, pages map[string]string) *Scene {
	t.Helper()
	dir := t.TempDir()
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name+".prom"), []byte(text), 0o600); err != nil {
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
	return s
}

const (
	outdatedUsage = "# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.5\n"
	currentUsage  = "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"m\",engine=\"0\"} 0.5\n"
	olderGaps     = "# TYPE vllm:time_per_output_token_seconds histogram\nvllm:time_per_output_token_seconds_bucket{model_name=\"m\",le=\"0.1\"} 1\nvllm:time_per_output_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 1\nvllm:time_per_output_token_seconds_sum{model_name=\"m\"} 0.05\nvllm:time_per_output_token_seconds_count{model_name=\"m\"} 1\n"
	newerGaps     = "# TYPE vllm:inter_token_latency_seconds histogram\nvllm:inter_token_latency_seconds_bucket{model_name=\"m\",le=\"0.1\"} 1\nvllm:inter_token_latency_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 1\nvllm:inter_token_latency_seconds_sum{model_name=\"m\"} 0.05\nvllm:inter_token_latency_seconds_count{model_name=\"m\"} 1\n"
)

func gpuOn(node string) string {
	return "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-1f\",Hostname=\"" + node + "\"} 90\n"
}

// Facts for whoever looks after what arrives: each of one situation, and none where all is as it should be.
func TestCare(t *testing.T) {
	for name, c := range map[string]struct {
		pages map[string]string
		id    string
		says  []string
	}{
		"one signal twice": {map[string]string{"a": outdatedUsage + currentUsage}, "two-names", []string{"kv.usage", "vllm:gpu_cache_usage_perc", "Only the second is read", "--show-hidden-metrics-for-version"}},
		"one GPU twice":    {map[string]string{"a": gpuOn("n1"), "b": gpuOn("n\x1b[2J")}, "two-nodes", []string{"GPU GPU-1f is on 2 nodes at once", `n\x1b[2J`, "n1"}},
		"another meaning":  {map[string]string{"a": olderGaps, "b": newerGaps}, "two-meanings", []string{"itl does not mean the same everywhere", "the older, misleading name", "one observation a step"}},
		"one version":      {map[string]string{"a": currentUsage + newerGaps, "b": currentUsage + newerGaps, "c": gpuOn("n1")}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			facts := TakeInventory(sceneOf(t, c.pages)).Facts
			var of []Fact
			for _, f := range facts {
				if slices.Contains([]string{"two-names", "two-nodes", "two-meanings"}, f.ID) {
					of = append(of, f)
				}
			}
			if c.id == "" && len(of) == 0 {
				return
			}
			if len(of) != 1 || of[0].ID != c.id || of[0].Do == "" {
				t.Fatalf("%+v", facts)
			}
			for _, want := range c.says {
				if !strings.Contains(of[0].Text+of[0].Do, want) {
					t.Errorf("no %q in %+v", want, of[0])
				}
			}
		})
	}
}

// An objective is seen where a bucket ends at it, and nowhere else.
func TestUnseenObjectives(t *testing.T) {
	page := "# TYPE vllm:time_to_first_token_seconds histogram\n"
	for _, le := range []string{"0.1", "0.25", "0.5", "+Inf"} {
		page += "vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"" + le + "\"} 1\n"
	}
	s := sceneOf(t, map[string]string{"a": page, "b": page})
	for within, want := range map[time.Duration]string{
		250 * time.Millisecond: "", 500 * time.Millisecond: "", 0: "",
		300 * time.Millisecond: "it lies between two of its buckets, 250 ms and 500 ms.|Set objectives.ttft: 250ms or 500ms;",
		50 * time.Millisecond:  "it lies below its first bucket, 100 ms.|Set objectives.ttft: 100ms;",
		2 * time.Second:        "it lies above its last bucket, 500 ms.|Set objectives.ttft: 500ms;",
	} {
		facts := Unseen(s, []Promise{{"objectives.ttft", "gen_ai.server.time_to_first_token", within}})
		text, do, _ := strings.Cut(want, "|")
		if want == "" && len(facts) == 0 {
			continue
		}
		if len(facts) != 1 || text == "" || !strings.Contains(facts[0].Text, text) || !strings.HasPrefix(facts[0].Do, do) {
			t.Errorf("%s: %+v", within, facts)
		}
	}
}

// A weight has a name, and is read by it.
func TestWeights(t *testing.T) {
	for _, w := range []Weight{Broken, Wrong, Notice} {
		b, err := w.MarshalText()
		var got Weight
		if err != nil || got.UnmarshalText(b) != nil || got != w {
			t.Errorf("%s", b)
		}
	}
	if err := new(Weight).UnmarshalText([]byte("green")); err == nil {
		t.Error("green is no weight")
	}
}
