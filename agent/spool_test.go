package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/wire"
)

// small makes memory and spool so small that tests fill them.
func small(s *Settings) { s.MemoryLimit, s.SpoolLimit = 32<<10, 8<<20 }

// startAgentAlone starts an agent, and waits until it knows that there is no server: so long it would leave the rings alone.
func (h *host) startAgentAlone() {
	h.startAgent()
	h.until("the server is missed", func() bool { return h.agent.forward.problem != nil })
}

// TestSpool writes much more than memory and ring hold while there is no server, through restarts and kills of the agent.
func TestSpool(t *testing.T) {
	for name, end := range map[string]func(h *host){
		"stays":     func(*host) {},
		"restarted": func(h *host) { h.stopAgent(); h.startAgentAlone() },
		"killed":    func(h *host) { h.killAgent(); h.startAgentAlone() },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.tune = small
			h.startAgentAlone()
			a, b := h.startEngine(128<<10), h.startEngine(128<<10)
			for n := range 100 {
				a.write(150)
				b.write(40)
				h.pass(60 * time.Millisecond)
				h.step()
				if n%10 == 9 {
					end(h)
				}
			}
			if h.agent.Counts().Spool == 0 {
				t.Fatal("nothing was spooled")
			}
			h.startServer()
			missing := a.arrived()
			b.arrived()
			if missing > 0 && name != "killed" {
				t.Errorf("%d frames are missing", missing)
			}
			h.until("all is acknowledged", h.agent.delivered)
			if n := h.agent.Counts().Spool; n != 0 {
				t.Errorf("%d bytes are left in the spool", n)
			}
			if left, _ := filepath.Glob(filepath.Join(h.spool, "*.wlc")); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
			a.write(10) // and from here on straight
			a.whole2(missing)
		})
	}
}

// whole2 checks that nothing more is missing than was known.
func (e *engine) whole2(known uint64) {
	e.t.Helper()
	if n := e.arrived(); n != known {
		e.t.Errorf("%s: %d frames are missing, %d were known", e.name, n, known)
	}
}

// TestSpoolIsBounded lets the oldest go when the spool is full: what is missing is told, and the rest is there.
func TestSpoolIsBounded(t *testing.T) {
	h := newHost(t)
	h.tune = func(s *Settings) { s.MemoryLimit, s.SpoolLimit = 16<<10, 256<<10 }
	h.startAgentAlone()
	e, f := h.startEngine(128<<10), h.startEngine(128<<10)
	for range 400 {
		e.write(100)
		f.write(20)
		h.pass(60 * time.Millisecond)
		h.step()
		if n := h.agent.spool.size(); n > 256<<10+leastSegment {
			t.Fatalf("the spool has %d bytes", n)
		}
	}
	h.startServer()
	missing := e.arrived()
	f.arrived()
	var told uint64
	for _, k := range h.back.records[e.name] {
		if k.gap != nil {
			if k.gap.Why != whyDropped || k.gap.At == 0 {
				t.Errorf("gap %+v", *k.gap)
			}
			told += k.gap.Count
		}
	}
	if missing == 0 || told != missing || missing > e.n*19/20 {
		t.Errorf("%d of %d are missing, %d told", missing, e.n, told)
	}
	if n := h.agent.Counts().Dropped; n < missing {
		t.Errorf("%d counted as dropped", n)
	}
}

// TestSpoolCutEverywhere cuts a segment after every byte, as a crash does: the spool opens, and gives an honest beginning of what was there.
func TestSpoolCutEverywhere(t *testing.T) {
	dir := t.TempDir()
	all := newSources()
	s, err := openSpool(dir, 1<<20, all)
	if err != nil {
		t.Fatal(err)
	}
	o, _ := all.open(wire.Source{Name: "a.ring"})
	for n := uint64(1); n <= 12; n += 3 {
		i := &item{source: o}
		for k := n; k < n+3; k++ {
			b, _ := wire.Append(nil, k, &wire.Notice{Text: fmt.Sprint(k)})
			i.add(k, b)
		}
		if err := s.put(i); err != nil {
			t.Fatal(err)
		}
		if err := s.sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.wlc"))
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		if err := os.WriteFile(files[0], whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		all := newSources()
		s, err := openSpool(dir, 1<<20, all)
		if err != nil {
			t.Fatalf("cut to %d: %v", n, err)
		}
		var last uint64
		for {
			i, err := s.next(all)
			if err != nil {
				t.Fatalf("cut to %d: %v", n, err)
			}
			if i == nil {
				break
			}
			if i.from != last+1 {
				t.Fatalf("cut to %d: %d after %d", n, i.from, last)
			}
			last = i.to
			s.done(i)
			i.source.items--
		}
		if last%3 != 0 || n == len(whole) && last != 12 {
			t.Fatalf("cut to %d: ends with %d", n, last)
		}
		if len(s.segments) != 0 || all.byName["a.ring"] != nil && all.byName["a.ring"].items != 0 {
			t.Fatalf("cut to %d: left behind", n)
		}
		s.close()
		os.WriteFile(files[0], nil, 0o600)
	}
}

// brokenDisk fails after some bytes.
type brokenDisk struct{ room int }

func (b *brokenDisk) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(p), nil
}
func (b *brokenDisk) Close() error { return nil }

// TestSpoolOnABrokenDisk loses what it cannot write, says so, and goes on.
func TestSpoolOnABrokenDisk(t *testing.T) {
	h := newHost(t)
	h.tune = small
	h.startAgentAlone()
	good := h.agent.spool.create
	opened := 0
	h.agent.spool.create = func(path string) (io.WriteCloser, error) {
		opened++
		if opened%2 == 0 {
			return nil, errors.New("no space left on device")
		}
		return &brokenDisk{room: 10}, nil
	}
	e := h.startEngine(128 << 10)
	for range 40 {
		e.write(200)
		h.pass(60 * time.Millisecond)
		h.step()
	}
	if h.agent.Counts().Dropped == 0 {
		t.Error("nothing was counted as dropped")
	}
	h.agent.spool.create = good
	h.startServer()
	e.arrived()
	if !slices.ContainsFunc(h.back.records[e.name], func(k kept) bool { return k.gap != nil && k.gap.Why == whySpool }) {
		t.Error("the loss is not told")
	}
}
