package workload

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/ledger"
)

// Taken says what was taken from a ledger, and what was not.
type Taken struct {
	Requests []experiment.Request // in order of time, the first at 0
	LeftOut  map[string]int       // requests that make no line of a workload, by reason
	Engines  int                  // engines with prompts whose block hashes were recorded
}

// FromLedger makes a workload of the requests that a ledger holds, without a word of their content, their ids or their users:
//
//   - arrival: when the client had planned it, else when the front end received it, else when the engine first saw it
//   - lengths: as the engine counted them; of an answer that was cut short by the client, what was asked for; of several
//     sequences the longest
//   - prefixes: of prompts whose block hashes are in the ledger (ingest.Assembler.KeepHashes), the blocks that more than one of
//     its requests had. They are numbered anew, as hashes of content could be guessed
//   - hanging up: so long after the arrival as the client did
//   - class, n, priority and log-probabilities as they were
//
// A retry is not a request of its own: whoever replays decides about retries.
func FromLedger(b *ledger.Book) Taken {
	t := Taken{LeftOut: make(map[string]int)}
	shared, engines := blocksOf(b)
	t.Engines = engines
	type arrival struct {
		at int64
		r  *ledger.Request
	}
	var all []arrival
	for _, r := range b.Requests {
		if at := arrived(r); at != 0 {
			all = append(all, arrival{at, r})
		} else {
			t.LeftOut["arrival not known"]++
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	var zero int64
	for _, a := range all {
		r, why := taken(a.r)
		if why != "" {
			t.LeftOut[why]++
			continue
		}
		if len(t.Requests) == 0 {
			zero = a.at
		}
		r.At = time.Duration(a.at - zero)
		if patience := hungUp(a.r); patience > 0 {
			r.CancelAfter = time.Duration(patience)
		}
		if len(a.r.Sequences) > 0 {
			r.Prefix = shared.prefix(a.r.Sequences[0], r.PromptTokens)
		}
		if bad, ok := r.Validate().(*experiment.FieldError); ok {
			t.LeftOut[bad.Reason()+" out of range"]++
			continue
		}
		t.Requests = append(t.Requests, r)
	}
	return t
}

// arrived is when the request came, 0 if nobody knows.
func arrived(r *ledger.Request) int64 {
	if len(r.Clients) > 0 && r.Clients[0].Planned != 0 {
		return r.Clients[0].Planned
	}
	return r.FirstSeen()
}

// taken makes a request of what is known, without time and prefix, or says why none can be made.
func taken(r *ledger.Request) (t experiment.Request, why string) {
	t.Class = r.Class
	var most uint32 // tokens asked for
	for _, q := range r.Sequences {
		t.PromptTokens = max(t.PromptTokens, int(q.Prompt))
		t.OutputTokens = max(t.OutputTokens, int(q.Output))
		most = max(most, q.Max)
		t.N = max(t.N, int(q.N))
	}
	if len(r.Sequences) > 0 {
		q := r.Sequences[0]
		t.Priority = int(q.Priority)
		t.Logprobs, t.PromptLogprobs = logprobs(q.Logprobs), logprobs(q.PromptLogprobs)
	}
	for _, c := range r.Clients {
		t.PromptTokens = max(t.PromptTokens, int(c.Prompt))
		if len(r.Sequences) == 0 {
			t.OutputTokens = max(t.OutputTokens, int(c.Output))
		}
	}
	if (hungUp(r) > 0 || !over(r)) && most > 0 {
		t.OutputTokens = int(most)
	}
	switch {
	case t.PromptTokens == 0:
		return t, "prompt length not known"
	case t.OutputTokens == 0:
		return t, "no output, and nobody knows how much was asked for"
	}
	return t, ""
}

// over says whether all sequences came to an end that the engine or its limits chose.
func over(r *ledger.Request) bool {
	return !slices.ContainsFunc(r.Sequences, func(q *ledger.Sequence) bool {
		return q.Finished == 0 || q.Reason == ledger.FinishLost || q.Reason == ledger.FinishError || q.Reason == ledger.FinishAbort && !q.StopString
	})
}

// logprobs is the number of log-probabilities asked for, which the ledger says as the wire does.
func logprobs(k int16) *int {
	switch {
	case k == math.MaxInt16:
		return new(experiment.AllLogprobs)
	case k >= 0:
		return new(int(k))
	}
	return nil
}

// hungUp is how long after its sending the client hung up, ns; 0 if it did not.
func hungUp(r *ledger.Request) int64 {
	if n := len(r.Clients); n > 0 {
		if c := &r.Clients[n-1]; c.Outcome == ledger.OutcomeCancelled || c.Outcome == ledger.OutcomeTimeout {
			return c.Ended - c.Sent
		}
		return 0
	}
	if r.End == ledger.EndDisconnect && r.Received != 0 {
		return r.Disconnect - r.Received
	}
	return 0
}

// blocks knows which blocks of prompts several requests had. A block's hash is that of the whole prompt up to its end, so
// who has a block has all before it.
type blocks struct {
	size    map[*ledger.Engine]int
	users   map[uint64]int             // block → requests
	numbers map[uint64]experiment.Hash // block → its new name
}

func blocksOf(b *ledger.Book) (*blocks, int) {
	k := &blocks{map[*ledger.Engine]int{}, map[uint64]int{}, map[uint64]experiment.Hash{}}
	for _, e := range b.Engines {
		size := int(cmp.Or(e.Setting("hash_block_size"), e.Setting("block_size")))
		if size > 0 && slices.ContainsFunc(e.Sequences, func(q *ledger.Sequence) bool { return len(q.BlockHashes) > 0 }) {
			k.size[e] = size
		}
	}
	for _, r := range b.Requests {
		if len(r.Sequences) > 0 && k.size[r.Sequences[0].Engine] > 0 {
			for _, h := range r.Sequences[0].BlockHashes {
				k.users[h]++
			}
		}
	}
	return k, len(k.size)
}

// prefix makes runs of the blocks that others have too. Consecutive blocks with as many users have the same users, so they
// are one run, named after its last block.
func (k *blocks) prefix(q *ledger.Sequence, prompt int) (runs []experiment.PrefixRun) {
	size := k.size[q.Engine]
	if size == 0 {
		return nil
	}
	chain := q.BlockHashes[:min(len(q.BlockHashes), prompt/size)]
	for i := 0; i < len(chain) && k.users[chain[i]] > 1; {
		end := i + 1
		for end < len(chain) && k.users[chain[end]] == k.users[chain[i]] {
			end++
		}
		last := chain[end-1]
		if k.numbers[last] == 0 {
			k.numbers[last] = experiment.Hash(len(k.numbers) + 1)
		}
		runs = append(runs, experiment.PrefixRun{Hash: k.numbers[last], Tokens: (end - i) * size})
		i = end
	}
	return runs
}
