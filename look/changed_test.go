package look

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/ledger"
)

// pages are scrapes of one target, a minute apart; without times only their order is known.
func pages(target string, timed bool, texts ...string) (inputs []Input) {
	for i, text := range texts {
		in := Input{Name: fmt.Sprintf("%s.t%d", target, i), Target: target, Order: int64(i), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
		if timed {
			in.At = (1773219000 + 60*int64(i)) * 1e9
		}
		inputs = append(inputs, in)
	}
	return inputs
}

func scene(t testing.TB, inputs []Input) *Scene {
	t.Helper()
	s, err := Read(context.Background(), inputs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// said are changes in a line each.
func said(changes []ledger.Change) (lines []string) {
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s→%s %d-%d", c.Kind, c.Engine, c.Subject, c.From, c.To, c.After/1e9-1773219000, c.At/1e9-1773219000))
	}
	return lines
}

func engineAt(model, block string, tokens int, more string) string {
	return fmt.Sprintf("vllm:num_requests_running{engine=\"0\",model_name=%q} 3\nvllm:cache_config_info{engine=\"0\",block_size=%q,cache_dtype=\"auto\",pod=\"p-%s\"} 1\nvllm:generation_tokens_total{engine=\"0\",model_name=%q} %d\n%s", model, block, block, model, tokens, more)
}

func TestChangesShowByThemselves(t *testing.T) {
	start := func(at int) string { return fmt.Sprintf("process_start_time_seconds %d.25\n", at) }
	lora := func(names string) string {
		return fmt.Sprintf("vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} 1.7e9\n", names)
	}
	gpu := func(driver string) string {
		s := ""
		for i := range 2 {
			s += fmt.Sprintf("DCGM_FI_DEV_GPU_TEMP{gpu=\"%d\",UUID=\"GPU-%d\",DCGM_FI_DRIVER_VERSION=%q} 40\nDCGM_FI_DEV_POWER_USAGE{gpu=\"%d\",UUID=\"GPU-%d\",DCGM_FI_DRIVER_VERSION=%q} 400\n", i, i, driver, i, i, driver)
		}
		return s
	}
	for _, c := range []struct {
		name  string
		pages []string
		want  []string
	}{
		{"nothing", []string{engineAt("m", "16", 5, ""), engineAt("m", "16", 9, "")}, nil},
		{"a setting, which the pod's name is not", []string{engineAt("m", "16", 5, ""), engineAt("m", "16", 9, ""), engineAt("m", "32", 12, "")}, []string{"setting e block_size: 16→32 60-120"}},
		{"a model", []string{engineAt("m", "16", 5, ""), engineAt("n", "16", 9, "")}, []string{"model e served_model: m→n 0-60"}},
		{"a restart by its start", []string{engineAt("m", "16", 5, start(1773218000)), engineAt("m", "16", 3, start(1773219030)), engineAt("m", "16", 9, start(1773219030))}, []string{"restart e e: → 0-30"}},
		{"a start that wavers", []string{start(1773218000) + engineAt("m", "16", 5, ""), engineAt("m", "16", 6, start(1773218001))}, nil},
		{"a restart by its counters", []string{engineAt("m", "16", 5, ""), engineAt("m", "16", 3, "")}, []string{"restart e e: → 0-60"}},
		{"there and back", []string{engineAt("m", "16", 1, ""), engineAt("m", "32", 2, ""), engineAt("m", "16", 3, "")}, []string{"setting e block_size: 16→32 0-60", "setting e block_size: 32→16 60-120"}},
		{"an adapter", []string{lora("a") + engineAt("m", "16", 1, ""), lora("") + engineAt("m", "16", 2, ""), lora("a,b") + engineAt("m", "16", 3, "")}, []string{"adapter e b: →b 60-120"}},
		{"one driver of two GPUs", []string{gpu("550.1"), gpu("560.2")}, []string{"version e DCGM_FI_DRIVER_VERSION: 550.1→560.2 0-60"}},
		{"a version, weights and a prompt", []string{"build_info{version=\"1\",quantization=\"fp8\",prompt_template=\"a\",index_version=\"1\"} 1\n", "build_info{version=\"2\",quantization=\"awq\",prompt_template=\"b\",index_version=\"2\"} 1\n"},
			[]string{"prompt e prompt_template: a→b 0-60", "retrieval e index_version: 1→2 0-60", "version e build_info: 1→2 0-60", "weights e quantization: fp8→awq 0-60"}},
		{"two that cannot be told apart", []string{"x_info{a=\"1\"} 1\nx_info{a=\"2\"} 1\n", "x_info{a=\"3\"} 1\nx_info{a=\"4\"} 1\n"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scene(t, pages("e", true, c.pages...))
			got := ChangesOf(s.Tracks)
			if diff := cmp.Diff(c.want, said(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(got, ChangesOf(s.Tracks)); diff != "" {
				t.Errorf("the second time:\n%s", diff)
			}
			untimed := ChangesOf(scene(t, pages("e", false, c.pages...)).Tracks)
			if len(untimed) != len(got) {
				t.Errorf("without times: %q", said(untimed))
			}
			for _, c := range untimed {
				if c.ID == "" || c.After != 0 || c.At > 1e18 && c.Kind != ledger.ChangeRestart {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// A Prometheus shows a series for minutes after its last sample: both are there for a while.
func TestAnOldSeriesThatStays(t *testing.T) {
	both := engineAt("m", "16", 5, "") + "vllm:cache_config_info{engine=\"0\",block_size=\"32\",cache_dtype=\"auto\"} 1\n"
	got := said(ChangesOf(scene(t, pages("e", true, engineAt("m", "16", 5, ""), both, both, engineAt("m", "32", 9, ""))).Tracks))
	if diff := cmp.Diff([]string{"setting e block_size: 16→32 0-60"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestComingAndGoing(t *testing.T) {
	var inputs []Input
	for i := range 20 {
		for target, is := range map[string]bool{"a": true, "b": i >= 8, "c": i < 10} {
			if is {
				in := pages(target, true, engineAt("m", "16", 5+i, ""))[0]
				in.At += int64(i) * 60e9
				inputs = append(inputs, in)
			}
		}
	}
	got := said(ChangesOf(scene(t, inputs).Tracks))
	if diff := cmp.Diff([]string{"deployment b b: →b 420-480", "deployment c c: c→ 540-600"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What was told and what shows stand in order of time, the same of many targets once, beside what moved.
func TestChangedMeanwhile(t *testing.T) {
	var inputs []Input
	for _, target := range []string{"pod-0", "pod-1", "pod-2", "pod-3"} {
		var texts []string
		tokens := 0
		for i := range 10 {
			block, per := "16", 60_000
			if i >= 5 {
				block, per = "32", 6_000
			}
			tokens += per
			texts = append(texts, engineAt("m", block, tokens, ""))
		}
		inputs = append(inputs, pages(target, true, texts...)...)
	}
	inputs = append(inputs, Input{Name: "changes.jsonl", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(`{"at_unix_ns":1773219270000000000,"kind":"deployment","subject":"chat","source":"pipeline 7","text":"chat is v42, was v41"}` + "\n")), nil
	}})
	var b bytes.Buffer
	if err := Judge(scene(t, inputs)).Text(&b, 110); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"changed 2026-03-11 08:54:30 UTC, chat is v42, was v41 (pipeline 7). Before it → after it: output 4,000 tok/s → 400 tok/s.",
		"changed 2026-03-11 08:54:00 to 08:55:00 UTC, 4 targets (pod-0, pod-1, pod-2, pod-3): block_size is 32, was 16 (vllm:cache_config_info). Before it → after it: output 4,000 tok/s → 400 tok/s.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q in\n%s", want, text)
		}
	}
	if strings.Count(text, "changed ") != 2 {
		t.Error(text)
	}
}

func TestALogsStarts(t *testing.T) {
	const start = `INFO 03-11 09:%02d:00 [api_server.py:1] vLLM API server version %s
INFO 03-11 09:%02d:01 [utils.py:1] non-default args: {'model': 'acme/m', 'max_num_seqs': %d, 'port': %d}
INFO 03-11 09:%02d:02 [kv_cache_utils.py:1] GPU KV cache size: 1,000 tokens
INFO 03-11 09:%02d:30 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%%, Prefix cache hit rate: 0.0%%
`
	text := fmt.Sprintf(start, 0, "0.31.0", 0, 256, 8000, 0, 0) + fmt.Sprintf(start, 5, "0.32.0", 5, 32, 8001, 5, 5)
	in := Input{Name: "engine.log", Target: "engine", Modified: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	s, err := Read(context.Background(), []Input{in}, Options{Zone: time.UTC})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changesIn(s) {
		got = append(got, string(c.Kind)+": "+c.text())
	}
	want := []string{"restart: 2026-03-11 09:05:00 UTC, engine: started again (its log, line 5 (09:05:00)).", "setting: 2026-03-11 09:05:00 UTC, engine: max_num_seqs is 32, was 256 (its log, line 5 (09:05:00)).",
		"version: 2026-03-11 09:05:00 UTC, engine: vllm is 0.32.0, was 0.31.0 (its log, line 5 (09:05:00))."}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
