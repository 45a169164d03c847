package engineproof

import (
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/experiment"
)

// Load is made request by request. Ids name the class, so a check knows what it looks at: short-3, long-0, grow-7.
type Load struct {
	requests []experiment.Request
	counts   map[string]int
}

// Add adds a request of a class; change, if not nil, makes it special.
func (l *Load) Add(class string, at time.Duration, prompt, output int, change func(*experiment.Request)) {
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	r := experiment.Request{At: at, PromptTokens: prompt, OutputTokens: output, Class: class, ID: fmt.Sprintf("%s-%d", class, l.counts[class]), Traceparent: experiment.TraceOn}
	l.counts[class]++
	if change != nil {
		change(&r)
	}
	l.requests = append(l.requests, r)
}

// Requests are all of them, in order of time.
func (l *Load) Requests() []experiment.Request {
	slices.SortStableFunc(l.requests, func(a, b experiment.Request) int { return int(a.At - b.At) })
	return l.requests
}

// Every does something at from, and again after each step, before to.
func Every(from, to, step time.Duration, do func(at time.Duration)) {
	for at := from; at < to; at += step {
		do(at)
	}
}

// Fan makes a request one of eight sequences with logprobs: what an engine compiles for when it first meets it.
func Fan(r *experiment.Request) {
	n := 20
	r.N, r.Logprobs = 8, &n
}

// Shared gives a request the prefix that others of its kind have, too.
func Shared(r *experiment.Request) {
	r.Prefix = []experiment.PrefixRun{{Hash: 640, Tokens: 640}}
}

// HangUp makes a client that goes after ten chunks.
func HangUp(r *experiment.Request) { r.CancelChunks = 10 }
