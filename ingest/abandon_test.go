package ingest_test

import (
	"testing"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// nobody is known to live.
func nobody(ledger.EngineID) bool { return false }

// An engine that dies at any moment leaves sequences that never end. Once it has been silent for long they are over, their books balance, and
// all of it can be let go.
func TestWhatADeadEngineLeavesIsOverAndLetGo(t *testing.T) {
	for seed := range uint64(20) {
		run, _, err := scenario.Random(seed, 300, scenario.PlainCost)
		if err != nil {
			t.Fatal(err)
		}
		run.Engine.Frames = run.Engine.Frames[:len(run.Engine.Frames)*int(seed+1)/21]
		a, err := run.Assemble(nil)
		if err != nil {
			t.Fatal(err)
		}
		before := a.Live()
		alive, requests := 0, len(before.Requests)
		for _, q := range before.Engines[0].Sequences {
			if q.Finished == 0 {
				alive++
			}
		}
		if alive == 0 {
			t.Fatalf("seed %d: nobody was alive", seed)
		}
		at := before.Now + int64(24*time.Hour) // its records may be as old as they like
		a.Abandon(at, time.Hour, nobody)
		a.Abandon(at+int64(59*time.Minute), time.Hour, nobody)
		a.Abandon(at+int64(2*time.Hour), time.Hour, func(id ledger.EngineID) bool { return id == before.Engines[0].ID })
		for _, q := range a.Live().Engines[0].Sequences {
			if q.Reason == ledger.FinishLost {
				t.Fatalf("seed %d: %s was given up while its engine lived", seed, q.ID)
			}
		}
		a.Abandon(at+int64(2*time.Hour), time.Hour, nobody)
		b := a.Live()
		e := b.Engines[0]
		if v := ledger.Check(e); len(v) != 0 {
			t.Errorf("seed %d: %v", seed, v)
		}
		lost := 0
		for _, q := range e.Sequences {
			if q.Reason == ledger.FinishLost {
				lost++
			}
			if !ingest.Sealable(q, e.Completed()) {
				t.Fatalf("seed %d: %s is not over: %+v", seed, q.ID, q)
			}
			acc := account.Of(q.Request, nil, b.Now)
			var sum int64
			for _, l := range acc.Lines {
				sum += l.NS
			}
			if sum != acc.E2E() || acc.State != account.Finished {
				t.Fatalf("seed %d, %s: parts sum to %d of %d, %s", seed, q.ID, sum, acc.E2E(), acc.State)
			}
		}
		if lost != alive {
			t.Errorf("seed %d: %d were alive, %d are lost", seed, alive, lost)
		}
		if gone := a.ForgetIf(e.ID, e.Completed(), func(*ledger.Sequence) bool { return true }); len(gone) != requests || len(a.Live().Requests) != 0 || len(e.Iterations) != 0 {
			t.Errorf("seed %d: %d of %d requests are gone, %d requests and %d iterations are left", seed, len(gone), requests, len(a.Live().Requests), len(e.Iterations))
		}
		if gone := a.Retire(at+int64(2*time.Hour), time.Hour, nobody); len(gone) != 1 || len(a.Live().Engines) != 0 {
			t.Errorf("seed %d: the engine is still listed", seed)
		}
	}
}

// What no engine took up is over when its exchange is; what a front end or a client alone spoke of does not stay for ever.
func TestUnservedRequests(t *testing.T) {
	run, err := scenario.Parse(`
engine vllm depth=1
0ms http refused
1ms last refused
0ms http hanging
0ms http served
1ms submit served prompt=4
2ms arrive served
3ms queue served prompt=4
3..8ms iter served:4 end=served:stop
0..70ms client nobody first=62ms class=short
`)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Assemble(nil)
	if err != nil {
		t.Fatal(err)
	}
	over := func() map[string]bool {
		out := map[string]bool{}
		for _, r := range a.Live().Requests {
			out[r.Name()] = ingest.Unserved(r)
		}
		return out
	}
	for name, want := range map[string]bool{"refused": true, "hanging": false, "served": false} {
		if got, known := over()[name]; !known || got != want {
			t.Errorf("%s: unserved and over %v, known %v", name, got, known)
		}
	}
	a.Abandon(scenario.Epoch+int64(time.Minute), time.Minute, nobody)
	a.Abandon(scenario.Epoch+int64(2*time.Minute), time.Minute, nobody)
	for name, want := range map[string]bool{"refused": true, "hanging": true, "served": false, "nobody": true} {
		if got, known := over()[name]; !known || got != want {
			t.Errorf("%s, given up: unserved and over %v, known %v", name, got, known)
		}
	}
	for _, r := range a.Live().Requests {
		if r.Name() == "served" {
			if r.LastByte != scenario.Epoch+8e6 || r.End != ledger.EndUnknown || !ingest.Sealable(r.Sequences[0], 1) {
				t.Errorf("an exchange whose end is lost ends with what is known of it: %+v", r)
			}
		}
	}
	var gone []*ledger.Request
	for _, r := range a.Live().Requests {
		if ingest.Unserved(r) {
			gone = append(gone, r)
		}
	}
	a.ForgetUnserved(gone)
	if left := a.Live().Requests; len(left) != 1 || left[0].Name() != "served" {
		t.Errorf("%d requests are left", len(left))
	}
}

// A sequence whose end was lost is over when its scheduler has not named it for thousands of iterations, however busy the engine is.
func TestASequenceThatIsNotNamedAnyMoreIsOver(t *testing.T) {
	run, err := scenario.Parse(`
engine vllm depth=1
0ms queue ghost prompt=4
0ms queue alive prompt=4
1ms x9000 1ms iter alive
`)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Assemble(func(f wire.Frame) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	a.Live()
	a.Abandon(scenario.Epoch, time.Hour, nobody)
	if n := len(a.Live().Engines[0].Sequences); n != 2 {
		t.Fatalf("%d sequences", n)
	}
	for _, q := range a.Live().Engines[0].Sequences {
		switch {
		case q.External == "cmpl-ghost-0" && (q.Reason != ledger.FinishLost || q.Finished == 0):
			t.Errorf("it is still alive: %+v", q)
		case q.External != "cmpl-ghost-0" && q.Finished != 0:
			t.Errorf("%s was given up: %+v", q.ID, q)
		}
	}
}
