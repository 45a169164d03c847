package engineenv

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/process"
)

// Prepare installs the probe into dir/probe and makes the model without weights in dir/model. The environment itself, which other runs share,
// is left as it is.
func Prepare(ctx context.Context, python, dir string) error {
	for _, args := range [][]string{
		{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target", filepath.Join(dir, "probe"), "./probes/vllm"},
		{"probes/vllm/tests/tiny_model.py", filepath.Join(dir, "model")},
	} {
		cmd := exec.CommandContext(ctx, python, args...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s %s: %w", python, strings.Join(args, " "), err)
		}
	}
	return nil
}

// Options say how an engine is started.
type Options struct {
	Python string   // of its environment
	Dir    string   // where [Prepare] was; rings, compile caches and the log lie there too
	Rings  string   // directory of its rings; "" = Dir/rings
	Log    string   // file of its log; "" = Dir/engine.log
	Args   []string // after the usual ones, which they may overrule
	Env    []string // the same
	Before []string // a command that runs the rest of its command line in its own place: setpriv, unshare
	CLI    bool     // 'vllm serve' and not the server's module: what --api-server-count wants
}

// Command is the server's command line, and what is added to the environment: a model of four small layers, 16 sequences, 256 tokens an
// iteration, 200 blocks of 32 tokens.
func (o Options) Command(port int) (argv, env []string) {
	if o.Rings == "" {
		o.Rings = filepath.Join(o.Dir, "rings")
	}
	cache := filepath.Join(o.Dir, "cache")
	program := []string{"-m", "vllm.entrypoints.openai.api_server"}
	if o.CLI {
		program = []string{"-c", serve, "serve"}
	}
	argv = append(slices.Concat([]string{o.Python}, program, []string{
		"--model", filepath.Join(o.Dir, "model"), "--served-model-name", Model, "--load-format", "dummy", "--dtype", "float32", "--enforce-eager",
		"--max-model-len", "4096", "--max-num-seqs", "16", "--max-num-batched-tokens", "256", "--block-size", "32", "--num-gpu-blocks-override", "200",
		"--host", "127.0.0.1", "--port", fmt.Sprint(port), "--enable-logging-iteration-details"}), o.Args...)
	env = append([]string{
		"PYTHONPATH=" + filepath.Join(o.Dir, "probe"), "WHYLATE_RING_DIR=" + o.Rings,
		"TORCHINDUCTOR_CACHE_DIR=" + filepath.Join(cache, "inductor"), "VLLM_CACHE_ROOT=" + filepath.Join(cache, "vllm"), "TRITON_CACHE_DIR=" + filepath.Join(cache, "triton"),
		"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_CPU_KVCACHE_SPACE=1", "OMP_NUM_THREADS=1", "VLLM_LOGGING_COLOR=0"}, o.Env...)
	return argv, env
}

// serve is the vllm command: it asks for the version of a package "vllm", which the CPU build calls vllm-cpu.
const serve = `import importlib.metadata as m
known = m.version
m.version = lambda name: known("vllm-cpu") + "+cpu" if name == "vllm" else known(name)
from vllm.entrypoints.cli.main import main
main()`

// Model is the name under which an engine serves its model.
const Model = "tiny"

// Engine is a running vLLM.
type Engine struct {
	URL     string
	Log     string
	Started time.Time

	cmd  *exec.Cmd
	exit chan error
}

// Start starts a server and waits until it is healthy, for five minutes at most. With an empty Dir/cache it compiles anew.
func Start(ctx context.Context, o Options) (*Engine, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	if o.Log == "" {
		o.Log = filepath.Join(o.Dir, "engine.log")
	}
	argv, env := o.Command(port)
	argv = append(slices.Clone(o.Before), argv...)
	e := &Engine{URL: fmt.Sprintf("http://127.0.0.1:%d", port), Log: o.Log, Started: time.Now(), cmd: exec.Command(argv[0], argv[1:]...), exit: make(chan error, 1)}
	log, err := os.Create(e.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	e.cmd.Env = append(os.Environ(), env...)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // engine core and worker go down with it
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { e.exit <- e.cmd.Wait(); close(e.exit) }()
	if err := e.healthy(ctx); err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

func (e *Engine) healthy(ctx context.Context) error {
	deadline := time.After(5 * time.Minute)
	for {
		select {
		case err := <-e.exit:
			return fmt.Errorf("the engine ended while starting (%v); the end of its log:\n%s", err, tail(e.Log))
		case <-deadline:
			return fmt.Errorf("the engine is not healthy after 5 minutes; the end of its log:\n%s", tail(e.Log))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
		if resp, err := http.Get(e.URL + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
}

// Stop ends the server as an operator would, and makes sure of it.
func (e *Engine) Stop() {
	e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.exit:
	case <-time.After(20 * time.Second):
	}
	syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
}

// Metrics reads the server's /metrics.
func (e *Engine) Metrics() (string, error) {
	resp, err := http.Get(e.URL + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// PID is the process that was started: the API server, or the one that starts several.
func (e *Engine) PID() int { return e.cmd.Process.Pid }

// Process is one of an engine's. vLLM rewrites the titles of its own: "VLLM::EngineCore", "VLLM::Worker".
type Process = process.Process

// Processes are those of the engine that live, the started one among them.
func (e *Engine) Processes() ([]Process, error) { return process.Group(e.PID()) }

// Signal sends a signal to those processes of the engine whose title begins so, and returns them. None is an error.
func (e *Engine) Signal(title string, sig syscall.Signal) ([]Process, error) {
	all, err := e.Processes()
	if err != nil {
		return nil, err
	}
	var hit []Process
	for _, p := range all {
		if !strings.HasPrefix(p.Title, title) {
			continue
		}
		if err := syscall.Kill(p.PID, sig); err != nil {
			return hit, fmt.Errorf("%v to %s (%d): %w", sig, p.Title, p.PID, err)
		}
		hit = append(hit, p)
	}
	if len(hit) == 0 {
		return nil, fmt.Errorf("no process of the engine is called %q; there are %v", title, all)
	}
	return hit, nil
}

// FreePort is a port of the loopback on which nobody listens.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// tail is the end of a file, for an error.
func tail(path string) string {
	b, _ := os.ReadFile(path)
	if len(b) > 3000 {
		b = b[len(b)-3000:]
	}
	return string(b)
}
