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
	"sync/atomic"
	"testing"
	"time"

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

// said is what a command says while it runs.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A token is replaced while the agent runs: the file first, then the server takes the old one out. The agent comes back with the new one.
func TestTakesUpANewToken(t *testing.T) {
	dir := t.TempDir()
	socket, token := filepath.Join(dir, "socket"), filepath.Join(dir, "token")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Pointer[[]string]
	accepted.Store(&[]string{"old"})
	s := &stream.Server{Tokens: func() ([]string, error) { return *accepted.Load(), nil }, Accept: func(context.Context, []stream.Batch) error { return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	log := &said{}
	running.Go(func() {
		c := &Command{Program: "whylate-agent", Environ: []string{"HOME=" + dir, "WHYLATE_RING_DIR=" + filepath.Join(dir, "rings")}, Out: log, Err: log}
		if status := c.Run(ctx, []string{"--server", "unix://" + socket, "--token-file", token, "--grace", "1ms"}); status != ExitOK {
			t.Errorf("status %d: %s", status, log)
		}
	})
	until := func(what string, is func() bool) {
		t.Helper()
		again := time.NewTicker(10 * time.Millisecond)
		defer again.Stop()
		for end := time.Now().Add(time.Minute); !is(); <-again.C {
			if time.Now().After(end) {
				t.Fatalf("%s does not come about: %+v\n%s", what, s.Stats(), log)
			}
		}
	}
	until("a connection", func() bool { return len(s.Stats().Agents) == 1 })
	put("") // broken: the old one stays in force
	until("a complaint", func() bool { return strings.Contains(log.String(), "the file holds none") })
	put("new")
	until("the renewal", func() bool { return strings.Contains(log.String(), "msg=renewed") })
	accepted.Store(&[]string{"new"})
	s.Recheck()
	until("a new connection", func() bool { st := s.Stats(); return st.Connections == 2 && len(st.Agents) == 1 })
	if strings.Contains(log.String(), "the token is wrong") {
		t.Errorf("it showed the old token again: %s", log)
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
	allowed := map[string]bool{"ledger": true, "identity": true, "wire": true, "ingest/stream": true, "config": true, "agent": true, "gpu": true, "signals": true, "agent/command": true, "cmd/whylate-agent": true, "internal/renew": true}
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
