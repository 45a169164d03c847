package world

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Recorder takes what probes would record, in order of time within one source. A message may be reused after the call.
type Recorder interface {
	// Source opens a source: a process's thread with a probe. It returns the number that its messages go under.
	Source(h *wire.Hello) (source int, err error)
	// Record takes a message. It carries its own time: monotonic ns of its source's host (hello.Clock says how that maps to Unix ns).
	Record(source int, m wire.Message) error
}

// Loser is a Recorder that can leave a hole where a message was: what a ring that is overwritten, or an agent that is too slow, loses.
type Loser interface {
	Lose(source int, m wire.Message) error
}

// Config is a world before it begins. Durations that are 0 take no time.
type Config struct {
	Seed     uint64
	Begin    time.Time     // when virtual time is 0; zero = 1 January 2026
	Until    time.Duration // when it is cut; 0 = when nothing more happens
	Version  string        // of the program that simulates, for the hellos
	Name     string        // of the deployment
	Replicas []Replica
	Router   Router // nil = round robin
	Client   Client
	Workload experiment.Source
	Traits   func(*experiment.Request) Traits // nil = none has any
	Sampling time.Duration                    // how often GPUs are read; 0 = never
	Recorder Recorder                         // nil = nobody listens
	// Wait is called before the world moves on to a time, so that it can be played in real time; nil = at once.
	Wait func(at time.Duration) error
}

// Replica is a host with a front end and the data-parallel ranks behind it.
type Replica struct {
	Name  string
	Skew  time.Duration // of its wall clock
	Front Front
	Ranks []Rank
}

// Front is the cost of a front end, which is one thread.
type Front struct {
	Request time.Duration // to accept a request
	Token   time.Duration // to tokenise one token of a prompt
	Batch   time.Duration // to take up one iteration's output
	Output  time.Duration // to turn one sequence's part of it into a chunk and send that
	Hop     time.Duration // from it to the engine's process, and back
}

// DefaultFront resembles vLLM's API server in Python on a server's core: the order of magnitude is right, no more is claimed.
var DefaultFront = Front{Request: time.Millisecond, Token: time.Microsecond, Batch: 100 * time.Microsecond, Output: 15 * time.Microsecond, Hop: 150 * time.Microsecond}

// Rank is one engine: a scheduler, a model and its GPUs.
type Rank struct {
	Version  string         // of vLLM
	Settings map[string]any // as in its hello; see [simulate.FromHello]
	Model    timing.Model   // its own: it keeps state
	Accept   float64        // that the model agrees with a speculated token whose predecessors it agreed with
	GPUs     []GPU          // its tensor-parallel ranks; none = it computes on the host
}

// Traits are what a workload's line does not say of a request.
type Traits struct {
	Adapter    int           // 0 = none
	Length     int           // tokens after which its output ends by itself; 0 = never before output_tokens
	Grammar    time.Duration // that its grammar takes to compile; 0 = it has none
	BadGrammar bool          // the grammar does not compile
	Features   ledger.Feature
	Client     *Client // nil = that of the world
}

// Client is how clients behave.
type Client struct {
	Network time.Duration // one way
	Timeout time.Duration // of one attempt; 0 = none
	Retries int           // after a time-out or a refusal
	Backoff time.Duration // before the first retry; twice as long before each further one
	Read    time.Duration // to read one chunk: a slow reader
	Buffer  int           // chunks between front end and reader; 0 = 64
	Collect time.Duration // a proxy between front end and client passes on what it has collected so often only; 0 = at once
}

// Validate names what no world can be made of.
func (c *Config) Validate() error {
	if len(c.Replicas) == 0 {
		return fmt.Errorf("world: no replica: give at least one")
	}
	if c.Workload == nil {
		return fmt.Errorf("world: no workload: give one, if only an empty one")
	}
	names := map[string]bool{}
	for _, r := range c.Replicas {
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("world: replica %q: give each a name of its own", r.Name)
		}
		names[r.Name] = true
		if len(r.Ranks) == 0 {
			return fmt.Errorf("world: replica %q has no engine: give it at least one rank", r.Name)
		}
		for i, k := range r.Ranks {
			if k.Model == nil {
				return fmt.Errorf("world: replica %q, rank %d: no timing model", r.Name, i)
			}
			if k.Accept < 0 || k.Accept > 1 {
				return fmt.Errorf("world: replica %q, rank %d: accept: %v: give a probability, 0 to 1", r.Name, i, k.Accept)
			}
		}
	}
	return c.Client.validate()
}

func (c *Client) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{{"network", int64(c.Network)}, {"timeout", int64(c.Timeout)}, {"retries", int64(c.Retries)},
		{"backoff", int64(c.Backoff)}, {"read", int64(c.Read)}, {"buffer", int64(c.Buffer)}, {"collect", int64(c.Collect)}} {
		if f.value < 0 {
			return fmt.Errorf("world: client: %s: %d: it cannot be negative", f.name, f.value)
		}
	}
	return nil
}
