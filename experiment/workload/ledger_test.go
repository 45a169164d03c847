package workload

import (
	"fmt"
	"testing"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/ledger"
)

func TestFromLedger(t *testing.T) {
	const ms = int64(1e6)
	engine := &ledger.Engine{Settings: map[string]any{"hash_block_size": 16}}
	sequence := func(prompt, output, most uint32, reason ledger.FinishReason, hashes ...uint64) *ledger.Sequence {
		q := &ledger.Sequence{Engine: engine, Prompt: prompt, Output: output, Max: most, N: 1, Logprobs: -1, PromptLogprobs: -1, Reason: reason, BlockHashes: hashes}
		if reason != ledger.FinishUnknown {
			q.Finished = 2
		}
		engine.Sequences = append(engine.Sequences, q)
		return q
	}
	special := sequence(70, 8, 8, ledger.FinishLength, 1, 2, 9)
	special.N, special.Logprobs, special.PromptLogprobs, special.Priority = 2, 5, 32767, -3
	requests := []*ledger.Request{
		{RequestID: "secret", Class: "chat", Received: 2000 * ms, Sequences: []*ledger.Sequence{sequence(80, 10, 99, ledger.FinishStop, 1, 2, 3, 4, 5)}},
		{Received: 1000 * ms, Sequences: []*ledger.Sequence{sequence(81, 20, 20, ledger.FinishLength, 1, 2, 3, 4, 6)}},
		// Its client had planned it before everybody else, and hung up.
		{Received: 1500 * ms, Sequences: []*ledger.Sequence{sequence(50, 5, 400, ledger.FinishAbort)},
			Clients: []ledger.Client{{Planned: 500 * ms, Sent: 600 * ms, Ended: 850 * ms, Outcome: ledger.OutcomeCancelled, Prompt: 50}}},
		{Received: 2500 * ms, Disconnect: 2600 * ms, End: ledger.EndDisconnect, Sequences: []*ledger.Sequence{sequence(50, 5, 300, ledger.FinishAbort)}},
		{Received: 3000 * ms, Sequences: []*ledger.Sequence{special, sequence(70, 11, 8, ledger.FinishStop)}},
		{Received: 3500 * ms, Sequences: []*ledger.Sequence{sequence(30, 4, 77, ledger.FinishUnknown)}}, // it still runs
		{Received: 4000 * ms}, // never got to the engine, and nobody counted its prompt
		{Received: 4500 * ms, Sequences: []*ledger.Sequence{sequence(30, 0, 0, ledger.FinishStop)}},
		{},
	}
	taken := FromLedger(&ledger.Book{Engines: []*ledger.Engine{engine}, Requests: requests})
	run := func(h experiment.Hash, n int) experiment.PrefixRun { return experiment.PrefixRun{Hash: h, Tokens: n} }
	five, whole := 5, experiment.AllLogprobs
	want := []experiment.Request{
		{PromptTokens: 50, OutputTokens: 400, N: 1, CancelAfter: 250e6},
		{At: 500e6, PromptTokens: 81, OutputTokens: 20, N: 1, Prefix: []experiment.PrefixRun{run(1, 32), run(2, 32)}},
		{At: 1500e6, PromptTokens: 80, OutputTokens: 10, N: 1, Class: "chat", Prefix: []experiment.PrefixRun{run(1, 32), run(2, 32)}},
		{At: 2000e6, PromptTokens: 50, OutputTokens: 300, N: 1, CancelAfter: 100e6},
		{At: 2500e6, PromptTokens: 70, OutputTokens: 11, N: 2, Priority: -3, Logprobs: &five, PromptLogprobs: &whole, Prefix: []experiment.PrefixRun{run(1, 32)}},
		{At: 3000e6, PromptTokens: 30, OutputTokens: 77, N: 1},
	}
	if len(taken.Requests) != len(want) || taken.Engines != 1 {
		t.Fatalf("%+v", taken)
	}
	for i := range want {
		got, _ := taken.Requests[i].MarshalJSON()
		if wanted, _ := want[i].MarshalJSON(); string(got) != string(wanted) {
			t.Errorf("request %d\ngot  %s\nwant %s", i, got, wanted)
		}
	}
	if left := fmt.Sprint(taken.LeftOut); left != "map[arrival not known:1 no output, and nobody knows how much was asked for:1 prompt length not known:1]" {
		t.Error(left)
	}
}
