package ingest_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// A book that is looked at again and again while it grows, and whose old part is let go now and then, gives every request
// the same account in the end as one that was read in one go.
func TestLiveBookEqualsTheWhole(t *testing.T) {
	for seed := range uint64(20) {
		run, _, err := scenario.Random(seed, 600, scenario.PlainCost)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := run.Book()
		if err != nil {
			t.Fatal(err)
		}
		m, _ := account.Fit(whole.Engines[0])
		want := accounts(whole, &m)

		rng := rand.New(rand.NewPCG(seed, 2))
		a := ingest.New()
		got := map[string][]account.Line{}
		var id uint16
		if id, err = a.Source(wire.Source{Name: run.Engine.Name, Hello: run.Engine.HelloJSON()}); err != nil {
			t.Fatal(err)
		}
		for _, raw := range run.Engine.Frames {
			f, _, err := wire.ParseFrame(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Frame(id, f); err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(200) {
			case 0:
				a.Live()
			case 1:
				b := a.Live()
				if len(b.Engines) == 0 {
					continue
				}
				e := b.Engines[0]
				through := e.Completed()
				for _, r := range b.Requests { // what is let go has its last account now
					if q := r.Sequences[0]; ingest.Sealable(q, through) {
						got[q.ID] = account.Of(r, &m, b.Now).Lines
					}
				}
				a.Forget(e.ID, through)
			}
		}
		b := a.Live()
		if v := ledger.Check(b.Engines[0]); len(v) != 0 && b.Engines[0].First == 1 {
			t.Errorf("seed %d: %v", seed, v)
		}
		for id, lines := range accounts(b, &m) {
			got[id] = lines
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d accounts, want %d", seed, len(got), len(want))
		}
		for id, lines := range want {
			if !reflect.DeepEqual(got[id], lines) {
				t.Fatalf("seed %d, %s:\nlive  %+v\nwhole %+v", seed, id, got[id], lines)
			}
		}
		if b.Engines[0].First == 1 {
			t.Errorf("seed %d: nothing was ever let go", seed)
		}
	}
}

func accounts(b *ledger.Book, m *account.Model) map[string][]account.Line {
	out := map[string][]account.Line{}
	for _, r := range b.Requests {
		out[r.Sequences[0].ID] = account.Of(r, m, b.Now).Lines
	}
	return out
}

// A front end that is read after its engine claims its sequences all the same.
func TestLateFrontEndClaimsItsSequences(t *testing.T) {
	run, err := scenario.Parse(pair)
	if err != nil {
		t.Fatal(err)
	}
	a := ingest.New()
	feed := func(s *scenario.Source) {
		id, err := a.Source(wire.Source{Name: s.Name, Hello: s.HelloJSON()})
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range s.Frames {
			f, _, _ := wire.ParseFrame(raw)
			if err := a.Frame(id, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	feed(run.Engine)
	if b := a.Live(); len(b.Requests) != 2 || b.Requests[0].Received != 0 {
		t.Fatalf("%d requests from the engine alone", len(b.Requests))
	}
	feed(run.Front)
	feed(run.Input)
	b := a.Live()
	if len(b.Requests) != 2 {
		t.Fatalf("%d requests, want 2", len(b.Requests))
	}
	if q := request(t, b, "r1").Sequences; len(q) != 1 || q[0].Output != 4 {
		t.Errorf("r1 has %d sequences", len(q))
	}
}

// Who lives long keeps the iterations that he lived through and knows who sat beside him; the requests of those who are over are let go.
func TestForgetBesideALongLife(t *testing.T) {
	run, err := scenario.Parse(`engine vllm depth=1 max_num_seqs=8
0ms queue long prompt=4
1..5ms iter long:4
5ms queue a prompt=4
6..10ms iter long a:4
10..14ms iter long a end=a:length
14..18ms iter long
18..22ms iter long`)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Assemble(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := a.Live().Engines[0]
	a.Forget(e.ID, 4)
	b := a.Live()
	if len(b.Requests) != 1 || !b.Requests[0].Sequences[0].Live() || len(b.Engines[0].Sequences) != 2 {
		t.Errorf("%d requests and %d sequences are left, want the one that lives, and who sat beside it", len(b.Requests), len(b.Engines[0].Sequences))
	}
	if got := b.Engines[0].First; got != 1 {
		t.Errorf("iterations are there from %d on, want all that it lived through", got)
	}
	a.Forget(e.ID, 4) // once more: who is let go holds nothing
	a.Abandon(scenario.Epoch, 0, nobody)
	a.Forget(e.ID, 5)
	if b := a.Live(); len(b.Requests) != 0 || len(e.Sequences) != 0 || len(e.Iterations) != 0 {
		t.Errorf("%d requests, %d sequences and %d iterations are left when nobody lives", len(b.Requests), len(e.Sequences), len(e.Iterations))
	}
}
