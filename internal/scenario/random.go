package scenario

import (
	"fmt"
	"math/rand/v2"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Truth is what really happened in a random run, iteration by iteration, to hold a ledger against.
type Truth struct {
	Members []map[string]uint32            // by iteration − 1: sequence → tokens
	Waiting []map[string]ledger.SkipReason // by iteration − 1: sequence → why it was not a member
	Ends    []int64                        // monotonic end of each iteration
	Output  map[string]uint32              // sequence → tokens emitted
	Lost    map[string]int                 // sequence → preemptions
}

// Cost is the time that a random run's iterations take: what a model fitted on it should find. In ns.
type Cost struct{ Base, PrefillToken, PrefillContext, DecodeSeq, DecodeContext, Logprob, Jitter float64 }

// PlainCost resembles a small model on a CPU.
var PlainCost = Cost{Base: 6e6, PrefillToken: 250e3, PrefillContext: 20, DecodeSeq: 600e3, DecodeContext: 400, Logprob: 900e3, Jitter: 0.02}

type randomSeq struct {
	id                          string
	handle                      uint32
	prompt, max, output, before uint32
	blocks                      uint32
	ever                        uint32 // the most it had ever computed: below it, work is done again
	logprobs                    int16
}

// Random plays n iterations of a small first-come-first-served scheduler with a KV pool, chunked prefill, preemption and
// aborts, and writes what a probe would. It is not an engine's scheduler; it makes every kind of record in every order.
func Random(seed uint64, n int, cost Cost) (*Run, *Truth, error) {
	const maxSeqs, budget, pool, block = 6, 64, 40, 16
	rng := rand.New(rand.NewPCG(seed, 1))
	run, err := Parse(fmt.Sprintf("engine vllm depth=1 max_num_seqs=%d max_num_batched_tokens=%d num_gpu_blocks=%d block_size=%d", maxSeqs, budget, pool, block))
	if err != nil {
		return nil, nil, err
	}
	truth := &Truth{Output: map[string]uint32{}, Lost: map[string]int{}}
	rec := newRecorder()
	var waiting, running []*randomSeq
	now := Boot
	var handles uint32
	need := func(tokens uint32) uint32 { return (tokens + block - 1) / block }
	free := func() uint32 {
		used := uint32(0)
		for _, q := range running {
			used += q.blocks
		}
		return pool - used
	}
	for i := 1; i <= n; i++ {
		// Arrivals and aborts, between iterations.
		for len(waiting) < 30 && rng.IntN(3) == 0 {
			handles++
			q := &randomSeq{id: fmt.Sprintf("s%d", handles), handle: handles, prompt: 1 + rng.Uint32N(200), max: 1 + rng.Uint32N(60), logprobs: -1}
			if rng.IntN(5) == 0 {
				q.logprobs = 5
			}
			arrived := now - rng.Int64N(5e6)
			if err := run.Engine.add(&wire.Queued{Time: now, Arrived: arrived, Handle: q.handle, Prompt: q.prompt, Max: q.max, N: 1, Logprobs: q.logprobs,
				PromptLogprobs: -1, ID: q.id, External: q.id}); err != nil {
				return nil, nil, err
			}
			waiting = append(waiting, q)
			now += 20_000
		}
		if rng.IntN(25) == 0 {
			if live := append(append([]*randomSeq{}, waiting...), running...); len(live) > 0 {
				q := live[rng.IntN(len(live))]
				waiting, running = without(waiting, q), without(running, q)
				if err := run.Engine.add(&wire.Finished{Time: now, Finish: wire.Finish{Handle: q.handle, Reason: ledger.FinishAbort, Output: q.output}}); err != nil {
					return nil, nil, err
				}
				truth.Output[q.id] = q.output
				now += 10_000
			}
		}

		// The decision.
		m := &wire.Scheduled{Time: now, Returned: now + 50_000, TokenBudget: budget, SeqBudget: maxSeqs}
		left := uint32(budget)
		var batch []wire.Join
		truth.Members = append(truth.Members, map[string]uint32{})
		truth.Waiting = append(truth.Waiting, map[string]ledger.SkipReason{})
		schedule := func(q *randomSeq, tokens uint32) {
			left -= tokens
			batch = append(batch, wire.Join{Handle: q.handle, Tokens: tokens, Before: q.before, Total: q.prompt + q.output})
			truth.Members[i-1][q.id] = tokens
		}
		preempted := false
		for k := 0; k < len(running) && left > 0; k++ {
			q := running[k]
			tokens := min(q.prompt+q.output-q.before, left)
			for need(q.before+tokens)-q.blocks > free() {
				victim := running[len(running)-1]
				running = running[:len(running)-1]
				preempted = true
				m.Preemptions = append(m.Preemptions, wire.Preemption{Victim: victim.handle, Preemptor: q.handle, Lost: victim.before, Output: victim.output, Free: free(), Blocks: victim.blocks, Cause: wire.CauseKVBlocks})
				truth.Lost[victim.id]++
				victim.before, victim.blocks = 0, 0
				waiting = append([]*randomSeq{victim}, waiting...)
				if victim == q {
					break
				}
			}
			if len(running) <= k || running[k] != q {
				break
			}
			q.blocks = need(q.before + tokens)
			schedule(q, tokens)
		}
		stop := ledger.SkipNone
		for len(waiting) > 0 {
			if preempted {
				stop = ledger.SkipPreemptionStep
				break
			}
			if left == 0 {
				stop = ledger.SkipTokenBudget
				break
			}
			if len(running) >= maxSeqs {
				stop = ledger.SkipSequenceLimit
				break
			}
			q := waiting[0]
			total := q.prompt + q.output
			if need(total) > free() {
				stop = ledger.SkipKVBlocks
				m.Head, m.Need = q.handle, need(total)
				for _, h := range running {
					m.Holders = append(m.Holders, wire.Holder{Handle: h.handle, Blocks: h.blocks, Weight: float32(h.blocks)})
				}
				break
			}
			waiting = waiting[1:]
			running = append(running, q)
			tokens := min(total, left)
			q.blocks = need(tokens)
			schedule(q, tokens)
		}
		m.Stop, m.Free, m.Running, m.Waiting = stop, free(), uint32(len(running)), uint32(len(waiting))
		for k, q := range waiting {
			why := stop
			if stop == ledger.SkipKVBlocks && k > 0 {
				why = ledger.SkipHeadOfLine
			}
			truth.Waiting[i-1][q.id] = why
		}
		for _, q := range running {
			if _, in := truth.Members[i-1][q.id]; !in { // running, and the loop did not get to it
				m.Skips = append(m.Skips, wire.SkipEntry{Handle: q.handle, Reason: ledger.SkipTokenBudget})
				truth.Waiting[i-1][q.id] = ledger.SkipTokenBudget
			}
		}
		m.SkipsListed = true
		if err := rec.decide(m, batch); err != nil {
			return nil, nil, err
		}
		if err := run.Engine.add(m); err != nil {
			return nil, nil, err
		}

		// The completion.
		ns := 0.0
		if len(batch) > 0 {
			ns = cost.Base
		}
		d := &wire.Done{Iteration: uint64(i)}
		for _, q := range append([]*randomSeq{}, running...) {
			tokens, in := truth.Members[i-1][q.id]
			if !in {
				continue
			}
			final := q.before+tokens >= q.prompt+q.output
			decode := q.output > 0 && q.before >= q.prompt && q.before+1 >= q.prompt+q.output && tokens == 1 && q.before >= q.ever
			if decode {
				ns += cost.DecodeSeq + cost.DecodeContext*float64(q.before)
			} else {
				ns += cost.PrefillToken*float64(tokens) + cost.PrefillContext*float64(tokens)*(float64(q.before)+float64(tokens)/2)
			}
			if final && q.logprobs >= 0 {
				ns += cost.Logprob
			}
			q.before += tokens
			q.ever = max(q.ever, q.before)
			if final {
				q.output++
				d.Tokens++
				if q.output == q.max {
					d.Finishes = append(d.Finishes, wire.Finish{Handle: q.handle, Reason: ledger.FinishLength, Output: q.output})
					running = without(running, q)
					truth.Output[q.id] = q.output
				}
			}
		}
		ns *= 1 + cost.Jitter*rng.NormFloat64()
		now += 60_000 + int64(max(ns, 0))
		d.Time, d.Returned = now-10_000, now
		truth.Ends = append(truth.Ends, now)
		if err := run.Engine.add(d); err != nil {
			return nil, nil, err
		}
		now += 30_000
	}
	for _, q := range append(waiting, running...) {
		truth.Output[q.id] = q.output
	}
	return run, truth, nil
}

func without(qs []*randomSeq, q *randomSeq) []*randomSeq {
	var out []*randomSeq
	for _, k := range qs {
		if k != q {
			out = append(out, k)
		}
	}
	return out
}
