package workload

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/whylate/whylate/experiment"
)

// changed is a stream made of another, one request at a time.
type changed struct {
	from   experiment.Stream
	change func(*experiment.Request) (keep bool, err error)
}

func (c *changed) Next() (experiment.Request, error) {
	for {
		r, err := c.from.Next()
		if err != nil {
			return experiment.Request{}, err
		}
		if keep, err := c.change(&r); err != nil {
			return experiment.Request{}, err
		} else if keep {
			return r, nil
		}
	}
}

// FromZero makes the time of the first request the zero.
func FromZero(s experiment.Stream) experiment.Stream {
	zero := time.Duration(-1)
	return &changed{s, func(r *experiment.Request) (bool, error) {
		if zero < 0 {
			zero = r.At
		}
		r.At -= zero
		return true, nil
	}}
}

// Cut keeps what arrives from begin on and before end, with begin as its new zero. An end of 0 is none.
func Cut(s experiment.Stream, begin, end time.Duration) experiment.Stream {
	return &changed{s, func(r *experiment.Request) (bool, error) {
		if end > 0 && r.At >= end {
			return false, io.EOF
		}
		r.At -= begin
		return r.At >= 0, nil
	}}
}

// First keeps the first n requests.
func First(s experiment.Stream, n int) experiment.Stream {
	return &changed{s, func(*experiment.Request) (bool, error) {
		if n--; n < 0 {
			return false, io.EOF
		}
		return true, nil
	}}
}

// Speed plays the workload in a part of its time: 2 halves the time between two requests. A client's patience stays what it is.
func Speed(s experiment.Stream, factor float64) experiment.Stream {
	return &changed{s, func(r *experiment.Request) (bool, error) {
		r.At = time.Duration(min(float64(r.At)/factor, 1<<61))
		return true, nil
	}}
}

// Shorten multiplies all lengths, at least to 1 token. Runs of prefixes shrink alike wherever they occur, so what was shared
// stays shared.
func Shorten(s experiment.Stream, factor float64) experiment.Stream {
	times := func(n int) int {
		return int(min(max(math.Round(float64(n)*factor), 1), experiment.MaxTokens))
	}
	return &changed{s, func(r *experiment.Request) (bool, error) {
		prefix := make([]experiment.PrefixRun, len(r.Prefix))
		total := 0
		for i, run := range r.Prefix {
			prefix[i] = experiment.PrefixRun{Hash: run.Hash, Tokens: times(run.Tokens)}
			total += prefix[i].Tokens
		}
		if len(prefix) > 0 {
			r.Prefix = prefix
		}
		r.PromptTokens, r.OutputTokens = max(times(r.PromptTokens), total), times(r.OutputTokens)
		return true, nil
	}}
}

// Fit leaves out requests whose prompt and answer have more than so many tokens together, which a model of that length would
// refuse, and tells leftOut of each.
func Fit(s experiment.Stream, tokens int, leftOut func()) experiment.Stream {
	return &changed{s, func(r *experiment.Request) (bool, error) {
		if r.PromptTokens+r.OutputTokens <= tokens {
			return true, nil
		}
		leftOut()
		return false, nil
	}}
}

// Class names the class of all requests that have none.
func Class(s experiment.Stream, class string) experiment.Stream {
	return &changed{s, func(r *experiment.Request) (bool, error) {
		if r.Class == "" {
			r.Class = class
		}
		return true, nil
	}}
}

// WithoutIDs leaves out the ids, so that whoever plays the workload gives its own: a request that is played twice is two.
func WithoutIDs(s experiment.Stream) experiment.Stream {
	return &changed{s, func(r *experiment.Request) (bool, error) {
		r.ID = ""
		return true, nil
	}}
}

// of makes a request one of another population of users: its prefixes are shared within the population, with nobody else. A
// traceparent names one request only, so it is left out.
func of(population uint64, r experiment.Request) experiment.Request {
	r.Prefix, r.Traceparent = renamed(r.Prefix, population), ""
	if r.ID != "" {
		r.ID = fmt.Sprintf("%.230s-%x", r.ID, population)
	}
	return r
}

func renamed(prefix []experiment.PrefixRun, number uint64) []experiment.PrefixRun {
	if len(prefix) == 0 {
		return nil
	}
	other := make([]experiment.PrefixRun, len(prefix))
	for i, run := range prefix {
		other[i] = experiment.PrefixRun{Hash: experiment.Hash(mixed(uint64(run.Hash), number)), Tokens: run.Tokens}
	}
	return other
}

// copyDelay is how long after the original a copy of a request comes at most: longer than a burst, shorter than a pattern of
// the day.
const copyDelay = 10 * time.Second

// Scale changes the rate and keeps the time: 0.5 keeps each request with probability ½, 2.5 adds to each one or two copies. The
// copies are those of other users: each comes up to 10 s after its original, and shares prefixes with its like only.
func Scale(s experiment.Stream, factor float64, seed uint64) experiment.Stream {
	return &scale{from: s, factor: factor, random: rand.New(rand.NewPCG(seed, forScale))}
}

type scale struct {
	from    experiment.Stream
	factor  float64
	random  *rand.Rand
	pending queue
	ended   bool
}

func (s *scale) Next() (experiment.Request, error) {
	for !s.ended && (len(s.pending.waiting) == 0 || !s.pending.certain()) {
		r, err := s.from.Next()
		if err == io.EOF {
			s.ended = true
			break
		}
		if err != nil {
			return experiment.Request{}, err
		}
		s.pending.reached = r.At
		for i := range s.times() {
			c := r
			if i > 0 {
				c = of(uint64(i), r)
				c.At += time.Duration(s.random.Float64() * float64(copyDelay))
			}
			s.pending.push(c)
		}
	}
	return s.pending.pop()
}

// times is how many requests come of one.
func (s *scale) times() int {
	whole, part := math.Modf(s.factor)
	if s.random.Float64() < part {
		whole++
	}
	return int(whole)
}

// A Part is one of the workloads of a mix.
type Part struct {
	Stream experiment.Stream
	Weight float64 // how many requests come of one of its own: 1 leaves it as it is
}

// Mix plays several workloads at once. None shares prefixes with another.
func Mix(parts []Part, seed uint64) (experiment.Stream, error) {
	var m merge
	for i, p := range parts {
		s := p.Stream
		if i > 0 {
			population := uint64(i) << 32
			s = &changed{s, func(r *experiment.Request) (bool, error) {
				*r = of(population, *r)
				return true, nil
			}}
		}
		if p.Weight != 1 {
			s = Scale(s, p.Weight, mixed(seed, uint64(i)))
		}
		if err := m.add(s); err != nil {
			return nil, err
		}
	}
	return &m, nil
}
