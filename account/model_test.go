package account_test

import (
	"math"
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
)

func random(t testing.TB, seed uint64, n int, cost scenario.Cost) *ledger.Book {
	t.Helper()
	run, _, err := scenario.Random(seed, n, cost)
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The fit finds the coefficients that the run was made with.
func TestFitFindsTheCost(t *testing.T) {
	c := scenario.PlainCost
	m, ok := account.Fit(random(t, 7, 4000, c).Engines[0])
	if !ok {
		t.Fatal("no model")
	}
	for i, want := range map[int]float64{ledger.WorkIterations: c.Base, ledger.WorkPrefillTokens: c.PrefillToken, ledger.WorkDecodeSeqs: c.DecodeSeq, ledger.WorkLogprobRows: c.Logprob} {
		if got := m.Coefficients[i]; math.Abs(got-want) > 0.1*want {
			t.Errorf("%s: %.0f ns, made with %.0f", ledger.WorkNames[i], got, want)
		}
	}
	if m.All.Median > 1.5*c.Jitter || m.Held < 1000 {
		t.Errorf("median error %.3f on %d held-out iterations, jitter is %.3f", m.All.Median, m.Held, c.Jitter)
	}
}

// A stall of seconds among iterations of milliseconds must not bend the fit.
func TestFitIgnoresStalls(t *testing.T) {
	b := random(t, 7, 2000, scenario.PlainCost)
	e := b.Engines[0]
	clean, _ := account.Fit(e)
	var moved int64
	for k := range e.Iterations { // every fortieth iteration takes half a second longer
		it := &e.Iterations[k]
		it.Start += moved
		if k%40 == 5 {
			moved += 500e6
		}
		it.End += moved
	}
	stalled, ok := account.Fit(e)
	if !ok {
		t.Fatal("no model")
	}
	for i := range clean.Coefficients {
		a, b := clean.Coefficients[i], stalled.Coefficients[i]
		if a > 0 && math.Abs(a-b) > 0.15*a && math.Abs(a-b) > 1000 {
			t.Errorf("%s: %.0f ns without the stalls, %.0f with them", ledger.WorkNames[i], a, b)
		}
	}
}

func TestTooFewIterationsGiveNoModel(t *testing.T) {
	if _, ok := account.Fit(random(t, 1, account.MinRows/2, scenario.PlainCost).Engines[0]); ok {
		t.Error("a model was fitted on too few iterations")
	}
}

// Iteration time shared out to the members sums to the iteration's time (invariant 6).
func TestSharesSumToTheIteration(t *testing.T) {
	e := random(t, 3, 600, scenario.PlainCost).Engines[0]
	m, _ := account.Fit(e)
	for _, model := range []*account.Model{&m, nil} {
		for k := range e.Iterations {
			it := &e.Iterations[k]
			members := account.Members(e, model, it.Number)
			if len(members) != int(it.Members) {
				t.Fatalf("iteration %d: %d members listed, %d scheduled", it.Number, len(members), it.Members)
			}
			var sum float64
			for _, k := range members {
				sum += k.Share
			}
			if len(members) > 0 && math.Abs(sum-float64(it.Duration())) > 1 {
				t.Fatalf("iteration %d: shares sum to %.0f ns, it took %d", it.Number, sum, it.Duration())
			}
		}
	}
}

// For every request of every run the parts sum to E2E exactly, only slowdown is negative, and the splits sum to their part.
func TestPartsAlwaysSum(t *testing.T) {
	for seed := range uint64(20) {
		b := random(t, seed, 500, scenario.PlainCost)
		m, ok := account.Fit(b.Engines[0])
		if !ok {
			t.Fatal("no model")
		}
		for _, r := range b.Requests {
			a := account.Of(r, &m, b.Now)
			var sum int64
			for _, l := range a.Lines {
				sum += l.NS
				var splits int64
				for _, s := range l.Splits {
					splits += s.NS
					if s.NS < 0 && s.Name != account.SplitSlowdown {
						t.Errorf("seed %d, %s: %s of %s is %d ns", seed, r.Sequences[0].ID, s.Name, l.Part, s.NS)
					}
				}
				if len(l.Splits) > 0 && splits != l.NS {
					t.Errorf("seed %d, %s: splits of %s sum to %d ns, it is %d: %+v", seed, r.Sequences[0].ID, l.Part, splits, l.NS, l.Splits)
				}
			}
			if sum != a.E2E() {
				t.Errorf("seed %d, %s: parts sum to %d ns, E2E is %d", seed, r.Sequences[0].ID, sum, a.E2E())
			}
			if u := a.Line(account.Unexplained).NS; u != 0 && a.State == account.Finished && a.Tail.Reason != ledger.FinishAbort {
				t.Errorf("seed %d, %s: %d ns unexplained in a whole run", seed, r.Sequences[0].ID, u)
			}
		}
	}
}

// The marginal cost of a member is the modelled time with it minus without it: its own work, whoever else is there.
func TestMarginalIsWithMinusWithout(t *testing.T) {
	e := random(t, 5, 600, scenario.PlainCost).Engines[0]
	m, _ := account.Fit(e)
	for n := uint64(100); n < 110; n++ {
		all := m.Predict(account.WorkOf(e, e.Row(n)))
		for _, k := range account.Members(e, &m, n) {
			var without ledger.Work
			for s := range e.Overlapping(n, n) {
				if s.Seq != k.Seq {
					without = without.Add(ledger.MemberWork(s, n, n))
				}
			}
			without[ledger.WorkIterations] = 1
			if d := all - m.Predict(without); math.Abs(d-k.Marginal) > 1 {
				t.Errorf("iteration %d, %s: with minus without is %.0f ns, marginal says %.0f", n, k.Seq.ID, d, k.Marginal)
			}
		}
	}
}

func TestOddIterationIsFoundAtOnce(t *testing.T) {
	b := random(t, 9, 400, scenario.PlainCost)
	e := b.Engines[0]
	if odd := account.FindOdd(e, nil); len(odd) != 0 {
		t.Fatalf("%d odd iterations in a quiet run", len(odd))
	}
	m, _ := account.Fit(e)
	it := e.Row(200)
	for k := range e.Iterations[199:] {
		later := &e.Iterations[199+k]
		if later.Number > 200 {
			later.Start += 2e9
		}
		later.End += 2e9
	}
	odd := account.FindOdd(e, &m)
	if len(odd) != 1 || odd[0].Iteration != it || math.Abs(odd[0].Excess-2e9) > 20e6 {
		t.Fatalf("odd: %+v", odd)
	}
	if len(odd[0].Members) != int(it.Members) {
		t.Errorf("%d members named of %d", len(odd[0].Members), it.Members)
	}
}

func TestStatementsDifferByTheChange(t *testing.T) {
	as := func(seed uint64, cost scenario.Cost) (out []*account.Account) {
		b := random(t, seed, 300, cost)
		for _, r := range b.Requests {
			out = append(out, account.Of(r, nil, b.Now))
		}
		return out
	}
	slow := scenario.PlainCost
	slow.Base *= 3
	d := account.StatementOf(as(2, slow)).Sub(account.StatementOf(as(2, scenario.PlainCost)))
	var sum int64
	for _, p := range d.Parts {
		sum += p.NS
	}
	if diff := sum - d.E2E; diff > int64(len(account.Parts)) || diff < -int64(len(account.Parts)) {
		t.Errorf("parts of the difference sum to %d ns, E2E changed by %d", sum, d.E2E)
	}
	if d.E2E <= 0 {
		t.Errorf("a slower engine made requests %d ns faster", -d.E2E)
	}
}

// The cost of an account grows with the number of stints, not with the number of tokens.
func BenchmarkAccount(b *testing.B) {
	for _, tokens := range []int{100, 1000, 10000} {
		b.Run("tokens="+itoa(tokens), func(b *testing.B) { benchmarkAccount(b, tokens, 1) })
	}
	for _, stints := range []int{2, 8, 32} {
		b.Run("stints="+itoa(stints), func(b *testing.B) { benchmarkAccount(b, 4096, stints/2) })
	}
}
