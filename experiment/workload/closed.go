package workload

import (
	"io"
	"math/rand/v2"
	"time"

	"github.com/whylate/whylate/experiment"
)

// Closed lets so many clients share the requests of a stream, whose times count for nothing: each takes the next one when it
// has thought about its last answer, for a time whose mean is given (exponentially distributed; the first requests come after
// such a time as well, or all at once if it is 0).
func Closed(s experiment.Stream, clients int, think time.Duration, seed uint64) experiment.Source {
	return &closed{stream: s, idle: clients, think: think, random: rand.New(rand.NewPCG(seed, forThink))}
}

type closed struct {
	stream experiment.Stream
	idle   int // clients that have sent nothing yet
	think  time.Duration
	random *rand.Rand
	first  queue
}

// Next gives the first request of each client. They are drawn together, as they have to come in order of time.
func (c *closed) Next() (experiment.Request, error) {
	for ; c.idle > 0; c.idle-- {
		r, ok, err := c.after(0)
		if err != nil {
			return r, err
		}
		if !ok {
			break
		}
		c.first.push(r)
	}
	c.idle = 0
	return c.first.pop()
}

func (c *closed) Finished(_ *experiment.Request, at time.Duration) (experiment.Request, bool, error) {
	return c.after(at)
}

// after returns the next request of a client that begins to think now.
func (c *closed) after(now time.Duration) (experiment.Request, bool, error) {
	r, err := c.stream.Next()
	if err == io.EOF {
		return r, false, nil
	}
	r.At = now + exponential(c.random, c.think)
	return r, err == nil, err
}

// AnswerTime says how long answers are assumed to take where nobody gives any.
type AnswerTime struct {
	First time.Duration // until the first token
	Token time.Duration // for each further one
}

func (t AnswerTime) of(r *experiment.Request) time.Duration {
	return t.First + time.Duration(r.OutputTokens-1)*t.Token
}

// Assume makes a stream of a source, as if every answer took the time given: a workload that waits for answers can then be
// written down, and is no longer one that waits.
func Assume(s experiment.Source, t AnswerTime) experiment.Stream {
	return &assumed{source: s, answer: t}
}

type assumed struct {
	source experiment.Source
	answer AnswerTime
	next   *experiment.Request // of the source, taken but not yet due
	ended  bool
	due    queue // requests that followed from answers, and ends of answers
	ends   queue // requests under way, by the end of their answers
}

func (a *assumed) Next() (experiment.Request, error) {
	for {
		if a.next == nil && !a.ended {
			switch r, err := a.source.Next(); err {
			case nil:
				a.next = &r
			case io.EOF:
				a.ended = true
			default:
				return r, err
			}
		}
		start := time.Duration(-1) // of the earliest request that is known
		if a.next != nil {
			start = a.next.At
		}
		if w := a.due.waiting; len(w) > 0 && (start < 0 || w[0].At < start) {
			start = w[0].At
		}
		if w := a.ends.waiting; len(w) > 0 && (start < 0 || w[0].At <= start) { // an answer ends before it
			if err := a.finish(); err != nil {
				return experiment.Request{}, err
			}
			continue
		}
		if start < 0 {
			return experiment.Request{}, io.EOF
		}
		return a.send(start), nil
	}
}

// finish ends the answer that ends first.
func (a *assumed) finish() error {
	r, _ := a.ends.pop()
	at := r.At
	r.At -= a.answer.of(&r)
	next, ok, err := a.source.Finished(&r, at)
	if ok {
		a.due.push(next)
	}
	return err
}

// send takes the request that starts then, and puts it under way.
func (a *assumed) send(start time.Duration) experiment.Request {
	var r experiment.Request
	if a.next != nil && a.next.At == start {
		r, a.next = *a.next, nil
	} else {
		r, _ = a.due.pop()
	}
	end := r
	end.At += a.answer.of(&r)
	a.ends.push(end)
	return r
}
