package scenario

import (
	"testing"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
)

// A steady engine's frames are a ledger without a hole: nothing is refused, every iteration is whole, every request that ended has an account
// of which little is unexplained.
func TestSteadyIsWhole(t *testing.T) {
	s := NewSteady(Load{Seed: 1, Replica: "r", Batch: 16, Output: 40, Iteration: 8 * time.Millisecond})
	for range 2000 {
		if err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	a := ingest.New()
	if err := s.Feed(a); err != nil {
		t.Fatal(err)
	}
	book := a.Book()
	for _, g := range append(book.Gaps, book.Engines[0].Gaps...) {
		t.Errorf("gap: %+v", g)
	}
	e := book.Engines[0]
	for i := range e.Iterations {
		if it := &e.Iterations[i]; !it.Complete() || it.Number > 20 && it.Members != 16 {
			t.Fatalf("iteration %+v", it)
		}
	}
	ended := 0
	for _, r := range book.Requests {
		if r.LastByte == 0 {
			continue
		}
		ended++
		q := r.Sequences[0]
		if q.Finished == 0 || q.Reason != ledger.FinishStop {
			t.Fatalf("%s: %+v", r.Name(), q)
		}
		acc := account.Of(r, nil, book.Now)
		if u := acc.Line(account.Unexplained).NS; u > acc.E2E()/50 {
			t.Fatalf("%s: %d of %d ns are unexplained", r.Name(), u, acc.E2E())
		}
	}
	if ended < 500 {
		t.Errorf("%d requests ended", ended)
	}
}
