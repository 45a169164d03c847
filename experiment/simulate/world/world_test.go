package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// linear takes time in proportion to the work.
type linear struct{ base, token, sequence time.Duration }

func (l linear) Iteration(_ time.Duration, s *timing.Shape) timing.Took {
	took := timing.Took{Host: 200 * time.Microsecond, Tail: 100 * time.Microsecond, Gap: 200 * time.Microsecond, Mode: ledger.GraphFull}
	if s.Tokens == 0 {
		return took
	}
	prefill, decode := s.Work[ledger.WorkPrefillTokens], s.Work[ledger.WorkDecodeSeqs]
	took.Device = l.base + time.Duration(prefill)*l.token + time.Duration(decode)*l.sequence
	return took
}

var plain = linear{5 * time.Millisecond, 20 * time.Microsecond, 50 * time.Microsecond}

func settings(changes map[string]any) map[string]any {
	s := DefaultSettings()
	for name, v := range map[string]any{"max_model_len": 1024, "max_num_seqs": 16, "max_num_batched_tokens": 256, "max_num_scheduled_tokens": 256, "num_gpu_blocks": 200} {
		s[name] = v
	}
	for name, v := range changes {
		s[name] = v
	}
	for name, v := range s {
		if n, ok := v.(int); ok {
			s[name] = json.Number(fmt.Sprint(n))
		}
	}
	return s
}

// load is a random workload.
func load(seed uint64, n int, every time.Duration, n1 bool) []experiment.Request {
	rng := rand.New(rand.NewPCG(seed, 5))
	var all []experiment.Request
	at := time.Duration(0)
	for i := range n {
		at += time.Duration(rng.ExpFloat64() * float64(every))
		r := experiment.Request{At: at, PromptTokens: 1 + rng.IntN(400), OutputTokens: 1 + rng.IntN(80), Class: "c" + fmt.Sprint(i%3)}
		if rng.IntN(3) == 0 {
			r.PromptTokens += 300
			r.Prefix = []experiment.PrefixRun{{Hash: experiment.Hash(rng.IntN(3)), Tokens: 256}}
		}
		if n1 && rng.IntN(5) == 0 {
			r.N = 2 + rng.IntN(3)
		}
		switch rng.IntN(12) {
		case 0:
			r.CancelAfter = time.Duration(1+rng.IntN(800)) * time.Millisecond
		case 1:
			r.CancelChunks = 1 + rng.IntN(20)
		}
		if rng.IntN(6) == 0 {
			k := 5
			r.Logprobs = &k
		}
		all = append(all, r)
	}
	return all
}

// one is a world of one replica.
func one(seed uint64, requests []experiment.Request, changes map[string]any) Config {
	return Config{Seed: seed, Replicas: []Replica{{Name: "a", Front: DefaultFront, Ranks: []Rank{{Version: "0.32.0", Settings: settings(changes), Model: plain, Accept: 0.6}}}},
		Workload: experiment.Open(experiment.Requests(requests)), Client: Client{Network: 300 * time.Microsecond}}
}

// played runs a world into a ledger, and holds the books against each other.
func played(t *testing.T, c Config, before func(*World)) (*ledger.Book, Summary, *World) {
	t.Helper()
	a := ingest.New()
	c.Recorder = NewFrames(a)
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(w)
	}
	s, err := w.Run()
	if err != nil {
		t.Fatal(err)
	}
	b := a.Book()
	for _, g := range b.AllGaps() {
		t.Errorf("gap: %v", g)
	}
	for _, e := range b.Engines {
		for _, v := range ledger.Check(e) {
			t.Errorf("%v", v)
		}
	}
	for i := range w.Replicas() {
		for k := range w.Replica(i).Ranks() {
			if err := w.Engine(i, k).Check(); err != nil {
				t.Error(err)
			}
		}
	}
	return b, s, w
}

func TestARunBuildsALedgerThatBalances(t *testing.T) {
	b, s, _ := played(t, one(1, load(1, 200, 40*time.Millisecond, true), nil), nil)
	if s.Requests != 200 || s.Complete+s.HungUp+s.Refused != 200 || s.Unfinished != 0 {
		t.Errorf("%+v", s)
	}
	if len(b.Engines) != 1 || len(b.Requests) != 200 {
		t.Errorf("%d engines, %d requests", len(b.Engines), len(b.Requests))
	}
	t.Logf("%+v", s)
}

func bytesOf(t *testing.T, c Config, before func(*World)) []byte {
	t.Helper()
	var out bytes.Buffer
	cw, err := wire.NewCaptureWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	c.Recorder = NewFrames(cw)
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(w)
	}
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	if err := cw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestOneSeedGivesOneCapture(t *testing.T) {
	make := func(seed uint64) []byte {
		c := one(seed, load(2, 100, 20*time.Millisecond, true), map[string]any{"scheduler": "AsyncScheduler"})
		c.Replicas[0].Ranks[0].GPUs = []GPU{DefaultGPU, DefaultGPU}
		c.Sampling = time.Second
		return bytesOf(t, c, nil)
	}
	if !bytes.Equal(make(7), make(7)) {
		t.Error("the same seed gave another capture")
	}
	if bytes.Equal(make(7), make(8)) {
		t.Error("another seed gave the same capture")
	}
}
