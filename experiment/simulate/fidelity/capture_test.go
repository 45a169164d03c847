package fidelity

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/wire"
)

// demo is a recorded run of a real engine.
const demo = "../../../cli/demo.wlc"

func TestTheDemoIsDecidedAgain(t *testing.T) {
	f, err := os.Open(demo)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := ReadCapture(f, "demo.wlc")
	if err != nil {
		t.Fatal(err)
	}
	if r := all[0]; len(all) != 1 || r.Free.Decisions != 5966 || r.Free.Right != 5966 || r.Free.Nontrivial < 1000 || r.Baseline.Right > 5500 {
		t.Errorf("%+v", all)
	}
}

// cut is a sink that passes on what a function lets through.
type cut struct {
	wire.Sink
	source func(*wire.Source) bool
	frame  func(wire.Frame) bool
	hidden map[uint16]bool
}

func (c *cut) Source(s wire.Source) (uint16, error) {
	keep := c.source == nil || c.source(&s)
	id, err := c.Sink.Source(s)
	c.hidden[id] = !keep
	return id, err
}

func (c *cut) Frame(id uint16, f wire.Frame) error {
	if c.hidden[id] || c.frame != nil && !c.frame(f) {
		return nil
	}
	return c.Sink.Frame(id, f)
}

func checkDemo(t *testing.T, source func(*wire.Source) bool, frame func(wire.Frame) bool) ([]Result, error) {
	t.Helper()
	return Check(func(sink wire.Sink) error {
		f, err := os.Open(demo)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return ingest.ReadCapture(f, "demo.wlc", &cut{sink, source, frame, map[uint16]bool{}})
	})
}

func TestWhatCannotBePlayedIsRefusedByName(t *testing.T) {
	scheduled := 0
	for why, lets := range map[string]func(wire.Frame) bool{
		"begins at iteration 101": func(f wire.Frame) bool {
			if f.Type == wire.TypeScheduled {
				scheduled++
			}
			return scheduled > 100
		},
		"not whole": func(f wire.Frame) bool { return f.Type != wire.TypeDone || f.Sequence%97 != 0 },
	} {
		all, err := checkDemo(t, nil, lets)
		if err != nil || len(all) != 1 || !strings.Contains(all[0].Refused, why) || all[0].Free.Decisions != 0 {
			t.Errorf("%s: %+v, %v", why, all, err)
		}
	}
	all, err := checkDemo(t, func(s *wire.Source) bool {
		s.Hello = []byte(strings.Replace(string(s.Hello), `"0.32.0"`, `"0.99.0"`, 1))
		return true
	}, nil)
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Refused, "0.99.0") {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := checkDemo(t, func(s *wire.Source) bool {
		h, err := wire.ParseHello(s.Hello)
		if err == nil && h.Thread == "scheduler" {
			s.Hello = nil
		}
		return h.Thread != "scheduler"
	}, nil); !errors.Is(err, ErrNoScheduler) {
		t.Errorf("%v", err)
	}
}

// What the engine decided is never told: another order of magnitude of memory parts the simulation from it, for good.
func TestAWrongSettingShows(t *testing.T) {
	all, err := checkDemo(t, func(s *wire.Source) bool {
		s.Hello = []byte(strings.Replace(string(s.Hello), `"max_num_seqs":16`, `"max_num_seqs":15`, 1))
		return true
	}, nil)
	if err != nil || all[0].Free.Right == all[0].Free.Decisions || len(all[0].Free.Kinds) == 0 || len(all[0].Free.Examples) == 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
