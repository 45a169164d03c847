package ingest_test

import (
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// The ledger rebuilt from the changes on the wire must equal what really happened: who was a member with how many tokens, who
// waited and why, what was emitted, who was preempted.
func TestLedgerEqualsTruth(t *testing.T) {
	for seed := range uint64(40) {
		run, truth, err := scenario.Random(seed, 400, scenario.PlainCost)
		if err != nil {
			t.Fatal(err)
		}
		b, err := run.Book()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range b.AllGaps() {
			t.Fatalf("seed %d: gap in an undamaged run: %v", seed, g)
		}
		compare(t, seed, b.Engines[0], truth, 1)
		for _, q := range b.Engines[0].Sequences {
			if q.Output != truth.Output[q.ID] {
				t.Fatalf("seed %d: %s emitted %d, the ledger says %d", seed, q.ID, truth.Output[q.ID], q.Output)
			}
			if len(q.Preemptions) != truth.Lost[q.ID] {
				t.Fatalf("seed %d: %s was preempted %d times, the ledger says %d", seed, q.ID, truth.Lost[q.ID], len(q.Preemptions))
			}
		}
	}
}

// compare holds membership and skips from iteration first on against the truth.
func compare(t *testing.T, seed uint64, e *ledger.Engine, truth *scenario.Truth, first uint64) {
	t.Helper()
	members := make([]map[string]uint32, len(truth.Members))
	waiting := make([]map[string]ledger.SkipReason, len(truth.Members))
	for i := range members {
		members[i], waiting[i] = map[string]uint32{}, map[string]ledger.SkipReason{}
	}
	for _, q := range e.Sequences {
		for k := range q.Stints {
			s := &q.Stints[k]
			for n := s.First; n <= s.Last; n++ {
				if _, twice := members[n-1][q.ID]; twice {
					t.Fatalf("seed %d: %s has two stints in iteration %d", seed, q.ID, n)
				}
				members[n-1][q.ID] = s.TokensIn(n)
			}
		}
		for _, s := range q.Skips {
			for n := s.First; n <= s.Last; n++ {
				waiting[n-1][q.ID] = s.Reason
			}
		}
	}
	for i := first - 1; i < uint64(len(members)); i++ {
		if !same(members[i], truth.Members[i]) {
			t.Fatalf("seed %d, iteration %d: members %v, ledger %v", seed, i+1, truth.Members[i], members[i])
		}
		if !same(waiting[i], truth.Waiting[i]) {
			t.Fatalf("seed %d, iteration %d: waiting %v, ledger %v", seed, i+1, truth.Waiting[i], waiting[i])
		}
	}
}

func same[V comparable](a, b map[string]V) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// Whatever is lost, the parts of every account sum to its E2E, unexplained and slowdown signed as they are, the books of
// what is whole balance, and a full record makes everything right again.
func TestAnyLossIsSurvived(t *testing.T) {
	for seed := range uint64(40) {
		run, truth, err := scenario.Random(seed, 400, scenario.PlainCost)
		if err != nil {
			t.Fatal(err)
		}
		state := seed
		dropped := map[uint64]bool{}
		a, err := run.Assemble(func(f wire.Frame) bool {
			state = state*6364136223846793005 + 1442695040888963407
			drop := state>>60 == 0 && f.Sequence > 1 // one in sixteen
			dropped[f.Sequence] = drop
			return drop
		})
		if err != nil {
			t.Fatal(err)
		}
		b := a.Book()
		for _, v := range ledger.Check(b.Engines[0]) {
			if v.Invariant != 2 { // a lost introduction leaves a sequence without its prompt
				t.Errorf("seed %d: %v", seed, v)
			}
		}
		m, ok := account.Fit(b.Engines[0])
		for _, r := range b.Requests {
			var sum int64
			model := &m
			if !ok {
				model = nil
			}
			acc := account.Of(r, model, b.Now)
			for _, l := range acc.Lines {
				sum += l.NS
				if l.NS < 0 {
					t.Errorf("seed %d: %s is %d", seed, l.Part, l.NS)
				}
				var parts int64
				for _, s := range l.Splits {
					parts += s.NS
				}
				if len(l.Splits) > 0 && parts != l.NS && l.Part != account.Frontend {
					t.Errorf("seed %d: the splits of %s sum to %d, it is %d: %+v", seed, l.Part, parts, l.NS, l.Splits)
				}
			}
			if sum != acc.E2E() {
				t.Errorf("seed %d: parts sum to %d, E2E is %d", seed, sum, acc.E2E())
			}
		}
		_ = truth
	}
}

// After one lost decision, membership is right again from the next full record on at the latest.
func TestFullRecordRestores(t *testing.T) {
	for seed := range uint64(40) {
		run, truth, err := scenario.Random(seed, 400, scenario.PlainCost)
		if err != nil {
			t.Fatal(err)
		}
		lost := 65 + seed*2
		a, err := run.Assemble(func(f wire.Frame) bool {
			var m wire.Scheduled
			return f.Type == wire.TypeScheduled && wire.Decode(f, &m) == nil && m.Iteration == lost
		})
		if err != nil {
			t.Fatal(err)
		}
		b := a.Book()
		compare(t, seed, b.Engines[0], truth, (lost/64+1)*64+1)
	}
}

func BenchmarkAssemble(b *testing.B) {
	run, truth, err := scenario.Random(1, 20000, scenario.PlainCost)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := run.Assemble(nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(truth.Members))*float64(b.N)/b.Elapsed().Seconds(), "iterations/s")
}
