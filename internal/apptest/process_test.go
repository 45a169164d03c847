package apptest

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/cli"
	"github.com/whylate/whylate/ingest/stream"
)

// asCommand is set for the processes that the tests start: then this binary is the command line, whatever its arguments.
const asCommand = "WHYLATE_APPTEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// patience is how long anything may take before a test gives it up: far above what it takes on a machine that others use too.
const patience = time.Minute

// await asks until it is so, or fails the test.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !so(); {
		<-tick.C
		if time.Now().After(end) {
			t.Fatalf("waited %v for this, in vain: %s", patience, what)
		}
	}
}

// command makes a process that runs the command line with these arguments, and no settings but the defaults.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none.yaml")
	if err := os.WriteFile(none, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "WHYLATE_") })
	cmd.Env = append(cmd.Env, asCommand+"=1", "WHYLATE_CONFIG="+none, "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is itself killed leaves nothing behind
	return cmd
}

// process is a running 'whylate serve'.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	socket string // where agents come to
	exited chan struct{}

	mu   sync.Mutex
	log  []line
	read chan struct{} // closed when the log ends
}

// line is one line of its log.
type line struct {
	Msg     string `json:"msg"`
	Address string `json:"address"`
	Error   string `json:"error"`
	text    string
}

// serve starts a server on a data directory. It need not answer yet.
func serve(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	p := &process{t: t, socket: filepath.Join(dir, "s"), exited: make(chan struct{}), read: make(chan struct{})}
	p.cmd = command(t, append([]string{"serve", "--data-dir", filepath.Join(dir, "data"), "--listen-http", "127.0.0.1:0", "--listen-agents", "off",
		"--listen-unix", p.socket, "--rings-follow=false", "--log-format", "json"}, args...)...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			l := line{text: lines.Text()}
			_ = json.Unmarshal(lines.Bytes(), &l) // what is no JSON is kept as text
			p.mu.Lock()
			p.log = append(p.log, l)
			p.mu.Unlock()
		}
	}()
	go func() {
		<-p.read
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, l := range p.log {
				if l.Msg != "http" {
					t.Log(l.text)
				}
			}
		}
	})
	return p
}

// said is the first line of the log with this message.
func (p *process) said(msg string) (line, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.log, func(l line) bool { return l.Msg == msg })
	if i < 0 {
		return line{}, false
	}
	return p.log[i], true
}

// alive fails the test if the process has ended by itself.
func (p *process) alive() {
	p.t.Helper()
	select {
	case <-p.exited:
		p.t.Fatal("the server ended by itself")
	default:
	}
}

// client waits until the server answers, and asks it.
func (p *process) client() *client.Client {
	p.t.Helper()
	await(p.t, "the server's address", func() bool { p.alive(); _, ok := p.said("answering"); return ok })
	l, _ := p.said("answering")
	c, err := client.New(l.Address, client.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	await(p.t, "the server to be ready", func() bool { p.alive(); return c.Ready(context.Background()) == nil })
	return c
}

// target is where agents come to.
func (p *process) target() stream.Target { return stream.Target{Network: "unix", Address: p.socket} }

// kill ends the process as a kill -9 does, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.exited
}

// stop ends it in good order.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	<-p.exited
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("the server ended with %v", p.cmd.ProcessState)
	}
}
