package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/experiment"
)

// one is a case: a load with culprits planted in it. Ids name the class: steady-3, long-0. Requests of the class apart are as large as
// the culprits and run while no victim does: they are what the sham takes away.
type one struct {
	name    string
	planted string // the class that explain is expected to name
	sham    bool   // it has requests of the class apart
	load    func() []experiment.Request
}

const apart = "apart"

var cases = []one{
	{"long", "long", true, longLoad},
	{"pool", "grow", true, poolLoad},
	{"fan", "fan", false, fanLoad},
	{"prompt_logprobs", "asked", false, askedLoad},
}

func names() (out []string) {
	for _, c := range cases {
		out = append(out, c.name)
	}
	return out
}

type load struct {
	requests []experiment.Request
	counts   map[string]int
}

func (l *load) add(class string, at time.Duration, prompt, output int) *experiment.Request {
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.requests = append(l.requests, experiment.Request{At: at, PromptTokens: prompt, OutputTokens: output, Class: class, ID: fmt.Sprintf("%s-%d", class, l.counts[class])})
	l.counts[class]++
	return &l.requests[len(l.requests)-1]
}

// streams adds n steady streams, a twentieth of a second apart.
func (l *load) streams(n int, at time.Duration, output int) {
	for i := range n {
		l.add("steady", at+time.Duration(i)*50*time.Millisecond, 64, output)
	}
}

func (l *load) sorted() []experiment.Request {
	slices.SortStableFunc(l.requests, func(a, b experiment.Request) int { return int(a.At - b.At) })
	return l.requests
}

func number(n int) *int { return &n }

// longLoad: in each round three steady streams, a prompt of 3,000 tokens beside them, and one short request that arrives while the
// prompt is computed; after the streams are over a prompt of equal size, alone. A round is long enough for its streams to end in it:
// what is lost in one does not carry on into the next.
func longLoad() []experiment.Request {
	var l load
	for i := range 10 {
		at := time.Duration(i) * 3600 * time.Millisecond
		l.streams(3, at, 60)
		l.add("long", at+150*time.Millisecond, 3000, 8)
		l.add("late", at+250*time.Millisecond, 48, 16)
		l.add(apart, at+2400*time.Millisecond, 3000, 8)
	}
	return l.sorted()
}

// poolLoad: 14 answers that grow to 35 blocks each in a pool of 200, beside a client of short requests. Before them one of equal size,
// alone.
func poolLoad() []experiment.Request {
	var l load
	l.add(apart, 0, 200, 900)
	const at = 13 * time.Second
	for i := range 14 {
		l.add("grow", at+time.Duration(i)*10*time.Millisecond, 200, 900)
	}
	for i := range 36 {
		l.add("waiter", at+500*time.Millisecond+time.Duration(i)*330*time.Millisecond, 64, 16)
	}
	return l.sorted()
}

// fanLoad: in each round two steady streams, and beside them one request for eight answers with 20 log-probabilities a token.
func fanLoad() []experiment.Request {
	var l load
	for i := range 5 {
		at := time.Duration(i) * 8 * time.Second
		l.streams(2, at, 300)
		fan := l.add("fan", at+500*time.Millisecond, 64, 120)
		fan.N, fan.Logprobs = 8, number(20)
	}
	return l.sorted()
}

// askedLoad: in each round two steady streams, and beside them a prompt whose own log-probabilities are asked for.
func askedLoad() []experiment.Request {
	var l load
	for i := range 7 {
		at := time.Duration(i) * 5 * time.Second
		l.streams(2, at, 160)
		l.add("asked", at+500*time.Millisecond, 1500, 8).PromptLogprobs = number(5)
	}
	return l.sorted()
}

// warmLoad has each kind of work once, so that an engine has compiled and allocated what it needs for it before anything is measured.
func warmLoad() []experiment.Request {
	var l load
	l.streams(6, 0, 200)
	l.add("long", time.Second, 3000, 8)
	fan := l.add("fan", 3*time.Second, 64, 60)
	fan.N, fan.Logprobs = 8, number(20)
	l.add("asked", 12*time.Second, 1500, 8).PromptLogprobs = number(5)
	l.streams(6, 16*time.Second, 200)
	return l.sorted()
}
