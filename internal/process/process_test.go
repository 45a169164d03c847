package process

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestGroupHasItsMembersTitlesAndTimes(t *testing.T) {
	cmd := exec.Command("bash", "-c", `(exec -a "VLLM::Worker) R 1 1" sleep 60) & while :; do :; done`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) { // until bash has got anywhere
		ps, err := Group(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		var busy, worker bool
		for _, p := range ps {
			busy = busy || p.PID == cmd.Process.Pid && p.CPU >= 2*tick
			worker = worker || p.Title == "VLLM::Worker) R 1 1 60" && p.CPU < time.Second
		}
		if busy && worker && len(ps) == 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", ps)
		}
	}
}

func TestNobodyIsInAGroupThatIsNot(t *testing.T) {
	if ps, err := Group(1 << 30); err != nil || len(ps) != 0 {
		t.Errorf("%v, %v", ps, err)
	}
}
