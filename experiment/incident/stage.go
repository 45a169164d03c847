package incident

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/experiment/workload"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// deployment is what is served.
const deployment = "practice"

// stage is a service before it begins, its load, and what will happen to it. With and without the fault it is the same but for what is
// asked for by name: [stage.faulty], [stage.during], [stage.surge].
type stage struct {
	Params
	engine   Engine
	config   world.Config
	tokens   int // of the KV pool
	parts    []workload.Part
	counts   map[string]*int                                   // of requests, by class
	traits   map[string]func(*experiment.Request) world.Traits // by class
	alters   map[int][]alteration                              // by replica
	plan     []planned
	tap      *tap
	culprits []Culprit
	err      error
}

// planned is something that will happen to the world.
type planned struct {
	at time.Duration
	do func(*world.World)
}

// device is what each rank computes on unless the incident says otherwise. The calibrated times are those of no GPU: it lends its clock,
// its power and its heat.
var device = func() world.GPU {
	g := world.DefaultGPU
	g.Name, g.Warm = "simulated", 3*time.Second
	return g
}()

// sampling is how often GPUs are read.
const sampling = 500 * time.Millisecond

func newStage(i *Incident, p Params, e Engine) (*stage, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.Begin.IsZero() {
		p.Begin = begins
	}
	_, settings, err := simulate.FromHello(e.Version, e.Settings)
	if err != nil {
		return nil, err
	}
	s := &stage{Params: p, engine: e, tokens: (settings.Blocks - 1) * settings.BlockSize, traits: map[string]func(*experiment.Request) world.Traits{}, alters: map[int][]alteration{}, counts: map[string]*int{}, tap: &tap{}}
	s.config = world.Config{Seed: p.Seed, Begin: p.Begin, Version: cmp.Or(p.Version, "test"), Name: deployment, Sampling: sampling, Client: world.Client{Network: 300 * time.Microsecond}}
	for range p.Replicas {
		s.replica()
	}
	i.stage(s)
	if s.err != nil {
		return nil, s.err
	}
	return s, nil
}

// replica adds one more of the same kind.
func (s *stage) replica() *world.Replica {
	n := len(s.config.Replicas)
	r := world.Replica{Name: fmt.Sprintf("replica-%d", n), Front: world.DefaultFront,
		Ranks: []world.Rank{{Version: s.engine.Version, Settings: maps.Clone(s.engine.Settings), GPUs: []world.GPU{s.gpu(n, 0)}}}}
	s.config.Replicas = append(s.config.Replicas, r)
	return &s.config.Replicas[n]
}

func (s *stage) gpu(replica, index int) world.GPU {
	g := device
	g.UUID = fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", replica, index)
	return g
}

// atLeast gives the service so many replicas.
func (s *stage) atLeast(replicas int) {
	for len(s.config.Replicas) < replicas {
		s.replica()
	}
	s.Replicas = len(s.config.Replicas)
}

// set gives a setting of all engines, or of those of the replicas named.
func (s *stage) set(name string, value any, replicas ...int) {
	if n, ok := value.(int); ok {
		value = json.Number(fmt.Sprint(n))
	}
	for i := range s.config.Replicas {
		if len(replicas) == 0 || replicas[0] == i {
			for k := range s.config.Replicas[i].Ranks {
				s.config.Replicas[i].Ranks[k].Settings[name] = value
			}
		}
	}
}

// faulty reports whether the fault is on at a time.
func (s *stage) faulty(at time.Duration) bool { return !s.Sham && at >= s.Onset && at < s.end() }

// between is a value that goes with the severity, from a to b.
func (s *stage) between(a, b float64) float64 { return a + (b-a)*s.Severity }

// during lets the fault begin and end.
func (s *stage) during(on, off func(*world.World)) {
	s.at(s.Onset, on)
	s.at(s.end(), off)
}

// at lets a part of the fault happen at a time.
func (s *stage) at(t time.Duration, do func(*world.World)) {
	if !s.Sham {
		s.plan = append(s.plan, planned{t, do})
	}
}

// every lets something happen again and again while the fault is on.
func (s *stage) every(interval time.Duration, do func(*world.World)) {
	var again func(*world.World)
	again = func(w *world.World) {
		do(w)
		if next := w.Now() + interval; next < s.end() {
			w.At(next, again)
		}
	}
	s.at(s.Onset, again)
}

// device is a GPU of the replica that has the fault.
func (s *stage) device(w *world.World, index int) *world.Device {
	return w.Engine(s.Scope, 0).Devices()[index]
}

// alter changes what iterations take on the replica that has the fault, at all times.
func (s *stage) alter(by alteration) { s.alters[s.Scope] = append(s.alters[s.Scope], by) }

// alterFault is alter while the fault is on.
func (s *stage) alterFault(by alteration) {
	s.alter(func(at time.Duration, shape *timing.Shape, t *timing.Took) {
		if s.faulty(at) {
			by(at, shape, t)
		}
	})
}

// blame names a culprit.
func (s *stage) blame(kind, id string) { s.culprits = append(s.culprits, Culprit{kind, id}) }

// blameDevice and blameEngine name those of the replica that has the fault.
func (s *stage) blameDevice(index int) {
	s.blame("device", s.config.Replicas[s.Scope].Ranks[0].GPUs[index].UUID)
}
func (s *stage) blameEngine()  { s.blame("engine", s.name()+"/0") }
func (s *stage) blameReplica() { s.blame("replica", s.name()) }
func (s *stage) name() string  { return s.config.Replicas[s.Scope].Name }

// told tells of a change when the fault begins.
func (s *stage) told(kind ledger.ChangeKind, subject, from, to string) {
	s.at(s.Onset, func(w *world.World) {
		s.fail(s.tap.change(w.Now(), &wire.ChangeEvent{Kind: string(kind), Subject: subject, From: from, To: to}))
	})
}

func (s *stage) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// models gives each engine its own.
func (s *stage) models() {
	for i := range s.config.Replicas {
		for k := range s.config.Replicas[i].Ranks {
			m := s.engine.Model(s.Seed ^ uint64(i)<<32 ^ uint64(k)<<48)
			if by := s.alters[i]; len(by) > 0 {
				m = &altered{m, by}
			}
			s.config.Replicas[i].Ranks[k].Model = m
		}
	}
}
