package incident

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/experiment/workload"
)

// Classes of requests that all incidents know. Those of other names are interactive as well.
const (
	chat  = "chat"
	batch = "batch" // nobody waits for its answers
)

// load is one kind of requests.
type load struct {
	class    string
	rate     float64 // 1/s, for each replica
	steady   bool    // at equal distances instead of at random
	prompt   [2]int  // from … to, of the demo's engine
	output   [2]int
	from, to time.Duration // to = 0: until the run is over
	each     func(n int, r *experiment.Request)
	traits   func(r *experiment.Request) world.Traits
}

// ordinary is what is always asked for.
func ordinary(rate float64) load {
	return load{class: chat, rate: rate, prompt: [2]int{100, 300}, output: [2]int{40, 120}}
}

// long scales a number of prompt tokens to the engine.
func (s *stage) long(tokens float64) int { return max(1, int(math.Round(tokens*s.engine.Tokens))) }

// add adds a load, fault or not.
func (s *stage) add(l load) {
	rate := l.rate * float64(len(s.config.Replicas))
	seed := s.Seed<<8 ^ uint64(len(s.parts))
	at, err := workload.Poisson(rate, seed)
	if l.steady {
		at, err = workload.Steady(rate)
	}
	if err != nil {
		s.fail(fmt.Errorf("%s: %w", l.class, err))
		return
	}
	lengths := workload.Independent(even(s.long(float64(l.prompt[0])), s.long(float64(l.prompt[1]))), even(l.output[0], l.output[1]))
	end := s.Length
	if l.to > 0 {
		end = min(end, l.to)
	}
	if s.counts[l.class] == nil {
		s.counts[l.class] = new(int)
	}
	s.parts = append(s.parts, workload.Part{Stream: &stream{workload.Independently(at, lengths, seed), l, end, s.counts[l.class]}, Weight: 1})
	if l.traits != nil {
		s.traits[l.class] = l.traits
	}
}

// surge adds a load that is the fault.
func (s *stage) surge(l load) {
	if s.Sham {
		return
	}
	l.from, l.to = s.Onset, s.end()
	s.add(l)
}

func even(from, to int) workload.Distribution {
	return workload.Distribution{{Below: 0, Length: float64(from)}, {Below: 1, Length: float64(to)}}
}

// stream puts a load's requests at their time and names them.
type stream struct {
	experiment.Stream
	load
	end time.Duration
	n   *int // of its class
}

func (s *stream) Next() (experiment.Request, error) {
	r, err := s.Stream.Next()
	if err != nil {
		return r, err
	}
	if r.At += s.from; r.At >= s.end {
		return r, io.EOF
	}
	r.Class, r.ID = s.class, fmt.Sprintf("%s-%d", s.class, *s.n)
	if s.class == batch {
		r.Priority = 10 // behind all others, where the engine goes by priority
	}
	if s.each != nil {
		s.each(*s.n, &r)
	}
	*s.n++
	return r, nil
}

// workload is all loads together.
func (s *stage) workload() (experiment.Source, error) {
	mixed, err := workload.Mix(s.parts, s.Seed)
	if err != nil {
		return nil, err
	}
	return experiment.Open(&named{mixed}), nil
}

// named takes off what [workload.Mix] appends to ids.
type named struct{ experiment.Stream }

func (n *named) Next() (experiment.Request, error) {
	r, err := n.Stream.Next()
	if err == nil {
		number, _, _ := strings.Cut(strings.TrimPrefix(r.ID, r.Class+"-"), "-")
		r.ID = r.Class + "-" + number
	}
	return r, err
}

// document is a run of prompt tokens that others may begin with, too.
func document(name string, n, tokens int) experiment.PrefixRun {
	h := uint64(14695981039346656037)
	for _, c := range []byte(fmt.Sprint(name, n)) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return experiment.PrefixRun{Hash: experiment.Hash(h), Tokens: tokens}
}

// begin lets a prompt begin with runs, and is so long as they are and some tokens of its own.
func begin(r *experiment.Request, own int, runs ...experiment.PrefixRun) {
	r.Prefix, r.PromptTokens = runs, own
	for _, run := range runs {
		r.PromptTokens += run.Tokens
	}
}
