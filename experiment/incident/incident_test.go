package incident

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment/simulate/dialect"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
)

// severities that every incident is played at.
var severities = []float64{0.5, 1}

// demo is the engine of the built-in demo.
var demo = sync.OnceValues(func() (Engine, error) {
	b, err := demoBook()
	if err != nil {
		return Engine{}, err
	}
	return Calibrated(b.Engines[0])
})

var healthy = sync.OnceValues(func() (*timing.Calibration, error) {
	b, err := demoBook()
	if err != nil {
		return nil, err
	}
	return timing.Calibrate(b.Engines[0], func(uint64) bool { return true })
})

func demoBook() (*ledger.Book, error) {
	f, err := os.Open("../../cli/demo.wlc")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := ingest.New()
	if err := ingest.ReadCapture(f, "demo", a); err != nil {
		return nil, err
	}
	return a.Book(), nil
}

// seed of the runs that truths are tested on.
var seed = flag.Uint64("seed", 1, "of the runs that truths are tested on")

// short is a run that is long enough to measure.
func short(severity float64) Params {
	p := Defaults()
	p.Seed, p.Severity, p.Onset, p.Duration, p.Length = *seed, severity, 6*time.Second, 14*time.Second, 24*time.Second
	return p
}

// played is what became of a play.
type played struct {
	truth   Truth
	summary world.Summary
	dir     string
	evidence
}

func play(t testing.TB, i *Incident, p Params, keep dialect.Evidence) played {
	t.Helper()
	e, err := demo()
	if err != nil {
		t.Fatal(err)
	}
	x, err := i.Prepare(p, e)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	s, err := x.Bundle(dir, keep)
	if err != nil {
		t.Fatal(err)
	}
	return played{x.Truth, s, dir, read(t, dir)}
}

// whole holds a run's books against each other: nothing is lost, all balances.
func (p *played) whole(t *testing.T) {
	t.Helper()
	s := p.summary
	if s.Requests == 0 || s.Unfinished != 0 || s.Requests > s.Complete+s.HungUp+s.Refused+s.TimedOut+s.Broken {
		t.Errorf("%+v", s)
	}
	if n := len(p.calls()); n != s.Requests {
		t.Errorf("%d requests were sent, the clients recorded %d", s.Requests, n)
	}
	for _, g := range p.book.AllGaps() {
		t.Errorf("gap: %v", g)
	}
	for _, e := range p.book.Engines {
		for _, v := range ledger.Check(e) {
			t.Errorf("%v", v)
		}
		for _, q := range e.Sequences {
			if q.Finished == 0 && s.Broken == 0 { // who was there when an engine died never ended for it
				t.Errorf("sequence %s has no end", q.ID)
			}
		}
	}
}

const recorded = dialect.Captures | dialect.Changes

// outcome is an incident with and without its fault, measured while the fault was on.
type outcome struct {
	fault, sham   played
	with, without map[string]float64
}

// outcomes are played once for all tests.
var outcomes sync.Map // name/severity → func() outcome

func outcomeOf(t *testing.T, i *Incident, severity float64) outcome {
	t.Helper()
	f, _ := outcomes.LoadOrStore(fmt.Sprint(i.Name, severity), sync.OnceValue(func() (o outcome) {
		c, err := healthy()
		if err != nil {
			t.Fatal(err)
		}
		params := short(severity)
		o.fault = play(t, i, params, recorded)
		params.Sham = true
		o.sham = play(t, i, params, recorded)
		o.with = o.fault.measure(o.fault.truth.Onset, o.fault.truth.End, c)
		o.without = o.sham.measure(o.fault.truth.Onset, o.fault.truth.End, c)
		return o
	}))
	return f.(func() outcome)()
}

// way is how a signal moved.
func (o *outcome) way(t *testing.T, signal string) Way {
	return moved(signalNamed(t, signal), o.with, o.without)
}

func TestTruthsAreTrue(t *testing.T) {
	for k, i := range Catalogue() {
		for _, severity := range severities {
			if raced && (k%8 != 0 || severity != 1) {
				continue
			}
			if i.Telemetry() || i.TwinOf != "" && severity != 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", i.Name, severity), func(t *testing.T) {
				t.Parallel()
				o := outcomeOf(t, &i, severity)
				fault, sham := &o.fault, &o.sham
				fault.whole(t)
				sham.whole(t)
				if sham.truth.Mechanism != None || len(sham.truth.Culprits) > 0 || len(fault.truth.Culprits) == 0 || (fault.truth.Mechanism == None) != (i.TwinOf != "") {
					t.Errorf("truths: %+v, %+v", fault.truth, sham.truth)
				}
				for _, m := range fault.truth.Moved {
					if way := o.way(t, m.Signal); way != m.Way {
						t.Errorf("%s did not go %s: %.4g, without the fault %.4g", m.Signal, m.Way, o.with[m.Signal], o.without[m.Signal])
					}
				}
				for _, name := range fault.truth.MustNotMove {
					if way := o.way(t, name); way != "" {
						t.Errorf("%s went %s: %.4g, without the fault %.4g", name, way, o.with[name], o.without[name])
					}
				}
				if testing.Verbose() {
					for _, s := range Signals {
						t.Logf("%-16s %10.4g %10.4g %s", s.Name, o.with[s.Name], o.without[s.Name], moved(s, o.with, o.without))
					}
				}
			})
		}
	}
}

func TestPairsLookAlikeAndCanBeToldApart(t *testing.T) {
	for k, p := range Pairs {
		if raced && k > 0 {
			break
		}
		t.Run(p.A+"/"+p.B, func(t *testing.T) {
			t.Parallel()
			a, b := outcomeOf(t, Named(p.A), 1), outcomeOf(t, Named(p.B), 1)
			for _, name := range p.Alike {
				if x, y := a.way(t, name), b.way(t, name); x == "" || x != y {
					t.Errorf("%s went %q and %q: %.4g (%.4g), %.4g (%.4g)", name, x, y, a.with[name], a.without[name], b.with[name], b.without[name])
				}
			}
			for _, name := range p.Apart {
				if x, y := a.way(t, name), b.way(t, name); x == y {
					t.Errorf("%s went %q in both", name, x)
				}
			}
		})
	}
}

func bytesOf(t *testing.T, dir string) []byte {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&all, "%s %d\n", name, len(text))
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.Bytes()
}

func TestOneSeedGivesTheSameBytes(t *testing.T) {
	for _, name := range []string{"long-prefill", "retry-storm", "power-cap", "counter-reset", "lost-records"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := short(1)
			p.Onset, p.Duration, p.Length = 3*time.Second, 3*time.Second, 8*time.Second
			a, b := play(t, Named(name), p, 0), play(t, Named(name), p, 0)
			p.Seed = 2
			c := play(t, Named(name), p, 0)
			if !bytes.Equal(bytesOf(t, a.dir), bytesOf(t, b.dir)) {
				t.Error("the same seed gave another bundle")
			}
			if bytes.Equal(bytesOf(t, a.dir), bytesOf(t, c.dir)) {
				t.Error("another seed gave the same bundle")
			}
		})
	}
}

func TestTheCatalogueIsComplete(t *testing.T) {
	names, mechanisms := map[string]bool{}, map[string]bool{}
	for _, i := range Catalogue() {
		if names[i.Name] || i.Name == "" || i.What == "" {
			t.Errorf("%q: give each a name of its own, and say what it is", i.Name)
		}
		names[i.Name] = true
		switch {
		case i.TwinOf != "":
			if len(i.Moves) == 0 {
				t.Errorf("%s resembles nothing", i.Name)
			}
			if of := Named(i.TwinOf); of == nil || of.Mechanism == "" || i.Mechanism != "" || !slices.Contains(i.Keeps, TTFT) && !slices.Contains(i.Keeps, Goodput) && !slices.Contains(i.Keeps, Preemptions) {
				t.Errorf("%s is the twin of %q", i.Name, i.TwinOf)
			}
		case i.Mechanism != "":
			mechanisms[i.Mechanism] = true
			if i.Twin() == nil || i.Cure == nil || i.Needs == "" || len(i.Moves) == 0 || len(i.Keeps) == 0 {
				t.Errorf("%s: give it a twin, a cure, what it needs, what moves and what does not", i.Name)
			}
		}
		for _, m := range i.Moves {
			signalNamed(t, m.Signal)
		}
	}
	if len(mechanisms) < 15 {
		t.Errorf("%d mechanisms", len(mechanisms))
	}
	t.Logf("%d entries, %d mechanisms", len(names), len(mechanisms))
}
