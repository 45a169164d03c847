package command

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/wire"
)

func run(t *testing.T, environ []string, args ...string) (status int, said string) {
	t.Helper()
	var out bytes.Buffer
	c := &Command{Program: "whylate-agent", Environ: append(environ, "HOME="+t.TempDir()), Out: &out, Err: &out}
	return c.Run(t.Context(), args), out.String()
}

func TestForwardsOnce(t *testing.T) {
	dir := t.TempDir()
	rings, spool, socket := filepath.Join(dir, "rings"), filepath.Join(dir, "spool"), filepath.Join(dir, "socket")
	if err := os.Mkdir(rings, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := wire.CreateRing(rings, &wire.Hello{Protocol: [2]uint16{1, 0}, Role: "engine", Thread: "scheduler", PID: 3, Boot: "01234567"}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for n := range 1000 {
		if err := w.Write(&wire.Notice{Time: int64(n + 1), Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	frames := map[string]int{}
	s := &stream.Server{Tokens: func() ([]string, error) { return []string{"sesame"}, nil },
		Accept: func(_ context.Context, batches []stream.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, b := range batches {
				frames[b.Source.Name] += len(b.Frames)
			}
			return nil
		}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	status, said := run(t, []string{"WHYLATE_RING_DIR=" + rings, "WHYLATE_AGENT_SPOOL_DIR=" + spool}, "--server", "unix://"+socket, "--token-file", token, "--once")
	if status != ExitOK || !strings.Contains(said, "1001 records read") {
		t.Errorf("status %d: %s", status, said)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := frames[filepath.Base(w.Path())]; n != 1001 {
		t.Errorf("%d frames arrived", n)
	}
	if info, err := os.Stat(filepath.Join(spool, "key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
}

func TestRefusesByName(t *testing.T) {
	dir := t.TempDir()
	env := []string{"WHYLATE_AGENT_SPOOL_DIR=" + filepath.Join(dir, "spool")}
	for _, tt := range []struct {
		args   []string
		status int
		words  string
	}{
		{[]string{"--server", "ftp://x"}, ExitUsage, "ftp"},
		{[]string{"--spool-bytes", "5"}, ExitUsage, "spool"},
		{[]string{"--every", "0s"}, ExitUsage, "--every"},
		{[]string{"--memory", "5"}, ExitUsage, "--memory"},
		{[]string{"--token-file", filepath.Join(dir, "no")}, ExitUsage, "token"},
		{[]string{"--nonsense"}, ExitUsage, "--help"},
		{[]string{"stray"}, ExitUsage, "stray"},
		{[]string{"--once", "--rings-dir", filepath.Join(dir, "no rings")}, ExitOK, "0 records"},
		{[]string{"--help"}, ExitOK, "--once"},
		{[]string{"--version"}, ExitOK, "protocol 1.0"},
	} {
		if status, said := run(t, env, tt.args...); status != tt.status || !strings.Contains(said, tt.words) {
			t.Errorf("%v: status %d, %s", tt.args, status, said)
		}
	}
}

// TestAgentIsSmall holds the agent's program to what it may import, and to need no cgo.
func TestAgentIsSmall(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "github.com/whylate/whylate/cmd/whylate-agent")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{"ledger": true, "wire": true, "ingest/stream": true, "config": true, "agent": true, "agent/command": true, "cmd/whylate-agent": true, "internal/renew": true}
	for dep := range strings.Lines(string(out)) {
		dep = strings.TrimSpace(dep)
		host, _, _ := strings.Cut(dep, "/")
		ours, isOurs := strings.CutPrefix(dep, "github.com/whylate/whylate/")
		switch {
		case isOurs && allowed[ours], !isOurs && !strings.Contains(host, ".") && dep != "runtime/cgo":
		case strings.HasPrefix(dep, "github.com/klauspost/compress"), strings.HasPrefix(dep, "golang.org/x/sys/"), dep == "go.yaml.in/yaml/v3":
		default:
			t.Errorf("the agent imports %s", dep)
		}
	}
}

func TestBuildsForBothArchitectures(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		build := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), arch), "github.com/whylate/whylate/cmd/whylate-agent")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", arch, err, out)
		}
	}
}
