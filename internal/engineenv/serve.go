package engineenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Server is a running 'whylate serve'.
type Server struct {
	URL string

	binary string
	cmd    *exec.Cmd
}

// Serve starts a server that reads these rings and keeps its data, log and settings in dir, and waits until it answers. settings is the
// text of its whylate.yaml; "" = the defaults.
func Serve(ctx context.Context, binary, dir, rings, settings string) (*Server, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "whylate.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "serve.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	address := fmt.Sprintf("127.0.0.1:%d", port)
	v := &Server{URL: "http://" + address, binary: binary}
	v.cmd = exec.Command(binary, "serve", "--config", file, "--data-dir", filepath.Join(dir, "data"), "--rings-dir", rings, "--listen-http", address, "--listen-agents", "off")
	v.cmd.Stdout, v.cmd.Stderr = log, log
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	if !Await(ctx, 20*time.Second, func() bool {
		resp, err := http.Get(v.URL + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}) {
		v.Stop()
		return nil, errors.New("whylate serve is not ready after 20 s; the end of its log:\n" + tail(log.Name()))
	}
	return v, nil
}

// Stop ends it in good order.
func (v *Server) Stop() {
	v.cmd.Process.Signal(syscall.SIGTERM)
	v.cmd.Wait()
}

// Ask runs a command of the program against the server, as a person would, and reads its JSON.
func (v *Server) Ask(ctx context.Context, answer any, args ...string) error {
	return Ask(ctx, v.binary, answer, append(args, "--server", v.URL)...)
}

// Ask runs a command of the program and reads its JSON.
func Ask(ctx context.Context, binary string, answer any, args ...string) error {
	out, err := exec.CommandContext(ctx, binary, append(args, "-o", "json")...).Output()
	if err != nil {
		return fmt.Errorf("whylate %v: %w", args, err)
	}
	return json.Unmarshal(out, answer)
}

// Await asks every fifty milliseconds until it is so, and reports whether it ever was.
func Await(ctx context.Context, most time.Duration, so func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}
