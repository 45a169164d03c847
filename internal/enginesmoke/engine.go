package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// engine is a running vLLM.
type engine struct {
	url   string
	cmd   *exec.Cmd
	log   string
	exit  chan error
	since time.Time
}

// prepare puts the probe and the model into dir: the environment itself, which other runs share, is left as it is.
func prepare(ctx context.Context, python, dir string) error {
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

// start starts the server with empty compile caches and waits until it is healthy.
func start(ctx context.Context, python, dir string) (*engine, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	e := &engine{url: fmt.Sprintf("http://127.0.0.1:%d", port), log: filepath.Join(dir, "engine.log"), exit: make(chan error, 1), since: time.Now()}
	log, err := os.Create(e.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	e.cmd = exec.Command(python, "-m", "vllm.entrypoints.openai.api_server",
		"--model", filepath.Join(dir, "model"), "--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32", "--enforce-eager",
		"--max-model-len", "4096", "--max-num-seqs", "16", "--max-num-batched-tokens", "256", "--block-size", "32", "--num-gpu-blocks-override", "200",
		"--host", "127.0.0.1", "--port", fmt.Sprint(port), "--enable-logging-iteration-details")
	e.cmd.Env = append(os.Environ(),
		"PYTHONPATH="+filepath.Join(dir, "probe"), "WHYLATE_RING_DIR="+filepath.Join(dir, "rings"), "WHYLATE_DEPLOYMENT=smoke", "WHYLATE_REPLICA=vllm-0",
		"TORCHINDUCTOR_CACHE_DIR="+filepath.Join(dir, "cache", "inductor"), "VLLM_CACHE_ROOT="+filepath.Join(dir, "cache", "vllm"), "TRITON_CACHE_DIR="+filepath.Join(dir, "cache", "triton"),
		"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "VLLM_CPU_KVCACHE_SPACE=1", "OMP_NUM_THREADS=1", "VLLM_LOGGING_COLOR=0")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // engine core and worker go down with it
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { e.exit <- e.cmd.Wait() }()
	deadline := time.After(5 * time.Minute)
	for {
		select {
		case err := <-e.exit:
			return nil, fmt.Errorf("the engine ended while starting (%v); the end of its log:\n%s", err, tail(e.log))
		case <-deadline:
			e.stop()
			return nil, fmt.Errorf("the engine is not healthy after 5 minutes; the end of its log:\n%s", tail(e.log))
		case <-ctx.Done():
			e.stop()
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
		if resp, err := http.Get(e.url + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return e, nil
			}
		}
	}
}

// stop ends the server as an operator would, and makes sure of it.
func (e *engine) stop() {
	e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.exit:
	case <-time.After(20 * time.Second):
	}
	syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL)
}

// metrics reads the server's /metrics.
func (e *engine) metrics() (string, error) {
	resp, err := http.Get(e.url + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func freePort() (int, error) {
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
