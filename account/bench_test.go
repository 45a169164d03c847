package account_test

import (
	"strconv"
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

func itoa(n int) string { return strconv.Itoa(n) }

// benchmarkAccount accounts for a request of so many output tokens whose decode was cut by rounds − 1 preemptions.
func benchmarkAccount(b *testing.B, tokens, rounds int) {
	e := &ledger.Engine{First: 1}
	q := &ledger.Sequence{ID: "s", Engine: e, Prompt: 32, Output: uint32(tokens), Queued: 1, Arrived: 1, Logprobs: -1, PromptLogprobs: -1, Join: 1, FirstEmit: 1}
	r := &ledger.Request{Sequences: []*ledger.Sequence{q}}
	q.Request = r
	var sums ledger.Sums
	n := uint64(0)
	row := func() {
		n++
		sums.Busy += 10e6
		sums.Work[ledger.WorkIterations]++
		sums.Work[ledger.WorkDecodeSeqs]++
		e.Iterations = append(e.Iterations, ledger.Iteration{Number: n, Start: 2 + int64(n-1)*10e6, End: 2 + int64(n)*10e6, Known: ledger.KnownAll, Tokens: 1, Sums: sums})
	}
	row()
	q.FirstToken = e.Iterations[0].End
	q.Stints = append(q.Stints, ledger.Stint{Seq: q, Phase: ledger.Prefill, First: 1, Last: 1, Tokens: []uint32{32}, Final: true})
	for k := range rounds {
		first := n + 1
		for range tokens / rounds {
			row()
		}
		q.Stints = append(q.Stints, ledger.Stint{Seq: q, Phase: ledger.Decode, First: first, Last: n, Before: 32})
		if k < rounds-1 {
			row()
			q.Skips = append(q.Skips, ledger.Skip{First: n, Last: n, Reason: ledger.SkipKVBlocks, Away: true})
			row()
			q.Stints = append(q.Stints, ledger.Stint{Seq: q, Phase: ledger.Recompute, First: n, Last: n, Tokens: []uint32{64}, Final: true})
		}
	}
	q.Leave, q.LastEmit = n, n
	q.LastToken = e.Iterations[n-1].End
	q.Finished = q.LastToken
	m := &account.Model{Coefficients: ledger.Work{ledger.WorkIterations: 9e6, ledger.WorkDecodeSeqs: 1e6}}
	b.ReportAllocs()
	for b.Loop() {
		if a := account.Of(r, m, 0); a.Line(account.Decode).NS == 0 {
			b.Fatal("no decode")
		}
	}
	b.ReportMetric(float64(len(q.Stints)+len(q.Skips)), "runs")
}
