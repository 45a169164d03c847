package engineenv

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process is found by its title, in the group of the one that was started and in no other.
func TestSignalsProcessesByTitle(t *testing.T) {
	e := &Engine{cmd: exec.Command("bash", "-c", `(exec -a "VLLM::Worker) R 1 1" sleep 60) & (exec -a VLLM::EngineCore sleep 60) & wait`), exit: make(chan error, 1)}
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		t.Skip(err)
	}
	go func() { e.exit <- e.cmd.Wait(); close(e.exit) }()
	defer e.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) { // until bash has started them
		ps, err := e.Processes()
		if err != nil {
			t.Fatal(err)
		}
		named := slices.DeleteFunc(ps, func(p Process) bool { return !strings.HasPrefix(p.Title, "VLLM::") })
		if len(named) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v", ps)
		}
	}
	if _, err := e.Signal("VLLM::Nobody", syscall.SIGTERM); err == nil {
		t.Error("a signal to nobody is no error")
	}
	hit, err := e.Signal("VLLM::Worker", syscall.SIGTERM)
	if err != nil || len(hit) != 1 || hit[0].Title != "VLLM::Worker) R 1 1 60" {
		t.Fatalf("%v, %v", hit, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		ps, _ := e.Processes()
		if !slices.ContainsFunc(ps, func(p Process) bool { return p.PID == hit[0].PID }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it lives: %v", ps)
		}
	}
}
