package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// linear takes time in proportion to the work.
type linear struct{}

func (linear) Iteration(_ time.Duration, s *timing.Shape) timing.Took {
	took := timing.Took{Host: 300 * time.Microsecond, Tail: 100 * time.Microsecond, Mode: ledger.GraphFull}
	if s.Tokens > 0 {
		took.Device = 6*time.Millisecond + time.Duration(s.Work[ledger.WorkPrefillTokens])*30*time.Microsecond + time.Duration(s.Work[ledger.WorkDecodeSeqs])*100*time.Microsecond
	}
	return took
}

func settings(changes map[string]any) map[string]any {
	s := world.DefaultSettings()
	for name, v := range map[string]any{"served_model": "tiny", "max_model_len": 2048, "max_num_seqs": 16, "max_num_batched_tokens": 512, "max_num_scheduled_tokens": 512, "num_gpu_blocks": 300} {
		s[name] = v
	}
	for name, v := range changes {
		s[name] = v
	}
	for name, v := range s {
		if n, ok := v.(int); ok {
			s[name] = json.Number(fmt.Sprint(n))
		}
	}
	return s
}

// tally counts what a page says of a run in another way: from the records alone, without what the front end knows.
type tally struct {
	world.Recorder
	generated, preemptions, finished int
	running, waiting                 map[int]int // by scheduler, in the last decision
	frontends                        map[int]bool
}

func newTally(to world.Recorder) *tally {
	return &tally{Recorder: to, running: map[int]int{}, waiting: map[int]int{}, frontends: map[int]bool{}}
}

func (y *tally) Record(source int, m wire.Message) error {
	switch m := m.(type) {
	case *wire.Done:
		y.generated += int(m.Tokens)
		y.finished += len(m.Finishes)
	case *wire.Scheduled:
		y.preemptions += len(m.Preemptions)
		y.running[source], y.waiting[source] = int(m.Running), int(m.Waiting)
	}
	return y.Recorder.Record(source, m)
}

// incident is a world with a quiet load, on which fourteen long answers fall after a minute, and whose GPU is held down for the last.
func incident(to world.Recorder) world.Config {
	rng := rand.New(rand.NewPCG(7, 7))
	var requests []experiment.Request
	for at := time.Duration(0); at < 150*time.Second; at += time.Duration(rng.ExpFloat64() * 4e8) {
		r := experiment.Request{At: at, PromptTokens: 40 + rng.IntN(200), OutputTokens: 10 + rng.IntN(60)}
		if rng.IntN(2) == 0 {
			r.PromptTokens += 320
			r.Prefix = []experiment.PrefixRun{{Hash: 1, Tokens: 320}}
		}
		if rng.IntN(20) == 0 {
			r.CancelChunks = 5
		}
		requests = append(requests, r)
	}
	for i := range 14 {
		requests = append(requests, experiment.Request{At: 60*time.Second + time.Duration(i)*10*time.Millisecond, PromptTokens: 300, OutputTokens: 900, Class: "long"})
	}
	slices.SortStableFunc(requests, func(a, b experiment.Request) int { return int(a.At - b.At) })
	for i := range requests {
		requests[i].Traceparent = experiment.TraceOn
	}
	return world.Config{Seed: 3, Name: "chat", Version: "1", Sampling: time.Second, Recorder: to, Client: world.Client{Network: 300 * time.Microsecond},
		Workload: experiment.Open(experiment.Requests(requests)),
		Replicas: []world.Replica{{Name: "vllm-0", Front: world.DefaultFront, Ranks: []world.Rank{{Version: "0.32.0", Settings: settings(nil), Model: linear{}, GPUs: []world.GPU{world.DefaultGPU}}}}}}
}

// TestSimulatedIncident looks at a simulated incident as at a real one: through its pages, its log and its spans, without a record of a probe.
func TestSimulatedIncident(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	b, err := Create(dir, Options{Keep: Scrapes | Logs | Traces, ScrapeEvery: 5 * time.Second, Producer: "simulation"})
	if err != nil {
		t.Fatal(err)
	}
	y := newTally(b)
	w, err := world.New(incident(y))
	if err != nil {
		t.Fatal(err)
	}
	const held = 120 * time.Second
	w.At(held, func(w *world.World) { w.Engine(0, 0).Devices()[0].Hold(600, world.HeldByHeat) })
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if n := b.Late(); n > 0 {
		t.Errorf("%d messages came too late", n)
	}
	files := readDir(t, dir)
	var running, waiting, usage []float64
	var last map[string]float64
	for _, name := range slices.Sorted(keysOf(files, "scrape/vllm-0/")) {
		last = numbers(t, files[name])
		running = append(running, last[`vllm:num_requests_running{engine="0",model_name="tiny"}`])
		waiting = append(waiting, last[`vllm:num_requests_waiting{engine="0",model_name="tiny"}`])
		usage = append(usage, last[`vllm:kv_cache_usage_perc{engine="0",model_name="tiny"}`])
	}
	if got := int(last[`vllm:num_preemptions_total{engine="0",model_name="tiny"}`]); got != y.preemptions || got == 0 {
		t.Errorf("the last page tells %d preemptions, the records %d", got, y.preemptions)
	}
	if slices.Max(running) < 4 || slices.Max(waiting) < 10 || slices.Max(usage) < 0.9 || slices.Max(waiting[:12]) > 0 || running[len(running)-1] != 0 { // the load comes with the thirteenth page
		t.Errorf("running %v\nwaiting %v\nusage %.2f", running, waiting, usage)
	}
	_, after, _ := strings.Cut(string(files[slices.Max(slices.Collect(keysOf(files, "scrape/dcgm-")))]), "DCGM_FI_DEV_SM_CLOCK{")
	if value := strings.Fields(strings.SplitN(after, "\n", 2)[0]); value[len(value)-1] != "600" {
		t.Errorf("the last page of the exporter has a clock of %v MHz", value[len(value)-1])
	}
	said := strings.Join(strings.Fields(lookAt(t, dir)), " ")
	for _, want := range []string{
		"found DCGM: 1 target, 1 GPU", "found vLLM: tiny, 1 target, 1 log", "room for 4,800 tokens", "SM clock 600 MHz of 1,980 MHz",
		"its clocks are held down now, reasons 32 = 0x20: thermal slowdown by software", "something new about every 30.0 s",
		fmt.Sprintf("tiny on vllm-0 preempted %d times", y.preemptions), "The KV cache had no room", "All three are right", // page and log agree
	} {
		if !strings.Contains(said, want) {
			t.Errorf("look does not say %q:\n%s", want, said)
		}
	}
}

func keysOf(files map[string][]byte, prefix string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range files {
			if strings.HasPrefix(name, prefix) && !yield(name) {
				return
			}
		}
	}
}

// TestEveryWorld plays random worlds: versions, ranks, asynchronous schedulers, drafts, clients that go. What the pages count is what the records
// say, nothing is kept of a request that is over, and all is at rest in the end.
func TestEveryWorld(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		changes := map[string]any{}
		if rng.IntN(2) == 0 {
			changes["scheduler"] = "AsyncScheduler"
		}
		if rng.IntN(3) == 0 {
			changes["num_speculative_tokens"] = 2
		}
		if rng.IntN(4) == 0 {
			changes["enable_prefix_caching"] = false
		}
		ranks := 1 + rng.IntN(2)
		changes["data_parallel_size"] = ranks
		f := newFleet(outOfOrder)
		y := newTally(fleetRecorder{f})
		c := incident(y)
		c.Seed = seed
		c.Workload = experiment.Open(experiment.Requests(randomLoad(rng)))
		c.Replicas[0].Ranks = nil
		version := []string{"0.20.2", "0.24.0", "0.32.0"}[rng.IntN(3)]
		for range ranks {
			c.Replicas[0].Ranks = append(c.Replicas[0].Ranks, world.Rank{Version: version, Settings: settings(changes), Model: linear{}, Accept: 0.6})
		}
		w, err := world.New(c)
		if err != nil {
			t.Fatal(err)
		}
		summary, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.end(); err != nil {
			t.Fatal(err)
		}
		x := f.fronts["vllm-0"]
		kept := len(x.sequences) + len(x.exchanges) + len(x.parents)
		var generated, ended, preempted float64
		for _, e := range x.engines {
			kept += len(e.sequences) + len(e.sent) + len(e.open) + len(e.starting) + len(e.drafts)
			generated += e.counts.generated
			preempted += e.counts.preemptions
			for _, n := range e.counts.success {
				ended += n
			}
			if s := e.counts.now; s.running != 0 || s.waiting != 0 || s.usage != 0 {
				t.Errorf("seed %d: at rest there are %+v", seed, s)
			}
			if e.counts.itl.sum < 0 || e.counts.queue.sum < 0 || e.counts.ttft.sum <= 0 {
				t.Errorf("seed %d: negative times: %v %v %v", seed, e.counts.itl.sum, e.counts.queue.sum, e.counts.ttft.sum)
			}
		}
		if kept != 0 {
			t.Errorf("seed %d: %d things are kept after the run", seed, kept)
		}
		gone := summary.HungUp > 0
		if int(generated) > y.generated || !gone && int(generated) != y.generated || int(preempted) > y.preemptions || !gone && int(preempted) != y.preemptions {
			t.Errorf("seed %d: %v tokens and %v preemptions, the records say %d and %d; %d clients went", seed, generated, preempted, y.generated, y.preemptions, summary.HungUp)
		}
		if int(ended) != y.finished && !gone || int(ended) > y.finished {
			t.Errorf("seed %d: %v ended, the records say %d", seed, ended, y.finished)
		}
		parses(t, fmt.Sprint("seed ", seed), f.page("vllm-0", nil))
		if !bytes.Contains(f.page("vllm-0", nil), []byte(fmt.Sprintf(`engine="%d"`, ranks-1))) {
			t.Errorf("seed %d: no series of the last rank", seed)
		}
	}
}

func randomLoad(rng *rand.Rand) (all []experiment.Request) {
	hangUps := rng.IntN(2) == 0
	at := time.Duration(0)
	for range 150 {
		at += time.Duration(rng.ExpFloat64() * 60e6)
		r := experiment.Request{At: at, PromptTokens: 1 + rng.IntN(700), OutputTokens: 1 + rng.IntN(150)}
		if rng.IntN(3) == 0 {
			r.Prefix = []experiment.PrefixRun{{Hash: experiment.Hash(rng.IntN(3)), Tokens: 1 + rng.IntN(r.PromptTokens)}}
		}
		if rng.IntN(6) == 0 {
			r.N = 2 + rng.IntN(2)
		}
		if hangUps && rng.IntN(8) == 0 {
			r.CancelChunks = 1 + rng.IntN(9)
		}
		all = append(all, r)
	}
	return all
}

// BenchmarkBundle writes a bundle of a busy minute, everything in it.
func BenchmarkBundle(b *testing.B) {
	iterations := 0
	for b.Loop() {
		out, err := Create(filepath.Join(b.TempDir(), "run"), Options{ScrapeEvery: 5 * time.Second})
		if err != nil {
			b.Fatal(err)
		}
		w, err := world.New(incident(out))
		if err != nil {
			b.Fatal(err)
		}
		s, err := w.Run()
		if err != nil {
			b.Fatal(err)
		}
		if err := out.Close(); err != nil {
			b.Fatal(err)
		}
		iterations += s.Iterations
	}
	b.ReportMetric(float64(iterations)/b.Elapsed().Seconds(), "iterations/s")
}

// TestWorldsBundle makes a bundle of a world twice: the same bytes; and reads the captures in it. Nothing in it contradicts anything else.
func TestWorldsBundle(t *testing.T) {
	var files [2]map[string][]byte
	for i := range files {
		dir := filepath.Join(t.TempDir(), "run")
		b, err := Create(dir, Options{ScrapeEvery: 20 * time.Second, Truth: []byte("{}\n")})
		if err != nil {
			t.Fatal(err)
		}
		c := incident(b)
		c.Until = 70 * time.Second
		w, err := world.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		files[i] = readDir(t, dir)
		if said := lookAt(t, dir); i == 0 && (strings.Contains(said, "\nwrong") || strings.Contains(said, "\nBROKEN")) {
			t.Errorf("something is wrong:\n%s", said)
		}
	}
	for name, text := range files[0] {
		if !bytes.Equal(text, files[1][name]) {
			t.Errorf("%s differs", name)
		}
		if strings.HasSuffix(name, ".wlc") && len(messages(t, text)) == 0 {
			t.Errorf("%s holds nothing", name)
		}
	}
	m, err := bundle.ParseManifest(files[0]["manifest.json"])
	if err != nil || len(m.Problems) > 0 || len(m.Engines) != 1 || len(m.Clocks) < 2 {
		t.Errorf("%+v, %v", m, err)
	}
}

// endless is a workload whose requests come one after the other for ever.
type endless struct{ n int }

func (e *endless) Next() (experiment.Request, error) {
	e.n++
	return experiment.Request{At: time.Duration(e.n) * 400 * time.Millisecond, PromptTokens: 100 + e.n*37%300, OutputTokens: 20 + e.n*13%80, Traceparent: experiment.TraceOn}, nil
}

// TestMemoryIsFlat writes a bundle of six minutes, and looks at what is held after two and at the end. Captures are left out: what their
// packing needs, which is bounded, it takes when their first block is full.
func TestMemoryIsFlat(t *testing.T) {
	b, err := Create(filepath.Join(t.TempDir(), "run"), Options{Keep: Everything &^ Captures})
	if err != nil {
		t.Fatal(err)
	}
	c := incident(b)
	c.Workload, c.Until = experiment.Open(&endless{}), 6*time.Minute
	w, err := world.New(c)
	if err != nil {
		t.Fatal(err)
	}
	held := func() (bytes int64) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var early, late int64
	w.At(2*time.Minute, func(*world.World) { early = held() })
	w.At(c.Until-time.Second, func(*world.World) { late = held() })
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if late > early+256<<10 {
		t.Errorf("%d bytes after two minutes, %d after six", early, late)
	}
	t.Logf("%d bytes after two minutes, %d after six", early, late)
}
