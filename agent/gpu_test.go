package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/wire"
)

// What a helper prints comes to the server: a source for each device, whole, in order.
func TestSamplesReachTheServer(t *testing.T) {
	h := newHost(t)
	h.startServer()
	helper := filepath.Join(t.TempDir(), gpu.Helper)
	line := `{\"uuid\":\"GPU-%s\",\"device\":{\"uuid\":\"GPU-%s\",\"name\":\"NVIDIA H100\"},\"sample\":{\"Time\":$n,\"Every\":100000000,\"State\":1,\"Values\":[{\"Signal\":0,\"Value\":0.5}]}}`
	text := "#!/bin/sh\nn=1; while :; do echo \"" + fmt.Sprintf(line, "a", "a") + "\"; echo \"" + fmt.Sprintf(line, "b", "b") + "\"; n=$((n+1)); sleep 0.05; done\n"
	if err := os.WriteFile(helper, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	h.startAgent()
	h.agent.settings.GPU = &gpu.Settings{Every: gpu.Least, Body: gpu.NVML, Helper: helper}
	ctx, cancel := context.WithCancel(t.Context())
	h.agent.sampleGPUs(ctx)
	name := func(uuid string) string {
		for n := range h.agent.sources.byName {
			if strings.Contains(n, "-gpu-GPU-"+uuid) {
				return n
			}
		}
		return ""
	}
	h.until("ten samples of each", func() bool {
		return h.back.reached(name("a"), 10) && h.back.reached(name("b"), 10)
	})
	cancel()
	h.agent.gpus.end.Wait()
	for _, uuid := range []string{"a", "b"} {
		n := name(uuid)
		h.back.mu.Lock()
		source, frame, last := h.back.sources[n], h.back.records[n][0].frame, h.back.last(n)
		h.back.mu.Unlock()
		if missing := h.back.tiles(t, n, last); missing != 0 {
			t.Errorf("%d samples are missing", missing)
		}
		hello, err := wire.ParseHello(source.Hello)
		if err != nil || hello.Role != gpu.Role || hello.Thread != "GPU-"+uuid {
			t.Errorf("%+v %v", hello, err)
		}
		about, err := gpu.ParseAbout(hello)
		if err != nil || about.Name != "NVIDIA H100" || len(about.Signals) != len(gpu.Names) || about.Every != 1e8 || about.Body != gpu.NVML {
			t.Errorf("%+v %v", about, err)
		}
		var m wire.Sample
		if err := wire.Decode(frame, &m); err != nil || len(m.Values) != 1 || m.Values[0].Value != 0.5 {
			t.Errorf("%+v %v", m, err)
		}
	}
}

// BenchmarkGPUs runs the real agent program and the real helper on a double of NVML with 8 GPUs, each read once and ten times a second: both
// together as a share of a core, and their resident memory (DESIGN §13: at most 1 % and 64 MB). The double's calls cost next to nothing; a real
// driver's are not in these figures.
func BenchmarkGPUs(b *testing.B) {
	dir := b.TempDir()
	for program, path := range map[string]string{"whylate-agent": "./../cmd/whylate-agent", gpu.Helper: "./../cmd/whylate-gpu"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program), path)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-w", "-o", filepath.Join(dir, "libnvidia-ml.so.1"), "../gpu/nvml/testdata/fake.c").CombinedOutput(); err != nil {
		b.Skipf("no double of NVML: %v\n%s", err, out)
	}
	sheet := figure.New(os.Stdout, "go test ./agent -run '^$' -bench GPUs -benchtime 1x")
	for b.Loop() {
		for _, every := range []time.Duration{time.Second, 100 * time.Millisecond} {
			h := newHost(b)
			h.startServer()
			agent := exec.Command(filepath.Join(dir, "whylate-agent"), "--server", h.target.String(), "--rings-dir", h.rings, "--spool-dir", h.spool, "--gpu-sample", "--gpu-every", every.String())
			agent.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "FAKE_NVML=gpus=8")
			agent.Stderr = os.Stderr
			if err := agent.Start(); err != nil {
				b.Fatal(err)
			}
			const length = 15 * time.Second
			time.Sleep(length)
			memory := peak(b, agent.Process.Pid)
			tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", agent.Process.Pid)) // each thread has those that it started
			for _, path := range tasks {
				children, _ := os.ReadFile(path)
				for _, pid := range strings.Fields(string(children)) {
					var n int
					fmt.Sscan(pid, &n)
					memory += peak(b, n)
				}
			}
			agent.Process.Signal(syscall.SIGTERM)
			if err := agent.Wait(); err != nil {
				b.Fatal(err)
			}
			spent := agent.ProcessState.UserTime() + agent.ProcessState.SystemTime() // the helper's too: the agent has waited for it
			h.back.mu.Lock()
			frames := 0
			for _, rs := range h.back.records {
				frames += len(rs)
			}
			h.back.mu.Unlock()
			hertz := fmt.Sprintf("%dHz", time.Second/every)
			sheet.AtMost("gpu/agent_8_gpus_"+hertz+"_cpu", 100*spent.Seconds()/length.Seconds(), "%core", 1)
			sheet.AtMost("gpu/agent_8_gpus_"+hertz+"_memory", memory, "MB", 64)
			sheet.Report("gpu/agent_8_gpus_"+hertz+"_samples", float64(frames)/length.Seconds(), "samples/s")
		}
	}
}
