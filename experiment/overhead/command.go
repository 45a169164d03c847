package overhead

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/process"
	"github.com/whylate/whylate/wire"
)

// PortMark is what a free port takes the place of, in a command and in its URL.
const PortMark = "{port}"

// Command starts a server's command line anew for each run.
type Command struct {
	Args  []string      // the command line; every [PortMark] becomes a free port
	URL   string        // where it answers, in the same way; empty is http://127.0.0.1:{port}
	Dir   string        // a directory for logs and for what a reader keeps
	Rings string        // a directory, best in shared memory, for the rings of each run
	Limit time.Duration // until it is healthy; 0 is 10 minutes
	Read  Reading       // of the rings, where the probe is on

	runs int
}

// Fresh is true.
func (*Command) Fresh() bool { return true }

// String says what is compared.
func (c *Command) String() string {
	return fmt.Sprintf("a fresh one a run, rings read by %s: %s", c.Read.Kind, strings.Join(c.Args, " "))
}

// Notes says what the numbers contain.
func (c *Command) Notes() []string {
	notes := []string{
		"Both arms have " + stampPrefix[:strings.IndexByte(stampPrefix, '=')] + " set, which stamps the engine's log; the gap between iterations is from that log and needs --enable-logging-iteration-details.",
		"Server, reader and load generator share this machine.",
	}
	return append(notes, c.Read.notes()...)
}

// startLimit is how long a server has until it is healthy, if nothing else is said.
const startLimit = 10 * time.Minute

// Check holds that it can be started at all, and fills in what is left out.
func (c *Command) Check() error {
	if len(c.Args) == 0 {
		return errors.New("no command to start: give the server's command line behind --")
	}
	if c.URL == "" {
		if !strings.Contains(strings.Join(c.Args, " "), PortMark) {
			return fmt.Errorf("where will the server answer? Write %s into its command, as in --port %s, or give --url", PortMark, PortMark)
		}
		c.URL = "http://127.0.0.1:" + PortMark
	}
	if c.Limit < 0 {
		return fmt.Errorf("time to start %v: give a time above 0", c.Limit)
	}
	if c.Limit == 0 {
		c.Limit = startLimit
	}
	return c.Read.check()
}

// Start starts the server, waits until it is healthy, and, with the probe, starts the reader of its rings.
func (c *Command) Start(ctx context.Context, probe bool) (Server, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c.runs++
	arm := Off
	if probe {
		arm = On
	}
	fill := strings.NewReplacer(PortMark, port).Replace
	args := make([]string, len(c.Args))
	for i, a := range c.Args {
		args[i] = fill(a)
	}
	name := fmt.Sprintf("run-%02d-%s", c.runs, arm)
	s := &running{url: fill(c.URL), rings: filepath.Join(c.Rings, name)}
	if err := os.Mkdir(s.rings, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for rings: %w", err)
	}
	env := append(os.Environ(), stampPrefix, "WHYLATE_PROBE="+string(arm), "WHYLATE_RING_DIR="+s.rings)
	if s.server, err = start("server", args, env, filepath.Join(c.Dir, name+".log")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.rings))
	}
	if err = s.healthy(ctx, c.Limit); err == nil && probe {
		s.reader, err = c.Read.start(s.rings, filepath.Join(c.Dir, name+"-reader"))
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// running is a server that was started, with its reader.
type running struct {
	url    string
	rings  string
	server *child
	reader *reader // nil without the probe, or where nobody reads
}

// healthEvery is how often a starting server is asked.
const healthEvery = 100 * time.Millisecond

// healthy waits until the server says that it is well.
func (s *running) healthy(ctx context.Context, limit time.Duration) error {
	asker := &http.Client{Timeout: 5 * time.Second}
	url := strings.TrimSuffix(strings.TrimRight(s.url, "/"), "/v1") + "/health"
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for last := errors.New("it was not asked"); ; {
		select {
		case <-s.server.gone:
			return s.server.ended()
		case <-deadline.C:
			return fmt.Errorf("the server is not healthy after %v (%w); the end of its log:\n%s", limit, last, s.server.tail())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := asker.Do(request)
		if err != nil {
			last = err
			continue
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return s.server.alive() // else another server answers at this port
		}
		last = fmt.Errorf("%s says %s", url, answer.Status)
	}
}

func (s *running) URL() string { return s.url }

func (s *running) Output(from, to int64) ([]byte, error) { return s.server.output(from, to) }

func (s *running) Recorded(from, to time.Duration) (Recorded, error) {
	return readRecorded(s.rings, from, to)
}

// Usage reads /proc, the headers of the rings and the sizes of files.
func (s *running) Usage() (Usage, error) {
	if err := s.server.alive(); err != nil {
		return Usage{}, err
	}
	u := Usage{At: time.Duration(replay.Monotonic{}.Now()), CPU: map[Role]time.Duration{}}
	ps, err := process.Group(s.server.group())
	if err != nil {
		return u, err
	}
	addCPU(u.CPU, ps)
	size, err := s.server.size()
	if err != nil {
		return u, err
	}
	u.Log = &size
	if u.Rings, err = readRings(s.rings); err != nil || s.reader == nil {
		return u, err
	}
	return u, s.reader.usage(&u)
}

// addCPU sums the times of a vLLM's processes, which it gives titles. If none has that of an engine, it runs where its processes
// cannot be seen, in a container perhaps: then nothing is known.
func addCPU(cpu map[Role]time.Duration, ps []process.Process) {
	var engine, rest time.Duration
	seen := false
	for _, p := range ps {
		if name, ok := strings.CutPrefix(p.Title, "VLLM::"); ok && !strings.HasPrefix(name, "APIServer") {
			engine += p.CPU
			seen = true
			continue
		}
		rest += p.CPU
	}
	if seen {
		cpu[Engine], cpu[Frontend] = engine, rest
	}
}

// readRings adds up the headers of all rings in a directory.
func readRings(dir string) (*Rings, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.ring"))
	if err != nil {
		return nil, err
	}
	r := &Rings{Files: len(paths)}
	for _, path := range paths {
		ring, err := wire.OpenRing(path)
		if errors.Is(err, wire.ErrUnready) {
			continue
		}
		if err != nil {
			return nil, err
		}
		status, err := ring.Status()
		if err := errors.Join(err, ring.Close()); err != nil {
			return nil, err
		}
		r.Bytes += status.Head
		r.Iterations += status.Launched
		r.Errors += status.Errors
	}
	return r, nil
}

// stopLimit is how long a server has to end in good order.
const stopLimit = 20 * time.Second

// Stop ends the reader, then the server, and removes the rings.
func (s *running) Stop() error {
	var err error
	if s.reader != nil {
		err = s.reader.stop()
	}
	s.server.stop(stopLimit)
	return errors.Join(err, os.RemoveAll(s.rings))
}
