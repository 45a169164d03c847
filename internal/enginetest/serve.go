package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/engineenv"
)

// served is a running 'whylate serve'.
type served struct {
	binary, url string
	cmd         *exec.Cmd
}

// serve starts a server that reads these rings, and waits until it answers.
func (b *bench) serve(ctx context.Context, dir, rings string) (*served, error) {
	port, err := engineenv.FreePort()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	none := filepath.Join(dir, "none.yaml") // no settings but the defaults
	if err := os.WriteFile(none, nil, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "serve.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	address := fmt.Sprintf("127.0.0.1:%d", port)
	v := &served{binary: b.binary, url: "http://" + address}
	v.cmd = exec.Command(b.binary, "serve", "--config", none, "--data-dir", filepath.Join(dir, "data"), "--rings-dir", rings, "--listen-http", address, "--listen-agents", "off")
	v.cmd.Stdout, v.cmd.Stderr = log, log
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	if !await(ctx, 20*time.Second, func() bool {
		resp, err := http.Get(v.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}) {
		v.stop()
		return nil, errors.New("whylate serve is not ready after 20 s")
	}
	return v, nil
}

func (v *served) stop() {
	v.cmd.Process.Signal(syscall.SIGTERM)
	v.cmd.Wait()
}

// ask runs a command of the program against the server, as a person would, and reads its JSON.
func (v *served) ask(ctx context.Context, answer any, args ...string) error {
	out, err := exec.CommandContext(ctx, v.binary, append(args, "-o", "json", "--server", v.url)...).Output()
	if err != nil {
		return fmt.Errorf("whylate %v: %w", args, err)
	}
	return json.Unmarshal(out, answer)
}

// top is what 'whylate top' says of the newest incarnation, nil if it cannot be asked or there is none.
func (v *served) top(ctx context.Context) *api.EngineState {
	var l api.EngineList
	if v.ask(ctx, &l, "top", "--once") != nil || len(l.Engines) == 0 {
		return nil
	}
	return &l.Engines[len(l.Engines)-1]
}

// state waits until 'whylate top' says one of these of the newest incarnation, and returns it with how long that took; nil if it never does.
func (v *served) state(ctx context.Context, most time.Duration, wanted ...api.EngineStatus) (*api.EngineState, time.Duration) {
	var e *api.EngineState
	from := time.Now()
	if !await(ctx, most, func() bool { e = v.top(ctx); return e != nil && slices.Contains(wanted, e.Status) }) {
		return nil, time.Since(from)
	}
	return e, time.Since(from)
}

// await asks every fifty milliseconds until it is so, and reports whether it ever was.
func await(ctx context.Context, most time.Duration, so func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}
