package world

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/whylate/whylate/wire"
)

// World is engines, front ends, clients and GPUs in virtual time.
type World struct {
	config    Config
	random    *rand.Rand
	agenda    agenda
	now       time.Duration
	replicas  []*Server
	exchanges []int // open ones of each replica, as the router sees them
	router    Router
	clients   *clients
	lose      func(*wire.Hello, wire.Message) bool
	onlookers int // events that are planned again and again as long as there are others
	summary   Summary
	err       error
}

// Summary is what became of a run.
type Summary struct {
	Requests   int           `json:"requests"` // of the workload, that were sent
	Attempts   int           `json:"attempts"`
	Complete   int           `json:"complete"`   // requests
	TimedOut   int           `json:"timed_out"`  // attempts
	HungUp     int           `json:"hung_up"`    // requests, by the workload's own client
	Refused    int           `json:"refused"`    // attempts, by a front end
	Broken     int           `json:"broken"`     // attempts, whose connection broke or came about not at all
	Unfinished int           `json:"unfinished"` // requests, when the run was cut
	Iterations int           `json:"iterations"` // with tokens, of all engines
	Tokens     int           `json:"tokens"`     // of output, of all engines
	End        time.Duration `json:"end_ns"`     // of the last event
}

// begin is when virtual time is 0 unless the configuration says otherwise.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// New makes a world and introduces its sources to the recorder.
func New(c Config) (*World, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Begin.IsZero() {
		c.Begin = begin
	}
	if c.Name == "" {
		c.Name = "simulated"
	}
	w := &World{config: c, random: rand.New(rand.NewPCG(c.Seed, 0x776f726c64)), router: c.Router}
	if w.router == nil {
		w.router = RoundRobin()
	}
	w.config.Replicas = slices.Clone(c.Replicas)
	for i := range w.config.Replicas {
		r := &w.config.Replicas[i]
		r.Ranks = slices.Clone(r.Ranks)
		for k := range r.Ranks {
			r.Ranks[k].Settings = maps.Clone(r.Ranks[k].Settings)
		}
		s, err := w.newServer(r, i, w.newMachine(r.Name, r.Skew), nil)
		if err != nil {
			return nil, err
		}
		w.replicas = append(w.replicas, s)
	}
	w.exchanges = make([]int, len(w.replicas))
	var err error
	if w.clients, err = w.newClients(); err != nil {
		return nil, err
	}
	return w, nil
}

// At lets something happen to the world at a time: a fault begins, or ends.
func (w *World) At(t time.Duration, do func(*World)) { w.agenda.add(max(t, w.now), func() { do(w) }) }

// Now is the time since the world began.
func (w *World) Now() time.Duration { return w.now }

// Replica is the server of a replica, by its place in the configuration.
func (w *World) Replica(i int) *Server { return w.replicas[i] }

// Replicas counts them.
func (w *World) Replicas() int { return len(w.replicas) }

// Engine is the scheduler loop of one data-parallel rank of a replica.
func (w *World) Engine(replica, rank int) *Engine { return w.replicas[replica].ranks[rank] }

// SetRouter lets attempts from now on be routed differently.
func (w *World) SetRouter(r Router) { w.router = r }

// SetClient lets requests that are sent from now on have clients of another kind.
func (w *World) SetClient(c Client) error {
	if err := c.validate(); err != nil {
		return err
	}
	w.config.Client = c
	return nil
}

// Lose lets messages be lost for which a function says so, until it is called again; nil loses none.
func (w *World) Lose(which func(*wire.Hello, wire.Message) bool) { w.lose = which }

// Run plays until nothing more happens, or until Config.Until.
func (w *World) Run() (Summary, error) {
	w.clients.begin()
	for _, s := range w.replicas {
		s.watchDevices()
	}
	for w.err == nil {
		e, ok := w.agenda.next()
		if !ok {
			break
		}
		if w.config.Until > 0 && e.at > w.config.Until {
			break
		}
		if w.config.Wait != nil && e.at > w.now {
			w.fail(w.config.Wait(e.at))
		}
		w.now = e.at
		e.do()
	}
	w.summary.End = w.now
	w.summary.Unfinished = w.clients.live
	return w.summary, w.err
}

// later lets something happen after a time.
func (w *World) later(d time.Duration, do func()) { w.agenda.add(w.now+max(d, 0), do) }

// fail keeps the first error; the run ends with it.
func (w *World) fail(err error) {
	if err != nil && w.err == nil && !errors.Is(err, io.EOF) {
		w.err = fmt.Errorf("world: at %v: %w", w.now, err)
	}
}
