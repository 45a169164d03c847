package overhead_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/cli"
	"github.com/whylate/whylate/experiment/overhead"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/wire"
)

// TestMain lets this binary be what a bench starts: a server, an engine's process, and the command line for a reader.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && (os.Args[1] == "agent" || os.Args[1] == "capture"):
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case len(os.Args) > 1 && os.Args[1] == "server":
		os.Exit(serve(os.Args[2:]))
	case strings.HasPrefix(os.Args[0], "VLLM::"):
		for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; { // processor time
		}
		time.Sleep(time.Minute)
		return
	}
	os.Exit(m.Run())
}

// serve is a server as vLLM is one, with a probe: an engine's process beside it, rings, a log of iterations. Flags make it ill.
func serve(args []string) int {
	set := flag.NewFlagSet("server", flag.ExitOnError)
	port := set.String("port", "", "")
	probe := set.String("probe", os.Getenv("WHYLATE_PROBE"), "")
	ill := set.String("ill", "", "")
	set.String("of", "", "the test that starts it")
	_ = set.Parse(args)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("loading the model")
	if *ill == "crash" {
		fmt.Println("torch.OutOfMemoryError: no room for the KV cache")
		return 1
	}
	engine := &exec.Cmd{Path: os.Args[0], Args: []string{"VLLM::EngineCore"}, Env: os.Environ()}
	if err := engine.Start(); err != nil {
		return 1
	}
	defer engine.Process.Kill()

	var mu sync.Mutex
	var ring *wire.RingWriter
	iteration := 0
	if *probe == "on" {
		hello := &wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Role: "engine", Thread: "scheduler", PID: uint32(os.Getpid()), Start: 1, Boot: "01234567", Host: "h"}
		var err error
		if ring, err = wire.CreateRing(os.Getenv("WHYLATE_RING_DIR"), hello, 1<<20); err != nil {
			fmt.Println(err)
			return 1
		}
		defer ring.Close()
	}
	step := func() { // one iteration: a line of the log, and two records
		mu.Lock()
		defer mu.Unlock()
		iteration++
		now := time.Now()
		if strings.Contains(os.Getenv("VLLM_LOGGING_PREFIX"), "created") {
			fmt.Printf("@%.6f (EngineCore pid=1) INFO Iteration(%d): 0 context requests, 0 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 0.10 ms\n", float64(now.UnixNano())/1e9, iteration)
		}
		if ring == nil || *ill == "deaf" {
			return
		}
		n := uint64(iteration)
		at := replay.Monotonic{}.Now()
		_ = ring.Write(&wire.Scheduled{Time: at, Iteration: n, Alias: n, Returned: at + 1000, Members: 1, Spent: 70_000})
		_ = ring.Write(&wire.Done{Time: at, Iteration: n, Returned: at})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if *ill == "never well" {
			http.Error(w, "still loading", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 8 {
			step()
			fmt.Fprint(w, `data: {"id":"x","choices":[{"index":0,"text":"x","finish_reason":null}]}`+"\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":8}}`+"\n\ndata: [DONE]\n\n")
	})
	server := &http.Server{Addr: "127.0.0.1:" + *port, Handler: mux}
	go func() { <-ctx.Done(); server.Close() }()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Println(err)
		return 1
	}
	return 0
}

// bench starts that server, with more of its flags, and gives it 20 requests in 0.2 s and 10 at once.
func bench(t *testing.T, reader string, args ...string) (*overhead.Bench, *overhead.Command) {
	t.Helper()
	workload, err := overhead.Steady(100, 200*time.Millisecond, 3, 8)
	if err != nil {
		t.Fatal(err)
	}
	c := &overhead.Command{Args: append([]string{os.Args[0], "server", "--port", "{port}", "--of", t.Name()}, args...), Dir: t.TempDir(), Rings: t.TempDir(),
		Limit: time.Minute, Read: overhead.Reading{Kind: reader, Program: os.Args[0]}}
	return &overhead.Bench{Servers: c, Pairs: 3, Load: overhead.Load{Workload: workload, WarmUp: 100 * time.Millisecond, Burst: 10}}, c
}

func measured(t *testing.T, r *overhead.Report) map[string]overhead.Comparison {
	t.Helper()
	byName := map[string]overhead.Comparison{}
	for _, m := range r.Measures {
		byName[m.Name] = m
	}
	return byName
}

func TestRealProcessesAreMeasured(t *testing.T) {
	t.Parallel()
	b, c := bench(t, overhead.Agent)
	r, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := measured(t, r)
	for name, verdicts := range map[string][]overhead.Verdict{
		"capacity": nil, "throughput": nil, "ttft_p50": nil, "ttft_p99": nil, "itl_p50": nil, "itl_p99": nil, "e2e_p50": nil, "host_gap": nil,
		"cpu_engine": nil, "cpu_frontend": nil, "cpu_all": nil, "log_bytes": nil,
		"cpu_reader": {overhead.Takes}, "reader_core": {overhead.Takes}, "ring_bytes": {overhead.Takes}, "network_bytes": {overhead.Takes}, "capture_bytes": {overhead.Takes},
		"recorded_gap": {overhead.Takes}, "probe_spent": {overhead.Takes},
	} {
		got := m[name]
		if got.On == nil || got.Pairs != 3 || got.Verdict == overhead.Absent || verdicts != nil && got.Verdict != verdicts[0] {
			t.Errorf("%s: %+v", name, got)
		}
		if verdicts == nil && (got.Off == nil || got.Difference == nil) {
			t.Errorf("%s is not compared: %+v", name, got)
		}
	}
	// 20 + 10 requests of 8 iterations, 2 records each of more than 50 bytes; less for their time is not known.
	if v := *m["ring_bytes"].On; v < 10_000 {
		t.Errorf("%v bytes a second into the rings", v)
	}
	if v := *m["probe_spent"].On; v != 70 {
		t.Errorf("the probe spent %v µs an iteration, want 70", v)
	}
	if v := *m["network_bytes"].On; v < 100 {
		t.Errorf("%v bytes a second from the agent", v)
	}
	if v := *m["log_bytes"].Off; v < 10_000 {
		t.Errorf("%v bytes a second of log", v)
	}
	left, err := filepath.Glob(filepath.Join(c.Rings, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("rings are left: %v %v", left, err)
	}
	if living(t) {
		t.Error("a server is left")
	}
}

func TestCaptureIsMeasured(t *testing.T) {
	t.Parallel()
	b, _ := bench(t, overhead.Capture)
	r, err := b.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := measured(t, r)
	if c := m["network_bytes"]; c.Verdict != overhead.Absent {
		t.Errorf("network of a capture: %+v", c)
	}
	if c := m["cpu_reader"]; c.Verdict != overhead.Takes {
		t.Errorf("%+v", c)
	}
}

// An interrupt in the middle of a run leaves no process and no ring.
func TestInterruptLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, c := bench(t, overhead.Agent)
	b.Load.Workload[len(b.Load.Workload)-1].At = time.Hour
	b.Load.WarmUp = 0
	b.Said = func(text string) {
		if strings.HasPrefix(text, "pair 1") {
			time.AfterFunc(time.Second, cancel) // while it starts, or is under its load
		}
	}
	r, err := b.Run(ctx)
	if r != nil || err == nil || !strings.Contains(err.Error(), "interrupted after 0 of 3 pairs; nothing can be said") {
		t.Errorf("%v, %v", r, err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.Rings, "*")); len(left) > 0 || living(t) {
		t.Errorf("left: %v, or a server", left)
	}
}

func TestServersThatCannotBeCompared(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		change func(*overhead.Command)
		says   []string
	}{
		"it crashes":              {args: []string{"--ill", "crash"}, says: []string{"rehearsal", "ended by itself (exit status 1)", "no room for the KV cache"}},
		"it is never well":        {args: []string{"--ill", "never well"}, change: func(c *overhead.Command) { c.Limit = 10 * time.Second }, says: []string{"not healthy after 10s", "503", "loading the model"}},
		"the probe is not there":  {args: []string{"--probe", "off"}, says: []string{"no iteration", "on would be the same as off", "whylate_vllm check"}},
		"the probe sees nothing":  {args: []string{"--ill", "deaf"}, says: []string{"no iteration (1 rings"}},
		"the probe is always on":  {args: []string{"--probe", "on"}, says: []string{"probe off has written 1 rings"}},
		"no such program":         {change: func(c *overhead.Command) { c.Args[0] = "/no/such/program" }, says: []string{"start the server", "/no/such/program"}},
		"no port":                 {change: func(c *overhead.Command) { c.Args = []string{"true"} }, says: []string{"{port}", "--url"}},
		"no command":              {change: func(c *overhead.Command) { c.Args = nil }, says: []string{"no command"}},
		"a negative limit":        {change: func(c *overhead.Command) { c.Limit = -1 }, says: []string{"above 0"}},
		"a reader that is none":   {change: func(c *overhead.Command) { c.Read.Kind = "me" }, says: []string{`reader "me"`, "agent, capture, none"}},
		"a reader that is broken": {change: func(c *overhead.Command) { c.Read.Program = "/bin/false" }, says: []string{"the reader ended by itself"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, command := bench(t, overhead.None, c.args...)
			if strings.Contains(name, "broken") {
				command.Read.Kind = overhead.Agent
			}
			if c.change != nil {
				c.change(command)
			}
			r, err := b.Run(t.Context())
			if err == nil || r != nil {
				t.Fatalf("report %v, error %v", r, err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
			if living(t) {
				t.Error("a server is left")
			}
		})
	}
}

// living reports whether a server that this test has started lives.
func living(t *testing.T) bool {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		b, _ := os.ReadFile(path) // it may have ended
		return strings.Contains(string(b), "\x00--of\x00"+t.Name()+"\x00")
	})
}
