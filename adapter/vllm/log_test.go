package vllm

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/logtest"
	"github.com/whylate/whylate/logline"
)

func cased(t testing.TB, name string) []Entry {
	t.Helper()
	return read(t, logtest.Case(t, name))
}

func read(t testing.TB, log []byte) []Entry {
	t.Helper()
	return logtest.Read(t, ReadLog, log)
}

func one(t testing.TB, line string) Entry {
	t.Helper()
	all := read(t, []byte(line))
	if len(all) != 1 {
		t.Fatalf("%d entries: %+v", len(all), all)
	}
	return all[0]
}

// C57: old engine, new engine, aggregated, wrapped by three container runtimes.
func TestZoo(t *testing.T) {
	all := cased(t, "C57-vllm-log-zoo.engine.log")
	want := map[string]int{"vllm.Stats": 8, "vllm.Preemption": 2, "vllm.HitRate": 1, "vllm.Speculation": 1, "vllm.Transfer": 1, "vllm.Other": 1}
	if got := logtest.Kinds(all); !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	at := map[int]Entry{} // by their last line
	for _, e := range all {
		at[e.Last] = e
	}

	v0 := at[1].Record.(Stats)
	logtest.Is(t, "running", v0.Running, logline.Some(14))
	logtest.Is(t, "swapped", v0.Swapped, logline.Some(2))
	logtest.Is(t, "waiting", v0.Waiting, logline.Some(6))
	logtest.Near(t, "KV", v0.KVUsage, 0.973)
	logtest.Near(t, "swap", v0.SwapUsage, 0.12) // before the full stop

	hits := at[2].Record.(HitRate)
	logtest.Near(t, "GPU hits", hits.GPU, 0.412)
	logtest.Near(t, "CPU hits", hits.CPU, 0)

	logtest.Is(t, "preemption", at[3].Record.(Preemption), Preemption{"cmpl-0a1b2c", "RECOMPUTE", logline.Some(51)})
	logtest.Is(t, "preemption", at[4].Record.(Preemption), Preemption{"cmpl-0a1b2d", "SWAP", logline.Some(101)})
	n, in, ok := Preempted(at[3], at[4])
	if n != 50 || in != 9*time.Second || !ok {
		t.Errorf("%d preemptions in %v", n, in)
	}
	logtest.Is(t, "the last day of the year", at[3].Time, logline.Time{At: time.Date(2025, 12, 31, 23, 59, 58, 0, time.UTC), Date: logline.YearGuessed})
	logtest.Is(t, "the first day of the next", at[4].Time, logline.Time{At: time.Date(2026, 1, 1, 0, 0, 7, 0, time.UTC), Date: logline.YearGuessed})

	early := at[5].Record.(Stats)
	logtest.Is(t, "engine", early.Engine, logline.Opt[int]{})
	logtest.Is(t, "running", early.Running, logline.Some(1))
	logtest.Near(t, "prompt rate", early.PromptRate, 926.3)
	logtest.Is(t, "source", at[5].Source, "loggers.py:78")

	logtest.Is(t, "engine", at[6].Record.(Stats).Engine, logline.Some(1))
	logtest.Near(t, "hits", at[6].Record.(Stats).PrefixHits, 0.614)

	deferred := at[7].Record.(Stats)
	logtest.Is(t, "process", at[7].Tags.Get("process")+" "+at[7].Tags.Get("pid"), "APIServer 41")
	logtest.Is(t, "waiting", deferred.Waiting, logline.Some(5))
	logtest.Is(t, "deferred", deferred.Deferred, logline.Some(5))
	logtest.Is(t, "waiting for room", deferred.ForRoom(), logline.Some(0))
	logtest.Near(t, "prompt rate, a real zero", deferred.PromptRate, 0)
	logtest.Near(t, "external hits", deferred.ExternalHits, 0.183)
	logtest.Near(t, "multimodal hits", deferred.MMHits, 0.4)

	all4 := at[8].Record.(Stats)
	logtest.Is(t, "aggregated", all4.Aggregated, 4)
	logtest.Is(t, "engine", all4.Engine, logline.Opt[int]{})
	logtest.Near(t, "mean KV", all4.KVUsage, 0.498)
	var last Last
	for _, e := range all {
		if s, ok := e.Record.(Stats); ok {
			last.Add(s)
		}
	}
	logtest.Is(t, "running over all", last.Running(), logline.Some(62)) // not 62 + 2 + 33
	logtest.Is(t, "waiting over all", last.Waiting(), logline.Some(83))

	spec := at[9].Record.(Speculation)
	logtest.Near(t, "acceptance", spec.Rate, 0.612)
	logtest.Near(t, "length", spec.MeanLength, 2.84)
	logtest.Is(t, "accepted", spec.Accepted, logline.Some(1210))
	logtest.Is(t, "drafted", spec.Drafted, logline.Some(1978))
	if math.Abs(float64(spec.Accepted.Value)/float64(spec.Drafted.Value)-spec.Rate.Value) > 0.0005 {
		t.Error("accepted of drafted is not the rate")
	}
	logtest.Is(t, "positions", fmt.Sprint(spec.Positions), "[0.81 0.61 0.42]")

	moved := at[10].Record.(Transfer)
	logtest.Is(t, "transfers", moved.Transfers, logline.Some(40))
	logtest.Near(t, "mean", moved.MeanMs, 28.712)
	logtest.Near(t, "p90", moved.P90Ms, 41.02)
	logtest.Near(t, "post", moved.PostMeanMs, 6.401)
	logtest.Near(t, "post p90", moved.PostP90Ms, 9.12)
	logtest.Near(t, "size", moved.MeanMiB, 466)
	logtest.Near(t, "rate", moved.MiBPerSecond, 16230.118)
	logtest.Near(t, "descriptors", moved.Descriptors, 1984)
	logtest.Is(t, "rest", len(moved.Extra)+moved.Withheld, 0)

	logtest.Is(t, "remote worker", at[11].Tags.Get("process")+" "+at[11].Tags.Get("ip"), "RayWorkerWrapper 192.0.2.77")

	docker := at[12]
	logtest.Is(t, "Docker's time", docker.Time, logline.Time{At: time.Date(2026, 3, 11, 9, 12, 24, 100200300, time.UTC), Date: logline.DateTold, Zone: logline.ZoneTold})
	logtest.Near(t, "generation", docker.Record.(Stats).GenerationRate, 50)
	logtest.Is(t, "stream", docker.Tags.Get("stream"), "stderr")

	joined := at[14]
	logtest.Is(t, "first line", joined.First, 13)
	logtest.Near(t, "prompt", joined.Record.(Stats).PromptRate, 6)
	logtest.Near(t, "generation", joined.Record.(Stats).GenerationRate, 61)
	logtest.Near(t, "KV", joined.Record.(Stats).KVUsage, 0.011)
	logtest.Is(t, "zone", joined.Time.Zone, logline.ZoneTold)

	structured := at[15]
	logtest.Near(t, "generation", structured.Record.(Stats).GenerationRate, 70)
	logtest.Is(t, "time", structured.Time.At, time.Date(2026, 3, 11, 9, 12, 44, 0, time.UTC))
	logtest.Is(t, "logger", structured.Source, "vllm.v1.metrics.loggers")
	logtest.Is(t, "level", structured.Level, "INFO")
}

// C26: the log's prompt throughput is what was computed.
func TestPromptThroughput(t *testing.T) {
	all := cased(t, "C26-vllm-prompt-throughput-three-answers.engine.log")
	if got := logtest.Kinds(all); got["vllm.Stats"] != 6 || len(got) != 1 {
		t.Fatal(got)
	}
	for i, e := range all {
		s := e.Record.(Stats)
		logtest.Near(t, "computed prompt tokens", s.PromptRate, 100)
		logtest.Near(t, "hits", s.PrefixHits, 0.75)
		logtest.Is(t, "running", s.Running, logline.Some(20-2*i))
		logtest.Is(t, "date", e.Time.Date, logline.YearUnknown)
		logtest.Is(t, "zone", e.Time.Zone, logline.ZoneUnknown)
		logtest.Is(t, "seconds", e.Time.At.Sub(all[0].Time.At), time.Duration(i)*10*time.Second)
	}
}

// No line of the other cases is lost, and none that has a meaning is an Other.
func TestOtherCases(t *testing.T) {
	for name, want := range map[string]map[string]int{
		"C01-vllm-preemption-storm.engine.log":              {"vllm.Stats": 15},
		"C03-vllm-gpu-spin-hang.engine.log":                 {"vllm.Stats": 3},
		"C04-vllm-longprompt-starves-decode.iterations.log": {"vllm.Iteration": 22},
		"C08-vllm-spec-decode-decay.engine.log":             {"vllm.Stats": 4, "vllm.Speculation": 4},
		"C12-vllm-jit-during-inference.engine.log":          {"vllm.Stats": 3, "vllm.Compile": 12, "vllm.Access": 2, "vllm.Other": 1},
		"C15-vllm-kv-offload-gates-admission.engine.log":    {"vllm.Stats": 6},
		"C71-capacity-how-many-users.engine.log":            {"vllm.Start": 2},
	} {
		if got := logtest.Kinds(cased(t, name)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// C04: two regimes, and no mean of both.
func TestIterations(t *testing.T) {
	var alone, mixed []float64
	tokens := 0
	for i, e := range cased(t, "C04-vllm-longprompt-starves-decode.iterations.log") {
		it := e.Record.(Iteration)
		logtest.Is(t, "index", it.Index, 2041+i)
		if it.ContextTokens.Value == 0 {
			alone = append(alone, it.ElapsedMs.Value)
			continue
		}
		mixed = append(mixed, it.ElapsedMs.Value)
		tokens += it.ContextTokens.Value
		logtest.Is(t, "generation requests", it.GenerationRequests, logline.Some(3))
	}
	slices.Sort(alone)
	total := 0.0
	for _, ms := range mixed {
		total += ms
	}
	if len(mixed) != 9 || tokens != 73728 || math.Round(total/100) != 307 || math.Abs(alone[len(alone)/2]-31.2) > 0.05 {
		t.Errorf("%d mixed, %d tokens, %v ms, median alone %v", len(mixed), tokens, total, alone[len(alone)/2])
	}
}

// C08: the mean length includes the bonus token; C12: every rank writes its own warning; C71: a bound of memory; C15: deferred is of waiting.
func TestMeanings(t *testing.T) {
	spec := cased(t, "C08-vllm-spec-decode-decay.engine.log")[7].Record.(Speculation)
	logtest.Near(t, "length", spec.MeanLength, 1.36)
	logtest.Near(t, "rate", spec.Rate, 0.09)
	logtest.Near(t, "accepted per second", spec.AcceptedRate, 186.5)
	logtest.Near(t, "steps", spec.Steps(), 1865/0.36)
	logtest.Is(t, "positions", fmt.Sprint(spec.Positions), "[0.29 0.05 0.015 0.005]")

	kernels, ranks := map[string]bool{}, map[string]bool{}
	for _, e := range cased(t, "C12-vllm-jit-during-inference.engine.log") {
		if c, ok := e.Record.(Compile); ok {
			kernels[c.Kernel] = true
			ranks[e.Tags.Get("process")] = true
			logtest.Is(t, "what", c.What, "Triton kernel JIT compilation")
		}
		if a, ok := e.Record.(Access); ok {
			logtest.Is(t, "access", a, Access{"POST", "/v1/chat/completions", 200})
			logtest.Is(t, "date", e.Time.Date, logline.NoTime)
		}
	}
	if len(kernels) != 6 || !kernels["_zero_kv_blocks_kernel"] || len(ranks) != 2 {
		t.Errorf("%v, %v", kernels, ranks)
	}

	room := cased(t, "C71-capacity-how-many-users.engine.log")
	logtest.Is(t, "tokens", room[0].Record.(Start).KVTokens, logline.Some(294912))
	logtest.Is(t, "longest", room[1].Record.(Start).RequestTokens, logline.Some(32768))
	logtest.Near(t, "concurrency", room[1].Record.(Start).Concurrency, 9)

	s := cased(t, "C15-vllm-kv-offload-gates-admission.engine.log")[0].Record.(Stats)
	logtest.Is(t, "for room", s.ForRoom(), logline.Some(0))
}

// Every shape that the reference and the engines' sources name.
func TestShapes(t *testing.T) {
	s := one(t, `(APIServer pid=1) INFO 03-11 09:12:04 [loggers.py:300] Engine 002: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 9 reqs, Deferred: 4 reqs, KV fetch: 3 waiting to start, 2 in progress, 1 completed waiting, Preemptions: 7, CPU KV cache usage: 12.5%, Corrupted: 0 reqs`).Record.(Stats)
	logtest.Is(t, "fetches", s.FetchWaiting.Value*100+s.Fetching.Value*10+s.Fetched.Value, 321)
	logtest.Is(t, "device", s.Device, "CPU")
	logtest.Near(t, "KV", s.KVUsage, 0.125)
	logtest.Is(t, "swap", s.SwapUsage.Known, false)
	logtest.Is(t, "preemptions", s.Preemptions, logline.Some(7))
	logtest.Is(t, "corrupted", s.Corrupted, logline.Some(0))
	logtest.Is(t, "hits", s.PrefixHits.Known, false)
	logtest.Is(t, "for room", s.ForRoom(), logline.Some(5))
	logtest.Is(t, "rest", len(s.Extra)+s.Withheld, 0)

	i := one(t, `(APIServer pid=1) INFO 03-11 09:12:04 [loggers.py:180] Engine 000: Iteration(7): 1 context requests, 32 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 0.25 ms (dummy), GPU KV cache usage: 3.1%, encoder inputs: 2, encoder output embeddings: 1152, wait time: 0.10 ms`).Record.(Iteration)
	logtest.Is(t, "dummy", i.Dummy, true)
	logtest.Near(t, "elapsed", i.ElapsedMs, 0.25)
	logtest.Near(t, "KV", i.KVUsage, 0.031)
	logtest.Is(t, "engine", i.Engine, logline.Some(0))
	logtest.Is(t, "encoder", i.EncoderEmbeddings, logline.Some(1152))
	logtest.Is(t, "extra", fmt.Sprint(i.Extra), "[{wait time 0.10 ms}]")

	old := one(t, `INFO 02-11 14:50:38 metrics.py:477] Speculative metrics: Draft acceptance rate: 0.550, System efficiency: 0.133, Number of speculative tokens: 8, Number of accepted tokens: 44, Number of draft tokens: 80, Number of emitted tokens: 12.`).Record.(Speculation)
	logtest.Near(t, "rate", old.Rate, 0.55)
	logtest.Is(t, "emitted", old.Emitted, logline.Some(12))
	logtest.Is(t, "drafted", old.Drafted, logline.Some(80))
	none := one(t, `INFO 02-11 14:50:38 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.00, Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: 0.000, Avg Draft acceptance rate: nan%`).Record.(Speculation)
	logtest.Is(t, "rate of nothing", none.Rate.Known, false)
	logtest.Is(t, "withheld", none.Withheld, 0)

	d := one(t, `INFO 02-11 14:50:38 [metrics.py:101] DiffusionDecoding metrics: Committed token throughput: 12.50 tokens/s, Mean denoising steps per canvas: 8.00, Mean tokens committed per denoising step: 4.00, Committed: 125 tokens, Denoising steps: 31, Canvas positions evaluated: 1000`).Record.(Diffusion)
	logtest.Is(t, "evaluated", d.Positions, logline.Some(1000))

	c := one(t, `INFO 02-11 14:50:38 [perf.py:1725] Engine 001: MFU: 12.5 TF/s/GPU 800.1 GB/s/GPU`).Record.(Compute)
	logtest.Is(t, "engine", c.Engine, logline.Some(1))
	logtest.Near(t, "compute", c.TFLOPS, 12.5)
	logtest.Near(t, "memory", c.GBs, 800.1)

	rust := one(t, `Engine 000: Avg prompt tput: 10.0 toks/s, Avg generation tput: 20.0 toks/s, Reqs Running: 3, Waiting: 4, GPU KV cache usage: 1.0%`).Record.(Stats)
	logtest.Is(t, "running", rust.Running, logline.Some(3))
	logtest.Near(t, "generation", rust.GenerationRate, 20)
	logtest.Is(t, "rest", len(rust.Extra)+rust.Withheld, 0)

	nixl := one(t, `INFO 02-11 14:50:38 [metrics.py:103] KV Transfer metrics: Num successful transfers=0, Avg xfer time (ms)=0, Num failed transfers=2, Num failed recvs=1, Num KV expired reqs=3, CPU_to_GPU_total_bytes=1048576`).Record.(Transfer)
	logtest.Is(t, "failed", nixl.Failed.Value*100+nixl.FailedReceives.Value*10+nixl.Expired.Value, 213)
	logtest.Is(t, "extra", fmt.Sprint(nixl.Extra), "[{CPU_to_GPU_total_bytes 1048576}]")
}

// What a later version adds is kept beside what is known, wherever it stands.
func TestAddedField(t *testing.T) {
	s := one(t, `INFO 06-02 10:00:01 [loggers.py:400] Engine 001: Avg prompt throughput: 11.0 tokens/s, Paused: 3 reqs, Avg generation throughput: 640.2 tokens/s, backend: flash_attn, Running: 33 reqs, GPU KV cache usage: 22.0%`).Record.(Stats)
	logtest.Is(t, "extra", fmt.Sprint(s.Extra), "[{Paused 3 reqs} {backend flash_attn}]")
	logtest.Is(t, "running", s.Running, logline.Some(33))
	logtest.Near(t, "KV", s.KVUsage, 0.22)
	logtest.Is(t, "waiting", s.Waiting.Known, false)
}

func TestStart(t *testing.T) {
	const log = `(APIServer pid=7) INFO 11-29 18:21:56 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0
(APIServer pid=7) INFO 11-29 18:21:56 [api_utils.py:347]   █▄█▀ █     █     █     █  model   acme/tiny
(APIServer pid=7) INFO 11-29 18:21:56 [api_utils.py:286] non-default args: {'host': '127.0.0.1', 'port': 8000, 'model': 'acme/tiny', 'api_key': ['sk-geheim'], 'served_model_name': ['tiny', 'small'], 'chat_template': 'You are Bob, {{ x }}', 'enable_lora': True}
(EngineCore pid=8) INFO 11-29 18:22:33 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='acme/tiny', speculative_config=None, dtype=torch.float32, max_seq_len=4096, structured_outputs_config=StructuredOutputsConfig(backend='auto', x=False), served_model_name=tiny
(EngineCore pid=8) INFO 11-29 18:23:03 [kv_cache_utils.py:2327] CPU KV cache size: 6,400 tokens, Maximum concurrency for 4,096 tokens per request: 1.56x
(EngineCore pid=8) INFO 11-29 18:23:03 [core.py:402] init engine (profile, create kv cache, warmup model) took 0.10 s (compilation: 0.01 s)
(Worker pid=9) INFO 11-29 18:23:03 [gpu_model_runner.py:5150] Model loading took 14.99 GiB memory and 5.200000 seconds
(Worker pid=9) INFO 11-29 18:23:03 [gpu_model_runner.py:6582] Graph capturing finished in 23 secs, took 0.50 GiB
(Worker pid=9) INFO 11-29 18:23:03 [gpu_worker.py:760] Available KV cache memory: 40.25 GiB
(APIServer pid=7) INFO 11-29 18:23:03 [model.py:2152] Using max model len 4096
(APIServer pid=7) INFO 11-29 18:23:03 [scheduler.py:307] Chunked prefill is enabled with max_num_batched_tokens=256.
INFO:     Application startup complete.
INFO 11-11 10:00:00 api_server.py:585] vLLM API server version 0.6.3.post1
INFO 11-11 10:00:00 api_server.py:586] args: Namespace(host=None, port=8000, model='acme/big', api_key='sk-geheim', uvicorn_log_level='info')
INFO 11-11 10:00:01 llm_engine.py:237] Initializing an LLM engine (v0.6.3.post1) with config: model='acme/big', speculative_config=None, seed=0
INFO 11-11 10:00:02 gpu_executor.py:122] # GPU blocks: 27896, # CPU blocks: 2048
INFO 11-11 10:00:02 model_runner.py:1067] Loading model weights took 14.9888 GB
`
	all := read(t, []byte(log))
	if len(all) != 17 {
		t.Fatal(len(all))
	}
	start := func(i int) Start {
		t.Helper()
		s, ok := all[i].Record.(Start)
		if !ok {
			t.Fatalf("entry %d is %T", i, all[i].Record)
		}
		return s
	}
	logtest.Is(t, "version", start(0).Version, "0.32.0")
	logtest.Is(t, "model", start(1).Model, "acme/tiny")
	logtest.Is(t, "settings", fmt.Sprint(start(2).Settings), "[{host 127.0.0.1 false} {port 8000 false} {model acme/tiny false} {api_key  true} {served_model_name ['tiny', 'small'] false} {chat_template  true} {enable_lora True false}]")
	logtest.Is(t, "engine", start(3).Version+" "+start(3).Generation+" "+start(3).Model, "0.32.0 V1 acme/tiny")
	logtest.Is(t, "settings", fmt.Sprint(start(3).Settings[3:]), "[{max_seq_len 4096 false} {structured_outputs_config StructuredOutputsConfig(backend='auto', x=False) false} {served_model_name tiny false}]")
	logtest.Is(t, "cache", fmt.Sprint(start(4).Device, start(4).KVTokens, start(4).RequestTokens, start(4).Concurrency), "CPU{6400 true} {4096 true} {1.56 true}")
	logtest.Near(t, "init", start(5).InitSeconds, 0.1)
	logtest.Near(t, "weights", start(6).WeightsGiB, 14.99)
	logtest.Near(t, "loading", start(6).LoadSeconds, 5.2)
	logtest.Near(t, "graphs", start(7).GraphSeconds, 23)
	logtest.Near(t, "their memory", start(7).GraphGiB, 0.5)
	logtest.Near(t, "KV memory", start(8).KVGiB, 40.25)
	logtest.Is(t, "longest", start(9).RequestTokens, logline.Some(4096))
	logtest.Is(t, "batch", start(10).BatchTokens, logline.Some(256))
	logtest.Is(t, "ready", start(11).Ready, true)
	logtest.Is(t, "version", start(12).Version, "0.6.3.post1")
	logtest.Is(t, "model", start(13).Model, "acme/big")
	logtest.Is(t, "generation", start(14).Generation, "V0")
	logtest.Is(t, "blocks", start(15).Blocks.Value*10000+start(15).SwapBlocks.Value, 278962048)
	logtest.Near(t, "weights", start(16).WeightsGiB, 14.9888)
	logtest.Is(t, "loading", start(16).LoadSeconds.Known, false)
	if strings.Contains(fmt.Sprintf("%+v", all), "geheim") || strings.Contains(fmt.Sprintf("%+v", all), "Bob") {
		t.Error("a secret is kept")
	}
}

// The console of a real engine, shortened: its start, iterations, status lines, access lines.
func TestRealLog(t *testing.T) {
	log, err := os.ReadFile("testdata/0.32.0/engine.log")
	if err != nil {
		t.Fatal(err)
	}
	all := read(t, log)
	want := map[string]int{"vllm.Start": 9, "vllm.Iteration": 6, "vllm.Stats": 4, "vllm.Access": 3, "vllm.Other": 21}
	if got := logtest.Kinds(all); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, e := range all {
		switch r := e.Record.(type) {
		case Iteration:
			if len(r.Extra)+r.Withheld > 0 || !r.ElapsedMs.Known || !r.KVUsage.Known || !r.GenerationTokens.Known || r.Device != "CPU" {
				t.Errorf("line %d: %+v", e.First, r)
			}
		case Stats:
			if len(r.Extra)+r.Withheld > 0 || !r.PrefixHits.Known || !r.KVUsage.Known || r.Device != "CPU" || e.Tags.Get("process") != "APIServer" {
				t.Errorf("line %d: %+v", e.First, r)
			}
		}
	}
}

// secretLines are lines with what a user wrote, in every form that engines write it.
func secretLines(secret string) []string {
	return []string{
		`INFO 11-11 10:00:00 logger.py:37] Received request cmpl-1: prompt: '` + secret + `, Running: 3 reqs, INFO 11-11 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 9.0 tokens/s', params: SamplingParams(n=1), prompt_token_ids: [1, 2], lora_request: None.`,
		`(APIServer pid=1) DEBUG 11-11 10:00:00 [request_logger.py:56] Request cmpl-1 details: prompt: "` + secret + `, pin: 1234", prompt_token_ids: None`,
		`(APIServer pid=1) INFO 11-11 10:00:00 [request_logger.py:109] Generated response cmpl-1 (streaming complete): output: '` + secret + `', finish_reason: stop`,
		`(APIServer pid=1) DEBUG 11-11 10:00:00 [chat_utils.py:1607] Input prompt: ` + secret,
		secret + " " + secret,
		`INFO 11-11 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 9.0 tokens/s, Running: 3 reqs` + secret + `, ` + secret + `: 5, pin: 1234`,
		`{"timestamp": "2026-03-11T09:12:44Z", "level": "INFO", "message": "Received request x: prompt: '` + secret + `'", "` + secret + `": "x"}`,
		`INFO:     192.0.2.4:50110 - "POST /v1/completions?q=` + secret + ` HTTP/1.1" 200 OK`,
		`(APIServer pid=1) ERROR 11-11 10:00:00 [serving.py:1] Error in request: '` + secret + ` Iteration(1): 2 context requests'`,
		`INFO 11-11 10:00:00 [metrics.py:103] KV Transfer metrics: MultiConnector={'a': '` + secret + `'}, b=` + secret + ` ` + secret,
	}
}

// Nothing of what users wrote is in any record, and no record is made of it.
func TestContentIsNotKept(t *testing.T) {
	const secret = "Zebra my card is 4711"
	for _, line := range secretLines(secret) {
		for _, e := range read(t, []byte(line)) {
			if kept := fmt.Sprintf("%+v", e); strings.Contains(kept, "Zebra") || strings.Contains(kept, "4711") || strings.Contains(kept, "1234") {
				t.Errorf("%s\nkeeps %s", line, kept)
			}
			if s, ok := e.Record.(Stats); ok && !strings.Contains(line, "loggers.py:1] Engine 000: Avg prompt throughput: 9.0 tokens/s, Running") {
				t.Errorf("%s\nis read as %+v", line, s)
			}
		}
	}
}

func TestSniffLog(t *testing.T) {
	for name, log := range logtest.Cases(t) {
		if got, want := SniffLog(strings.Split(string(log), "\n")), strings.Contains(name, "vllm") || strings.Contains(name, "C71"); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if SniffLog([]string{`INFO:     192.0.2.4:50110 - "GET / HTTP/1.1" 200 OK`, "INFO:     Application startup complete."}) {
		t.Error("any web server is vLLM")
	}
}

// However broken a log is, every line is in an entry, and nothing panics.
func FuzzReadLog(f *testing.F) {
	for _, log := range logtest.Cases(f) {
		f.Add(log)
	}
	for _, line := range secretLines("x") {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range read(t, append([]byte("\n"), b...)) { // what begins so is not compressed
			if s, ok := e.Record.(Stats); ok && (len(s.Extra) > 64 || math.IsNaN(s.PromptRate.Value)) {
				t.Errorf("%+v", s)
			}
		}
	})
}

func BenchmarkReadLog(b *testing.B) {
	logtest.Lines(b, ReadLog, logtest.Case(b, "C01-vllm-preemption-storm.engine.log"))
}
