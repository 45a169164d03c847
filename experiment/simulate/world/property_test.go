package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/fidelity"
	"github.com/whylate/whylate/experiment/workload"
)

// random is a world of random settings, topology, clients and load.
func random(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 11))
	maybe := func(n int) bool { return rng.IntN(n) == 0 }
	changes := map[string]any{
		"block_size": 1 << (2 + rng.IntN(4)), "max_num_seqs": 1 + rng.IntN(24), "max_num_scheduled_tokens": 32 + rng.IntN(512),
		"enable_prefix_caching": !maybe(4), "scheduler_reserve_full_isl": !maybe(4), "watermark_blocks": rng.IntN(4), "enable_chunked_prefill": !maybe(5),
		"max_loras": rng.IntN(3), "long_prefill_token_threshold": rng.IntN(2) * 100,
	}
	changes["hash_block_size"] = changes["block_size"]
	changes["num_gpu_blocks"] = 1 + 1024/changes["block_size"].(int)*(1+rng.IntN(3)) + rng.IntN(20)
	if maybe(2) {
		changes["scheduler"] = "AsyncScheduler"
	}
	if maybe(3) {
		changes["policy"] = "priority"
	}
	if maybe(3) {
		changes["num_speculative_tokens"] = 1 + rng.IntN(3)
	}
	if changes["enable_chunked_prefill"] == false {
		changes["max_num_scheduled_tokens"] = 1024 // else a long prompt waits for ever
	}
	versions := []string{"0.20.2", "0.24.0", "0.30.0", "0.32.0"}
	requests := load(seed, 120, time.Duration(1+rng.IntN(60))*time.Millisecond, true)
	for i := range requests {
		if maybe(3) {
			requests[i].Priority = rng.IntN(5)
		}
	}
	c := one(seed, requests, changes)
	rank := c.Replicas[0].Ranks[0]
	rank.Version = versions[rng.IntN(4)]
	if maybe(2) {
		rank.GPUs = []GPU{DefaultGPU}
		c.Sampling = 500 * time.Millisecond
	}
	c.Replicas = nil
	for i := range 1 + rng.IntN(3) {
		r := Replica{Name: fmt.Sprint("r", i), Front: DefaultFront, Skew: time.Duration(rng.IntN(20)) * time.Millisecond}
		for range 1 + rng.IntN(2) {
			r.Ranks = append(r.Ranks, rank)
		}
		c.Replicas = append(c.Replicas, r)
	}
	c.Router = []Router{RoundRobin(), LeastLoaded(), PrefixAware(1000, 4)}[rng.IntN(3)]
	if maybe(3) {
		c.Workload = workload.Closed(experiment.Requests(requests), 1+rng.IntN(12), 50*time.Millisecond, seed)
	}
	if maybe(3) {
		c.Client.Timeout, c.Client.Retries, c.Client.Backoff = time.Duration(200+rng.IntN(3000))*time.Millisecond, rng.IntN(3), 100*time.Millisecond
	}
	if maybe(4) {
		c.Client.Read, c.Client.Buffer = time.Duration(rng.IntN(40))*time.Millisecond, 1+rng.IntN(8)
	}
	c.Traits = func(r *experiment.Request) Traits {
		var t Traits
		switch r.PromptTokens % 7 {
		case 0:
			t.Grammar, t.BadGrammar = time.Duration(r.OutputTokens)*time.Millisecond, r.OutputTokens%4 == 0
		case 1:
			t.Adapter = 1 + r.OutputTokens%3
		case 2:
			t.Length = 1 + r.OutputTokens/2
		}
		return t
	}
	return c
}

func TestBooksBalanceInEveryWorld(t *testing.T) {
	n := uint64(150)
	if testing.Short() {
		n = 20
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b, s, w := played(t, random(seed), nil)
			if s.Requests != 120 || s.Unfinished != 0 {
				t.Errorf("%+v", s)
			}
			for i := range w.Replicas() {
				for k := range w.Replica(i).Ranks() {
					if e := w.Engine(i, k); e.Running()+e.Waiting()+e.Inbox() != 0 || e.scheduler.FreeBlocks() != e.settings.Blocks-1 || len(e.sequences) != 0 {
						t.Errorf("%d run, %d wait, %d of %d blocks are free in the end", e.Running(), e.Waiting(), e.scheduler.FreeBlocks(), e.settings.Blocks-1)
					}
				}
			}
			attempts := 0
			for _, r := range b.Requests {
				attempts += len(r.Clients)
				for _, c := range r.Clients {
					var read int64
					for _, gap := range c.Gaps {
						read += int64(gap) * 1000
					}
					if read > c.Ended-c.Sent+1000 {
						t.Errorf("a client that left after %d ns had read for %d", c.Ended-c.Sent, read)
					}
				}
				for _, q := range r.Sequences {
					if q.Finished == 0 {
						t.Errorf("sequence %s has no end", q.ID)
					}
				}
			}
			if attempts != s.Attempts {
				t.Errorf("%d attempts, %d in the ledger", s.Attempts, attempts)
			}
		})
	}
}

// What a capture tells of a simulated engine is enough to decide again as it did.
func TestDecisionsFollowFromTheCapture(t *testing.T) {
	checked, n := 0, uint64(30)
	if testing.Short() {
		n = 5
	}
	for seed := range n {
		c := random(seed)
		for i := range c.Replicas {
			for k := range c.Replicas[i].Ranks {
				c.Replicas[i].Ranks[k].Settings["max_loras"] = json.Number("0")
			}
		}
		all, err := fidelity.ReadCapture(bytes.NewReader(bytesOf(t, c, nil)), "world")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Refused == "it made no decision" {
				continue
			}
			if checked += r.Free.Decisions; r.Refused != "" || r.Free.Right != r.Free.Decisions || r.Free.Decisions == 0 {
				t.Errorf("seed %d: %+v", seed, r)
			}
		}
	}
	t.Logf("%d decisions", checked)
}
