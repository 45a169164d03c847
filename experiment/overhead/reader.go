package overhead

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/process"
)

// Reading says who reads the rings where the probe is on: a process of its own, as in production.
type Reading struct {
	Kind    string // one of [Kinds]
	Program string // a whylate to run as "agent" or "capture"
}

// Kinds of readers. An agent sends to a server in the bench's own process, which takes everything and forgets it.
const (
	Agent   = "agent"
	Capture = "capture"
	None    = "none"
)

// Kinds are all of them, the usual one first.
var Kinds = []string{Agent, Capture, None}

func (r Reading) check() error {
	if !slices.Contains(Kinds, r.Kind) {
		return fmt.Errorf("reader %q: give one of %s", r.Kind, strings.Join(Kinds, ", "))
	}
	return nil
}

func (r Reading) notes() []string {
	switch r.Kind {
	case Agent:
		return []string{"The reader is whylate agent at its defaults; it sends over the loopback to a server in this command's own process, whose time is nobody's here."}
	case Capture:
		return []string{"The reader is whylate capture at its defaults, writing a file."}
	}
	return []string{"Nobody read the rings: in production somebody does."}
}

// reader is one that runs.
type reader struct {
	*child
	kept string // directory of its capture, or of its spool
	sink *sink  // of an agent
}

// start starts a reader, nil for none. What it keeps lies in dir.
func (r Reading) start(rings, dir string) (*reader, error) {
	if r.Kind == None {
		return nil, nil
	}
	started := &reader{kept: filepath.Join(dir, "kept")}
	if err := os.MkdirAll(started.kept, 0o700); err != nil {
		return nil, fmt.Errorf("start the reader: %w", err)
	}
	settings := filepath.Join(dir, "whylate.yaml") // empty, so that no settings of this host are used
	if err := os.WriteFile(settings, nil, 0o600); err != nil {
		return nil, fmt.Errorf("start the reader: %w", err)
	}
	args := []string{r.Program, "capture", "--ring-dir", rings, filepath.Join(started.kept, "capture.wlc")}
	if r.Kind == Agent {
		var err error
		if started.sink, err = openSink(); err != nil {
			return nil, err
		}
		args = []string{r.Program, "agent", "--config", settings, "--server", "tcp://" + started.sink.address(), "--rings-dir", rings,
			"--spool-dir", started.kept}
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "WHYLATE_") }) // its defaults are measured
	var err error
	if started.child, err = start("reader", args, env, filepath.Join(dir, "reader.log")); err != nil {
		if started.sink != nil {
			started.sink.close()
		}
		return nil, err
	}
	return started, nil
}

// usage adds what it has used.
func (r *reader) usage(u *Usage) error {
	if err := r.alive(); err != nil {
		return err
	}
	ps, err := process.Group(r.group())
	if err != nil {
		return err
	}
	var cpu time.Duration
	for _, p := range ps {
		cpu += p.CPU
	}
	u.CPU[Reader] = cpu
	files, err := os.ReadDir(r.kept)
	if err != nil {
		return err
	}
	var bytes int64
	for _, f := range files {
		if info, err := f.Info(); err == nil { // else it went away meanwhile
			bytes += info.Size()
		}
	}
	u.Capture = &bytes
	if r.sink != nil {
		n := r.sink.bytes.Load()
		u.Network = &n
	}
	return nil
}

// stop ends it, and says if it read nothing: then its cost would be that of an idle one.
func (r *reader) stop() error {
	if r.sink != nil {
		select { // a short run on a busy machine may be over before the agent has come to its first turn
		case <-r.sink.first:
		case <-r.gone:
		case <-time.After(firstLimit):
		}
	}
	r.child.stop(stopLimit)
	if r.sink == nil {
		return nil
	}
	r.sink.close()
	if r.sink.frames.Load() == 0 {
		return fmt.Errorf("the agent has sent no record; the end of its log:\n%s", r.tail())
	}
	return nil
}

// sink is a server that agents send to. It acknowledges everything and keeps nothing.
type sink struct {
	listener net.Listener
	bytes    atomic.Int64 // both ways
	frames   atomic.Int64
	first    chan struct{} // closed when the first has come
	close    func()
}

// firstLimit is how long an agent may need for its first record once its server's run is over.
const firstLimit = 5 * time.Second

func openSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a server for the agent: %w", err)
	}
	s := &sink{listener: l, first: make(chan struct{})}
	var once sync.Once
	server := &stream.Server{Version: "overhead", Accept: func(_ context.Context, batches []stream.Batch) error {
		for _, b := range batches {
			if n := len(b.Frames); n > 0 {
				s.frames.Add(int64(n))
				once.Do(func() { close(s.first) })
			}
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ctx, counting{l, &s.bytes}) // if it ends by itself, no frames come, which stop tells
	}()
	s.close = func() { cancel(); <-done }
	return s, nil
}

func (s *sink) address() string { return s.listener.Addr().String() }

// counting counts the bytes of all connections of a listener.
type counting struct {
	net.Listener
	n *atomic.Int64
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return counted{c, l.n}, err
}

type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}
