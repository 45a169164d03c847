package main

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/experiment"
)

// The load is played in two parts: a mixed one in which every incident is planted at a known time, and a quiet one after it.
// Ids name the class, so a check knows what it looks at: short-3, long-0, grow-7.

// planted are the moments of the main part.
const (
	stallAt = 3 * time.Second  // the first logprobs of this engine
	longAt  = 60 * time.Second // long prompts beside one steady stream each
	mixAt   = 75 * time.Second // an ordinary mixture
	poolAt  = 105 * time.Second
)

type builder struct {
	requests []experiment.Request
	counts   map[string]int
}

func (b *builder) add(class string, at time.Duration, prompt, output int, change func(*experiment.Request)) {
	r := experiment.Request{At: at, PromptTokens: prompt, OutputTokens: output, Class: class, ID: fmt.Sprintf("%s-%d", class, b.counts[class]), Traceparent: experiment.TraceOn}
	b.counts[class]++
	if change != nil {
		change(&r)
	}
	b.requests = append(b.requests, r)
}

func every(from, to, step time.Duration, do func(at time.Duration)) {
	for at := from; at < to; at += step {
		do(at)
	}
}

func fan(r *experiment.Request) {
	n := 20
	r.N, r.Logprobs = 8, &n
}

func shared(r *experiment.Request) {
	r.Prefix = []experiment.PrefixRun{{Hash: 640, Tokens: 640}}
}

// mainLoad is the mixed part: more than 200 requests.
func mainLoad() []experiment.Request {
	b := &builder{counts: map[string]int{}}
	// An engine's first logprobs make it compile; what arrives meanwhile waits in its inbox.
	every(0, 14*time.Second, 400*time.Millisecond, func(at time.Duration) { b.add("short", at, 48, 16, nil) })
	b.add("fan", stallAt, 64, 24, fan)

	// Long prompts, each beside one steady stream and nothing else.
	for i := range 3 {
		at := longAt + time.Duration(i)*5*time.Second
		b.add("steady", at, 64, 220, nil)
		b.add("long", at+700*time.Millisecond, 2400, 8, nil)
	}

	// An ordinary mixture, with a shared prefix and clients that hang up.
	every(mixAt, mixAt+22*time.Second, 250*time.Millisecond, func(at time.Duration) { b.add("mix", at, 64, 40, nil) })
	every(mixAt+100*time.Millisecond, mixAt+22*time.Second, time.Second, func(at time.Duration) { b.add("shared", at, 700, 24, shared) })
	every(mixAt+500*time.Millisecond, mixAt+22*time.Second, 2700*time.Millisecond, func(at time.Duration) {
		b.add("hangup", at, 64, 400, func(r *experiment.Request) { r.CancelChunks = 10 })
	})
	b.add("fan", mixAt+10*time.Second, 64, 24, fan)

	// A pool of 200 blocks and 14 answers that grow to 35 each, beside a client of short requests.
	for i := range 14 {
		b.add("grow", poolAt+time.Duration(i)*10*time.Millisecond, 200, 900, nil)
	}
	every(poolAt+500*time.Millisecond, poolAt+18*time.Second, 330*time.Millisecond, func(at time.Duration) { b.add("waiter", at, 64, 16, nil) })

	sortByTime(b.requests)
	return b.requests
}

// quietLoad is the part after everything has drained: nobody hurts these.
func quietLoad() []experiment.Request {
	b := &builder{counts: map[string]int{}}
	for i := range 3 {
		b.add("alone", time.Duration(i)*4*time.Second, 64, 64, nil)
	}
	return b.requests
}
