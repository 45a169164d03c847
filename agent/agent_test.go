package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/renew"
	"github.com/whylate/whylate/wire"
)

// kept is one thing that a server was given, in order.
type kept struct {
	frame wire.Frame
	gap   *wire.Gap
}

// backend is what stands behind the server in tests. It outlives the server, as a log does.
type backend struct {
	mu      sync.Mutex
	sources map[string]wire.Source
	records map[string][]kept
	refuse  func() error
}

func newBackend() *backend {
	return &backend{sources: map[string]wire.Source{}, records: map[string][]kept{}}
}

func (b *backend) accept(_ context.Context, batches []stream.Batch) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		if err := b.refuse(); err != nil {
			return err
		}
	}
	for _, x := range batches {
		name := x.Source.Name
		b.sources[name] = x.Source
		for _, f := range x.Frames {
			f.Raw = bytes.Clone(f.Raw)
			f.Body = f.Raw[wire.FrameHeader:]
			b.records[name] = append(b.records[name], kept{frame: f})
		}
		if x.Gap != nil {
			b.records[name] = append(b.records[name], kept{gap: x.Gap})
		}
	}
	return nil
}

func (b *backend) durable(_ context.Context, s wire.Source) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last(s.Name), nil
}

func (b *backend) last(name string) (last uint64) {
	for _, k := range b.records[name] {
		last = max(last, k.frame.Sequence)
		if k.gap != nil {
			last = max(last, k.gap.To)
		}
	}
	return last
}

// reached reports whether the server has a ring up to a sequence.
func (b *backend) reached(name string, sequence uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last(name) >= sequence
}

// tiles checks that frames and gaps of a source lie one behind the other from 1 to last, and returns how many frames are missing.
func (b *backend) tiles(t testing.TB, name string, last uint64) (missing uint64) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	next := uint64(1)
	for _, k := range b.records[name] {
		if k.gap != nil {
			if k.gap.From != next || k.gap.To < next {
				t.Fatalf("%s: gap %+v where %d is due", name, *k.gap, next)
			}
			missing += k.gap.To - k.gap.From + 1
			next = k.gap.To + 1
			continue
		}
		if k.frame.Sequence != next {
			t.Fatalf("%s: frame %d where %d is due", name, k.frame.Sequence, next)
		}
		next++
	}
	if next != last+1 {
		t.Fatalf("%s: ends before %d, want up to %d", name, next, last)
	}
	return missing
}

// host is a machine with rings, an agent and a way to a server.
type host struct {
	t       testing.TB
	rings   string
	spool   string
	target  stream.Target
	back    *backend
	server  *stream.Server
	stop    func()
	now     Instant
	agent   *Agent
	tune    func(*Settings)
	log     bytes.Buffer
	pid     int
	started int64
}

func newHost(t testing.TB) *host {
	dir := t.TempDir()
	h := &host{t: t, rings: filepath.Join(dir, "rings"), spool: filepath.Join(dir, "spool"), back: newBackend(), now: Now(),
		target: stream.Target{Network: "unix", Address: filepath.Join(dir, "socket")}, pid: 100, tune: func(*Settings) {}}
	if err := os.Mkdir(h.rings, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if h.agent != nil {
			h.agent.Close()
		}
		h.stopServer()
		if t.Failed() {
			t.Log(h.log.String())
		}
	})
	return h
}

func (h *host) startServer() {
	h.t.Helper()
	l, err := net.Listen(h.target.Network, h.target.Address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.target.Address = l.Addr().String()
	if h.server == nil {
		h.server = &stream.Server{}
	}
	h.server = &stream.Server{Accept: h.back.accept, Durable: h.back.durable, Settings: h.server.Settings, TLS: h.server.TLS, Tokens: h.server.Tokens}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := h.server
	go func() { done <- s.Serve(ctx, l) }()
	h.stop = func() { cancel(); <-done }
}

func (h *host) stopServer() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// startAgent starts an agent process, so to speak.
func (h *host) startAgent() {
	h.t.Helper()
	h.started++
	s := Settings{RingDir: h.rings, SpoolDir: h.spool, Key: bytes.Repeat([]byte{7}, keySize), MaxBackoff: 500 * time.Millisecond, PollEvery: 50 * time.Millisecond,
		Server: stream.Dialer{Target: h.target, Clock: pair, Agent: stream.Identity{Host: "host", Boot: "boot", PID: 7, Start: uint64(h.started), Version: "test"}},
		Log:    slog.New(slog.NewTextHandler(&h.log, nil))}
	h.tune(&s)
	a, err := New(s)
	if err != nil {
		h.t.Fatal(err)
	}
	h.agent = a
}

// stopAgent ends the agent in good order.
func (h *host) stopAgent() {
	h.t.Helper()
	if err := h.agent.Close(); err != nil {
		h.t.Error(err)
	}
	h.agent = nil
}

// killAgent ends it as a kill does: what it has in memory is gone.
func (h *host) killAgent() {
	h.agent.hangUp()
	h.agent.spool.lock.Close()
	if h.agent.ringLock != nil {
		h.agent.ringLock.Close()
	}
	h.agent.follower.Close()
	h.agent = nil
}

// step lets 10 ms pass.
func (h *host) step() {
	h.now.Unix += 10e6
	h.now.Mono += 10e6
	h.agent.Step(h.now)
}

// until steps until something is so. The network's part happens in the background, so each step waits a moment for it.
func (h *host) until(what string, so func() bool) {
	h.t.Helper()
	for deadline := time.After(60 * time.Second); ; {
		h.step()
		if so() {
			return
		}
		select {
		case <-h.agent.Woken():
		case <-time.After(2 * time.Millisecond):
		case <-deadline:
			h.t.Fatalf("waited in vain until %s; counts %+v, problem %v", what, h.agent.Counts(), h.agent.forward.problem)
		}
	}
}

func (h *host) pass(d time.Duration) { h.now.Unix += int64(d); h.now.Mono += int64(d) }

// engine is a ring and its writer.
type engine struct {
	t testing.TB
	*wire.RingWriter
	name string
	n    uint64 // sequence of the last frame
	h    *host
}

const ringSize = 1 << 20

func (h *host) startEngine(size int64) *engine {
	h.t.Helper()
	h.pid++
	hello := &wire.Hello{Protocol: [2]uint16{1, 0}, Producer: wire.Producer{Name: "test", Version: "1"}, Role: "engine", Thread: "scheduler", PID: uint32(h.pid),
		Start: 5, Boot: "01234567-89ab", Host: "host", Engine: wire.Engine{Name: "vllm", Deployment: "d", Replica: "r", Incarnation: fmt.Sprint("i", h.pid)}}
	w, err := wire.CreateRing(h.rings, hello, size)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { w.Close() })
	return &engine{h.t, w, filepath.Base(w.Path()), 1, h}
}

func (e *engine) put(m wire.Message) {
	e.t.Helper()
	if err := e.Write(m); err != nil {
		e.t.Fatal(err)
	}
	e.n++
}

// write writes n frames of about 140 bytes that do not pack well.
func (e *engine) write(n int) {
	e.t.Helper()
	for range n {
		x := e.n * 0x9E3779B97F4A7C15
		e.put(&wire.Notice{Time: e.h.now.Mono, Text: fmt.Sprintf("%x%x%x%x%x", x, x*x, x*x*x, x^x>>7, x*31)})
	}
}

// arrived waits until all that was written is at the server, and checks it.
func (e *engine) arrived() (missing uint64) {
	e.t.Helper()
	e.h.until(e.name+" has arrived", func() bool { return e.h.back.reached(e.name, e.n) })
	return e.h.back.tiles(e.t, e.name, e.n)
}

func (e *engine) whole() {
	e.t.Helper()
	if n := e.arrived(); n != 0 {
		e.t.Errorf("%s: %d frames are missing", e.name, n)
	}
}

func TestForwardsAllRings(t *testing.T) {
	h := newHost(t)
	a, b := h.startEngine(ringSize), h.startEngine(ringSize)
	a.write(100)
	h.startServer()
	h.startAgent()
	a.whole()
	b.write(50)
	a.write(1)
	b.whole()
	a.whole()
	c := h.startEngine(ringSize) // a new incarnation joins by itself
	c.write(10)
	c.whole()
	h.until("all is acknowledged", h.agent.delivered)
	if s := h.back.sources[c.name]; s.Hello == nil || s.Opened == 0 {
		t.Errorf("source %+v", s)
	}
	c.write(3)
	h.agent.Close() // which waits for nothing
	h.agent = nil
	h.startAgent() // another process of the same host goes on where that one ended
	c.whole()
	a.write(5)
	a.whole()
}

func TestTCPAndTLSAndToken(t *testing.T) {
	dir := t.TempDir()
	ca := selfSigned(t, dir)
	files := renew.NewGroup(slog.New(slog.DiscardHandler), nil)
	server, err := renew.TLS{Cert: ca, Key: filepath.Join(dir, "key")}.Server(files)
	if err != nil {
		t.Fatal(err)
	}
	client, err := renew.TLS{CA: ca}.Client(files, "")
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	h.target = stream.Target{Network: "tcp", Address: "127.0.0.1:0", TLS: true}
	h.server = &stream.Server{TLS: server, Tokens: func() ([]string, error) { return []string{"open sesame"}, nil }}
	token := "open sesame"
	h.tune = func(s *Settings) {
		s.Server.TLS = client
		s.Server.Token = func() (string, error) { return token, nil }
	}
	h.startServer()
	h.startAgent()
	e := h.startEngine(ringSize)
	e.write(10)
	e.whole()
	h.stopAgent()

	token = "open says me"
	h.startAgent()
	e.write(10)
	h.until("the token is refused", func() bool { return h.agent.forward.refusal != nil })
	if r := h.agent.forward.refusal; r.Code != stream.CodeToken || !strings.Contains(h.log.String(), "--token-file") {
		t.Errorf("refused with %+v", r)
	}
	token = "open sesame" // and after a while it is tried again
	h.pass(refusedBackoff)
	e.whole()
}

// TestServerRestarts kills the server at many moments of a stream: nothing is lost, nothing comes twice.
func TestServerRestarts(t *testing.T) {
	h := newHost(t)
	h.startServer()
	h.startAgent()
	a, b := h.startEngine(ringSize), h.startEngine(ringSize)
	for n := range 30 {
		a.write(20 + n)
		b.write(7)
		for range n % 7 {
			h.step()
		}
		h.stopServer()
		a.write(3)
		h.step()
		h.startServer()
		if n%5 == 0 {
			h.until("it is connected again", func() bool { return h.back.reached(a.name, a.n) })
		}
	}
	a.whole()
	b.whole()
}

// TestServerIsBusy finds no room most of the time.
func TestServerIsBusy(t *testing.T) {
	h := newHost(t)
	n := 0
	h.back.refuse = func() error {
		if n++; n%3 != 0 {
			return fmt.Errorf("append: %w", stream.ErrOverloaded)
		}
		return nil
	}
	h.server = &stream.Server{Settings: stream.Settings{ConnectionBytes: 64 << 10, RetryAfter: time.Millisecond}}
	h.startServer()
	h.startAgent()
	e := h.startEngine(4 << 20)
	for range 20 {
		e.write(500)
		h.step()
	}
	e.whole()
	if h.agent.Counts().Busy == 0 {
		t.Error("the server was never busy")
	}
}

func TestHundredRings(t *testing.T) {
	h := newHost(t)
	h.startServer()
	h.startAgent()
	var engines []*engine
	for range 100 {
		engines = append(engines, h.startEngine(64<<10))
	}
	for range 5 {
		for _, e := range engines {
			e.write(20)
		}
		h.step()
	}
	for _, e := range engines {
		e.whole()
	}
	if s := h.server.Stats(); s.Agents[0].Sources != 200 {
		t.Errorf("%d sources are open, want a ring and its heartbeats for each engine", s.Agents[0].Sources)
	}
}

func TestHeartbeats(t *testing.T) {
	h := newHost(t)
	h.startServer()
	h.startAgent()
	e := h.startEngine(ringSize)
	e.put(&wire.Scheduled{Time: h.now.Mono, Iteration: 1, Running: 3})
	e.whole()
	name := strings.TrimSuffix(e.name, ".ring") + ".beats-7-1"
	states := func() (all []wire.Liveness) {
		h.back.mu.Lock()
		defer h.back.mu.Unlock()
		for _, k := range h.back.records[name] {
			var beat wire.Heartbeat
			if err := wire.Decode(k.frame, &beat); err != nil {
				t.Fatal(err)
			}
			all = append(all, beat.State)
		}
		return slices.Compact(all)
	}
	is := func(want ...wire.Liveness) {
		t.Helper()
		h.until(fmt.Sprintf("its states are %v", want), func() bool { return slices.Equal(states(), want) })
	}
	is(wire.Working)
	h.pass(3 * time.Second)
	is(wire.Working, wire.Stuck)
	e.put(&wire.Done{Time: h.now.Mono, Iteration: 1})
	e.put(&wire.Scheduled{Time: h.now.Mono, Iteration: 2})
	e.put(&wire.Done{Time: h.now.Mono, Iteration: 2})
	h.pass(time.Second)
	is(wire.Working, wire.Stuck, wire.Idle)
	e.Close()
	h.pass(time.Second)
	is(wire.Working, wire.Stuck, wire.Idle, wire.Dead)

	hello, err := wire.ParseHello(h.back.sources[name].Hello)
	if err != nil || hello.Role != "agent" || hello.Engine.Incarnation != fmt.Sprint("i", h.pid) || hello.Settings["ring"] != e.name || hello.Boot != "boot" {
		t.Errorf("hello %+v, %v", hello, err)
	}
	var stuck wire.Heartbeat
	if err := wire.Decode(h.back.records[name][1].frame, &stuck); err != nil || stuck.Iteration != 1 || stuck.Since == 0 {
		t.Errorf("stuck: %+v, %v", stuck, err)
	}
}

// TestCollectsDeadRings removes a dead writer's ring when its time has come and all of it is acknowledged, and not before.
func TestCollectsDeadRings(t *testing.T) {
	h := newHost(t)
	h.tune = func(s *Settings) { s.Retention = time.Minute }
	h.startServer()
	h.startAgent()
	live, dead, late := h.startEngine(ringSize), h.startEngine(ringSize), h.startEngine(ringSize)
	for _, e := range []*engine{live, dead, late} {
		e.write(10)
		e.whole()
	}
	there := func(e *engine) bool { _, err := os.Stat(e.Path()); return err == nil }
	dead.Close()
	for range 300 { // three seconds
		h.step()
	}
	if !there(dead) {
		t.Fatal("removed at once")
	}
	h.pass(time.Minute)
	h.until("the dead ring is removed", func() bool { return !there(dead) })
	if !there(live) || !there(late) {
		t.Fatal("a living one is removed")
	}
	h.until("its source is closed", func() bool { return h.agent.sources.byName[dead.name] == nil })

	h.stopServer()
	h.until("that is noticed", func() bool { return h.agent.forward.conn == nil })
	late.write(1)
	late.Close()
	h.step()
	for range 300 {
		h.step()
	}
	h.pass(time.Hour)
	for range 300 {
		h.step()
	}
	if !there(late) {
		t.Fatal("removed before all of it was acknowledged")
	}
	h.startServer()
	h.until("the late ring is removed", func() bool { return !there(late) })
	late.n = 12
	if n := h.back.tiles(t, late.name, 12); n != 0 {
		t.Errorf("%d frames missing", n)
	}
}

// TestDeadRingsAreNotHoardedForever removes dead rings that nobody acknowledges when they are too many: their data are in the spool.
func TestDeadRingsAreNotHoardedForever(t *testing.T) {
	h := newHost(t)
	h.tune = func(s *Settings) { s.Retention, s.DeadLimit, s.MemoryLimit = time.Minute, 2<<20, 1<<10 }
	h.startAgent()
	var engines []*engine
	for range 4 {
		e := h.startEngine(ringSize)
		e.write(20)
		e.Close()
		engines = append(engines, e)
		for range 200 {
			h.step()
		}
	}
	h.pass(2 * time.Minute)
	left := func() int {
		found, _ := filepath.Glob(filepath.Join(h.rings, "*.ring"))
		return len(found)
	}
	h.until("two are left", func() bool { return left() == 2 })
	for range 500 {
		h.step()
	}
	if left() != 2 {
		t.Errorf("%d rings are left", left())
	}
	h.startServer()
	for _, e := range engines {
		e.whole()
	}
}

func TestTwoAgentsOnOneDirectory(t *testing.T) {
	h := newHost(t)
	h.startServer()
	h.startAgent()
	e := h.startEngine(ringSize)
	e.write(5)
	e.whole()
	if _, err := New(Settings{RingDir: h.rings, SpoolDir: h.spool}); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("the same spool: %v", err)
	}
	other, err := New(Settings{RingDir: h.rings, SpoolDir: t.TempDir(), Server: stream.Dialer{Target: h.target}})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Once(t.Context()); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("the same rings: %v", err)
	}
}
