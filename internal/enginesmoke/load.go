package main

import (
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/internal/engineproof"
)

// The load is played in two parts: a mixed one in which every incident is planted at a known time, and a quiet one after it.

// planted are the moments of the main part.
const (
	stallAt = 3 * time.Second  // the first logprobs of this engine
	longAt  = 60 * time.Second // long prompts beside one steady stream each
	mixAt   = 75 * time.Second // an ordinary mixture
	poolAt  = 105 * time.Second
)

// mainLoad is the mixed part: more than 200 requests.
func mainLoad() []experiment.Request {
	var l engineproof.Load
	every := engineproof.Every
	// An engine's first logprobs make it compile; what arrives meanwhile waits in its inbox.
	every(0, 14*time.Second, 400*time.Millisecond, func(at time.Duration) { l.Add("short", at, 48, 16, nil) })
	l.Add("fan", stallAt, 64, 24, engineproof.Fan)

	// Long prompts, each beside one steady stream and nothing else.
	for i := range 3 {
		at := longAt + time.Duration(i)*5*time.Second
		l.Add("steady", at, 64, 220, nil)
		l.Add("long", at+700*time.Millisecond, 2400, 8, nil)
	}

	// An ordinary mixture, with a shared prefix and clients that hang up.
	every(mixAt, mixAt+22*time.Second, 250*time.Millisecond, func(at time.Duration) { l.Add("mix", at, 64, 40, nil) })
	every(mixAt+100*time.Millisecond, mixAt+22*time.Second, time.Second, func(at time.Duration) { l.Add("shared", at, 700, 24, engineproof.Shared) })
	every(mixAt+500*time.Millisecond, mixAt+22*time.Second, 2700*time.Millisecond, func(at time.Duration) { l.Add("hangup", at, 64, 400, engineproof.HangUp) })
	l.Add("fan", mixAt+10*time.Second, 64, 24, engineproof.Fan)

	// A pool of 200 blocks and 14 answers that grow to 35 each, beside a client of short requests.
	for i := range 14 {
		l.Add("grow", poolAt+time.Duration(i)*10*time.Millisecond, 200, 900, nil)
	}
	every(poolAt+500*time.Millisecond, poolAt+18*time.Second, 330*time.Millisecond, func(at time.Duration) { l.Add("waiter", at, 64, 16, nil) })
	return l.Requests()
}

// quietLoad is the part after everything has drained: nobody hurts these.
func quietLoad() []experiment.Request {
	var l engineproof.Load
	for i := range 3 {
		l.Add("alone", time.Duration(i)*4*time.Second, 64, 64, nil)
	}
	return l.Requests()
}
