package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/wire"
)

// load is a fleet of generated engines that send to a real 'whylate serve' over TCP, ten a connection, in real time.
type load struct {
	name      string
	hosts     int // of ten engines
	length    time.Duration
	iteration time.Duration
	batch     int
	output    int
	flags     []string
}

var (
	// A minute is too short for the defaults: what they would do in ten minutes is done every ten seconds.
	shortFleet = load{"fleet", 10, 75 * time.Second, 20 * time.Millisecond, 32, 250, []string{"--store-seal-every=10s", "--store-hot-period=20s"}}
	longFleet  = load{"fleet_30min", 10, 30 * time.Minute, 20 * time.Millisecond, 32, 250, nil}
)

// fleet measures a server under such a load: acknowledgements while it seals and while it does not, memory, processor time, and answers.
func fleet(s *figure.Sheet, l load) error {
	dir, err := os.MkdirTemp("", "whylate-fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := startServer(dir, l.flags)
	if err != nil {
		return err
	}
	defer p.stop()
	ctx, cancel := context.WithTimeout(context.Background(), l.length)
	defer cancel()
	hosts := make([]*host, l.hosts)
	var group errgroup.Group
	for k := range hosts {
		hosts[k] = &host{l: l, first: 10 * k, target: p.agents}
		group.Go(func() error { return hosts[k].run(ctx) })
	}
	watch := &watcher{p: p, hosts: hosts}
	group.Go(func() error { return watch.run(ctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return err
	}

	var quiet, sealing []time.Duration
	iterations, busy := uint64(0), 0
	for _, h := range hosts {
		iterations, busy = iterations+h.iterations, busy+h.busy
		for _, a := range h.acks {
			if p.sealing(a.sent, a.sent.Add(a.took)) {
				sealing = append(sealing, a.took)
			} else {
				quiet = append(quiet, a.took)
			}
		}
	}
	if len(quiet) < 100 || len(sealing) < 100 {
		return fmt.Errorf("%d acknowledgements outside of a seal and %d during one: too few", len(quiet), len(sealing))
	}
	report := func(name string, v float64, unit string) { s.Report(l.name+"/"+name, v, unit) }
	report("engines", float64(10*l.hosts), "count")
	report("iterations_per_second", float64(iterations)/l.length.Seconds(), "iterations/s")
	report("acknowledged_p50", quantile(quiet, 0.5), "ms")
	report("acknowledged_p99", quantile(quiet, 0.99), "ms")
	report("acknowledged_p99_during_a_seal", quantile(sealing, 0.99), "ms")
	// Without a hiccup: no more than twice what it is otherwise, in one run.
	s.AtMost(l.name+"/acknowledged_p99_seal_to_quiet", quantile(sealing, 0.99)/quantile(quiet, 0.99), "ratio", 2)
	report("busy_answers", float64(busy), "count")
	report("seals", float64(len(p.seals)), "count")
	report("server_cpu", 100*watch.cpu.Seconds()/l.length.Seconds(), "% of a core")
	report("explain_live_p50", quantile(watch.live, 0.5), "ms")
	report("explain_live_p99", quantile(watch.live, 0.99), "ms")
	if len(watch.sealed) > 0 {
		report("explain_sealed_p50", quantile(watch.sealed, 0.5), "ms")
		s.AtMost(l.name+"/explain_sealed_p99", quantile(watch.sealed, 0.99), "ms", 100)
	}
	report("list_p50", quantile(watch.lists, 0.5), "ms")
	report("list_p99", quantile(watch.lists, 0.99), "ms")
	s.AtMost(l.name+"/memory", slices.Max(watch.memory)/1e3, "GB", 4)
	// Flat: what the second half of the run needs more than the first, once it has warmed up.
	n := len(watch.memory)
	report("memory_last_third_to_middle_third", slices.Max(watch.memory[2*n/3:])/slices.Max(watch.memory[n/3:2*n/3]), "ratio")
	return nil
}

// host sends ten engines over one connection.
type host struct {
	l          load
	first      int
	target     string
	iterations uint64
	busy       int // answers of the server that it was

	mu   sync.Mutex
	acks []ack
	ids  []string // of requests that are over, oldest first
}

// ack is the time from when data were there to be sent to knowing that they are on the server's disk.
type ack struct {
	sent time.Time
	took time.Duration
}

func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // no such clock: no Linux
	}
	return t.Nano()
}

func (h *host) run(ctx context.Context) error {
	target, err := stream.ParseTarget(h.target)
	if err != nil {
		return err
	}
	d := stream.Dialer{Target: target, Agent: stream.Identity{Host: fmt.Sprintf("host-%d", h.first), Boot: "boot", PID: 1, Version: "bench"},
		Clock: func() [3]int64 { return [3]int64{monotonic(), time.Now().UnixNano(), monotonic()} }}
	wake := make(chan struct{}, 1)
	c, err := d.Dial(ctx, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer c.Close()
	var engines []*scenario.Steady
	var sources []*scenario.Source
	for k := range 10 {
		e := scenario.NewSteady(scenario.Load{Seed: uint64(h.first + k), Replica: fmt.Sprintf("host-%d", h.first+k), Batch: h.l.batch, Output: h.l.output, Iteration: h.l.iteration,
			Start: monotonic(), Unix: time.Now().UnixNano()})
		engines = append(engines, e)
		sources = append(sources, e.Front, e.Engine)
	}
	for i, src := range sources {
		if err := c.Open(uint16(i+1), wire.Source{Name: src.Name, Hello: src.HelloJSON()}); err != nil {
			return err
		}
	}
	w := window{c: c}
	opened := 0
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
			for _, e := range c.Events() {
				switch {
				case e.Err != nil:
					return e.Err
				case e.Opened != nil:
					opened++
				case e.Busy != 0:
					h.busy++
					w.again(e.Busy, e.Retry)
				}
				h.mu.Lock()
				h.acks = w.acked(e.Acked, h.acks)
				h.mu.Unlock()
			}
			w.send()
		case <-tick.C:
			if opened < len(sources) {
				continue
			}
			until := monotonic()
			for _, e := range engines {
				for e.Now() < until {
					if err := e.Next(); err != nil {
						return err
					}
					h.iterations++
				}
			}
			for i, src := range sources {
				if len(src.Frames) > 0 {
					h.note(src)
					w.put(uint16(i+1), slices.Concat(src.Frames...))
					src.Frames = src.Frames[:0]
				}
			}
			w.send()
		}
	}
}

// window holds what is not acknowledged, and sends as much of it at once as an agent does.
type window struct {
	c       *stream.Conn
	items   []item
	sent    int    // of items
	bytes   int    // of those that are sent
	acks    uint64 // number of the last item that is acknowledged
	holdOff time.Time
}

type item struct {
	source uint16
	frames []byte
	born   time.Time
}

// onTheWay is how much an agent has on its way at most (agent.Settings.Window).
const onTheWay = 2 << 20

func (w *window) put(source uint16, frames []byte) {
	w.items = append(w.items, item{source, frames, time.Now()})
}

func (w *window) send() {
	for w.sent < len(w.items) && time.Now().After(w.holdOff) {
		k := w.items[w.sent]
		if w.sent > 0 && w.bytes+len(k.frames) > onTheWay {
			return
		}
		w.c.Frames(k.source, w.acks+uint64(w.sent)+1, k.frames)
		w.sent++
		w.bytes += len(k.frames)
	}
}

// again takes back what a busy server did not take, from a number on.
func (w *window) again(from uint64, after time.Duration) {
	w.c.Rewind()
	w.sent = min(w.sent, int(from-w.acks-1))
	w.bytes = 0
	for _, k := range w.items[:w.sent] {
		w.bytes += len(k.frames)
	}
	w.holdOff = time.Now().Add(after)
}

// acked takes up to a number out of the window, and adds how long each took since it was there to be sent.
func (w *window) acked(to uint64, acks []ack) []ack {
	for now := time.Now(); w.acks < to && w.sent > 0; w.acks++ {
		k := w.items[0]
		acks = append(acks, ack{k.born, now.Sub(k.born)})
		w.items, w.sent, w.bytes = w.items[1:], w.sent-1, w.bytes-len(k.frames)
	}
	return acks
}

// note remembers the ids of some requests that begin.
func (h *host) note(src *scenario.Source) {
	for _, b := range src.Frames {
		f, _, err := wire.ParseFrame(b)
		if err != nil || f.Type != wire.TypeReceived {
			continue
		}
		var m wire.Received
		if wire.Decode(f, &m) != nil {
			continue
		}
		h.mu.Lock()
		h.ids = append(h.ids, m.RequestID)
		h.mu.Unlock()
	}
}

// some returns the id of a request that began so long ago, in requests of this host; "" if there is none.
func (h *host) some(back int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ids) <= back {
		return ""
	}
	return h.ids[len(h.ids)-1-back]
}

// watcher asks the server, and looks at its process.
type watcher struct {
	p                   *process
	hosts               []*host
	live, sealed, lists []time.Duration
	memory              []float64 // MB
	cpu                 time.Duration
}

func (w *watcher) run(ctx context.Context) error {
	c, err := client.New(w.p.http, client.Options{})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	began := time.Now()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		rss, cpu, err := w.p.usage()
		if err != nil {
			return err
		}
		w.memory, w.cpu = append(w.memory, rss), cpu
		if time.Since(began) < 20*time.Second { // until enough of them are over
			continue
		}
		h := w.hosts[rng.IntN(len(w.hosts))]
		old := rng.IntN(2) == 0
		h.mu.Lock()
		all := len(h.ids)
		h.mu.Unlock()
		id := h.some(all * 35 / 100)
		if old {
			id = h.some(all * 95 / 100)
		}
		if id == "" {
			continue
		}
		start := time.Now()
		if _, err := c.Explain(ctx, api.ExplainQuery{ID: id}); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("explain %s: %w", id, err)
		}
		if took := time.Since(start); old {
			w.sealed = append(w.sealed, took)
		} else {
			w.live = append(w.live, took)
		}
		if n%10 == 0 {
			start := time.Now()
			if _, err := c.Requests(ctx, api.RequestsQuery{Sort: "e2e", Limit: 50}); err != nil && ctx.Err() == nil {
				return err
			}
			w.lists = append(w.lists, time.Since(start))
		}
	}
}

// process is a running server.
type process struct {
	cmd          *exec.Cmd
	http, agents string
	done         chan error
	stopped      bool

	mu    sync.Mutex
	seals [][2]time.Time
}

// startServer builds the program and starts it on ports of its own.
func startServer(dir string, flags []string) (*process, error) {
	program := filepath.Join(dir, "whylate")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/whylate").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	p := &process{done: make(chan error, 1)}
	var ports [2]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		ports[i] = l.Addr().String()
		l.Close()
	}
	p.http, p.agents = "http://"+ports[0], "tcp://"+ports[1]
	p.cmd = exec.Command(program, append([]string{"serve", "--data-dir", filepath.Join(dir, "data"), "--listen-http", ports[0], "--listen-agents", ports[1], "--rings-follow=false"}, flags...)...)
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	read := make(chan struct{})
	go func() { defer close(read); p.read(log) }()
	go func() { <-read; p.done <- p.cmd.Wait() }()
	for range 100 {
		if c, err := net.Dial("tcp", ports[1]); err == nil {
			c.Close()
			return p, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, errors.Join(errors.New("the server does not listen"), p.stop())
}

var sealLine = regexp.MustCompile(`^time=(\S+) .*msg=sealed .*took=(\S+)`)

// read reads the server's log: when it sealed. What it warns of is passed on.
func (p *process) read(log io.Reader) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if m := sealLine.FindStringSubmatch(lines.Text()); m != nil {
			end, err := time.Parse(time.RFC3339Nano, m[1])
			took, derr := time.ParseDuration(m[2])
			if err == nil && derr == nil {
				p.mu.Lock()
				p.seals = append(p.seals, [2]time.Time{end.Add(-took), end})
				p.mu.Unlock()
			}
		} else if !strings.Contains(lines.Text(), "level=INFO") {
			fmt.Fprintln(os.Stderr, "bench: server:", lines.Text())
		}
	}
}

// sealing reports whether a seal was written at some moment between two times.
func (p *process) sealing(from, to time.Time) bool {
	i, _ := slices.BinarySearchFunc(p.seals, from, func(s [2]time.Time, t time.Time) int { return cmp.Compare(s[1].UnixNano(), t.UnixNano()) })
	return i < len(p.seals) && p.seals[i][0].Before(to)
}

// usage is the resident memory in MB and the processor time of the process.
func (p *process) usage() (mb float64, cpu time.Duration, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kB float64
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		return 0, 0, err
	}
	if b, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)); err != nil {
		return 0, 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, uerr := strconv.Atoi(f[11])
	system, serr := strconv.Atoi(f[12])
	return kB * 1024 / 1e6, time.Duration(user+system) * (time.Second / 100), errors.Join(uerr, serr)
}

// stop ends the server as a service manager would.
func (p *process) stop() error {
	if p.stopped {
		return nil
	}
	p.stopped = true
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.done:
		return err
	case <-time.After(time.Minute):
		p.cmd.Process.Kill()
		return errors.New("the server did not end within a minute")
	}
}
