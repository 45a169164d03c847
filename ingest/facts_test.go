package ingest_test

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// told assembles one scheduler's messages.
func told(t *testing.T, depth int, messages ...wire.Message) *ledger.Book {
	t.Helper()
	a := ingest.New()
	id, err := a.Source(wire.Source{Name: "ring"})
	if err != nil {
		t.Fatal(err)
	}
	hello := &wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Role: "engine", Thread: "scheduler", Depth: depth,
		Clock: [3]int64{1, 1, 1}, Engine: wire.Engine{Name: "vllm", Replica: "e", Incarnation: "i"}}
	feed(t, a, id, append([]wire.Message{hello}, messages...))
	b := a.Book()
	noGaps(t, b)
	if len(b.Engines) != 1 {
		t.Fatalf("%d engines", len(b.Engines))
	}
	return b
}

// feed gives a source's messages to an assembler, numbered from 1.
func feed(t *testing.T, a *ingest.Assembler, source uint16, messages []wire.Message) {
	t.Helper()
	for n, m := range messages {
		raw, err := wire.Append(nil, uint64(n+1), m)
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := wire.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Frame(source, f); err != nil {
			t.Fatal(err)
		}
	}
}

func decision(n uint64, at int64, tokens uint32, more wire.Scheduled) *wire.Scheduled {
	more.Time, more.Returned, more.Iteration, more.Tokens, more.Members, more.Running, more.Digest = at, at+1, n, tokens, 1, 1, wire.Digest(1)
	return &more
}

func completion(n uint64, at int64, tokens uint32, emits ...wire.Emit) *wire.Done {
	return &wire.Done{Time: at, Returned: at + 1, Iteration: n, Tokens: tokens, Emits: emits}
}

// Two decisions in flight with drafts: what is rejected in the first is no context of the second, which was decided before anybody knew.
func TestRejectedDraftsAreNoContext(t *testing.T) {
	b := told(t, 2,
		&wire.Queued{Time: 1, Handle: 1, Prompt: 10, Max: 50, N: 1, Logprobs: -1, PromptLogprobs: -1, ID: "a"},
		decision(1, 10, 10, wire.Scheduled{Joins: []wire.Join{{Handle: 1, Tokens: 10, Total: 10, Kind: wire.JoinNew}}}),
		completion(1, 20, 1),
		decision(2, 30, 4, wire.Scheduled{Changes: []wire.Change{{Handle: 1, Tokens: 4}}, Drafts: []wire.Draft{{Handle: 1, Tokens: 3}}}),
		decision(3, 40, 4, wire.Scheduled{Drafts: []wire.Draft{{Handle: 1, Tokens: 3}}}),
		completion(2, 50, 2, wire.Emit{Handle: 1, Tokens: 2}), // one draft of three was right
		decision(4, 60, 1, wire.Scheduled{Changes: []wire.Change{{Handle: 1, Tokens: 1}}}),
		completion(3, 70, 1), // none was right: the rule, so it is not listed
		completion(4, 80, 1),
	)
	q := b.Engines[0].Sequences[0]
	if len(q.Stints) != 2 {
		t.Fatalf("stints %+v", q.Stints)
	}
	s := q.Stints[1]
	if s.Phase != ledger.Decode || s.First != 2 || s.Last != 4 || s.Before != 10 || !slices.Equal(s.Tokens, []uint32{4, 4, 1}) ||
		!slices.Equal(s.Drafts, []uint16{3, 3}) || !slices.Equal(s.Rejected, []uint16{2, 3}) {
		t.Errorf("decode %+v", s)
	}
	if d, r := s.DraftsIn(4); d != 0 || r != 0 {
		t.Errorf("iteration 4 has %d drafts, %d rejected", d, r)
	}
	if q.Output != 5 || q.LastEmit != 4 {
		t.Errorf("output %d, last in %d", q.Output, q.LastEmit)
	}
	for n := uint64(2); n <= 4; n++ { // the running sums are made of the same
		e := b.Engines[0]
		sum, own := e.Row(n).Sums.Sub(e.Row(n-1).Sums).Work, ledger.MemberWork(&s, n, n)
		own[ledger.WorkIterations] = 1
		if sum != own {
			t.Errorf("iteration %d: its work %v, of its only member %v", n, sum, own)
		}
	}
	if d, r := q.Drafted(); d != 6 || r != 5 {
		t.Errorf("%d drafts, %d rejected", d, r)
	}
	if m := account.Members(b.Engines[0], nil, 4); len(m) != 1 || m[0].Before != 10+2+1 || m[0].Drafts != 0 {
		t.Errorf("members of iteration 4: %+v", m)
	}
	if w := ledger.MemberWork(&s, 4, 4); w[ledger.WorkDecodeContext] != 10+2+1 {
		t.Errorf("context of iteration 4: %v", w[ledger.WorkDecodeContext])
	}
}

// A streaming session's further chunk is no new request: its prompt grows, and what it had emitted is prompt.
func TestSessionGoesOn(t *testing.T) {
	b := told(t, 1,
		&wire.Arrived{Time: 1, ID: "s"},
		&wire.Queued{Time: 1, Handle: 1, Prompt: 8, Max: 2, N: 1, Logprobs: -1, PromptLogprobs: -1, Features: ledger.FeatureStreaming, ID: "s"},
		decision(1, 10, 8, wire.Scheduled{Joins: []wire.Join{{Handle: 1, Tokens: 8, Total: 8, Kind: wire.JoinNew}}}),
		completion(1, 20, 1),
		decision(2, 30, 1, wire.Scheduled{Changes: []wire.Change{{Handle: 1, Tokens: 1}}}),
		completion(2, 40, 1),
		&wire.Arrived{Time: 41, ID: "s"},
		&wire.Queued{Time: 41, Update: true, Handle: 1, Prompt: 5, Max: 2, N: 1, Logprobs: -1, PromptLogprobs: -1, Features: ledger.FeatureStreaming, ID: "s"},
		decision(3, 50, 5, wire.Scheduled{Joins: []wire.Join{{Handle: 1, Tokens: 5, Before: 9, Total: 14, Kind: wire.JoinSession}}}),
		&wire.Done{Time: 60, Returned: 61, Iteration: 3, Tokens: 1, Finishes: []wire.Finish{{Handle: 1, Reason: ledger.FinishLength, Output: 3}}},
	)
	e := b.Engines[0]
	if len(e.Sequences) != 1 || len(b.Requests) != 1 {
		t.Fatalf("%d sequences, %d requests", len(e.Sequences), len(b.Requests))
	}
	q := e.Sequences[0]
	if q.Arrived != 1 || q.Prompt != 14 || q.Output != 3 || q.FirstEmit != 1 || q.LastEmit != 3 {
		t.Errorf("arrived %d, prompt %d, output %d, first in %d, last in %d", q.Arrived, q.Prompt, q.Output, q.FirstEmit, q.LastEmit)
	}
	var phases []ledger.Phase
	for _, s := range q.Stints {
		phases = append(phases, s.Phase)
	}
	if !slices.Equal(phases, []ledger.Phase{ledger.Prefill, ledger.Decode, ledger.Prefill}) {
		t.Errorf("phases %v", phases)
	}
}

// A reset throws the first token away while the next is on its way: that one is the first.
func TestFirstTokenThrownAway(t *testing.T) {
	b := told(t, 2,
		&wire.Queued{Time: 1, Handle: 1, Prompt: 4, Max: 9, N: 1, Logprobs: -1, PromptLogprobs: -1, ID: "a"},
		decision(1, 10, 4, wire.Scheduled{Joins: []wire.Join{{Handle: 1, Tokens: 4, Total: 4, Kind: wire.JoinNew}}}),
		decision(2, 20, 1, wire.Scheduled{Changes: []wire.Change{{Handle: 1, Tokens: 1}}}),
		completion(1, 30, 0, wire.Emit{Handle: 1, Discarded: 1}),
		completion(2, 40, 1),
	)
	if q := b.Engines[0].Sequences[0]; q.FirstEmit != 2 || q.LastEmit != 2 || q.Output != 1 {
		t.Errorf("first in %d, last in %d, output %d", q.FirstEmit, q.LastEmit, q.Output)
	}
}

// What was lost in the middle of a prefill is computed again; what follows is prefill like any other.
func TestRecomputeEndsWhereThePrefillHadBeen(t *testing.T) {
	b := told(t, 1,
		&wire.Queued{Time: 1, Handle: 1, Prompt: 30, Max: 9, N: 1, Logprobs: -1, PromptLogprobs: -1, ID: "a"},
		decision(1, 10, 10, wire.Scheduled{Joins: []wire.Join{{Handle: 1, Tokens: 10, Total: 30, Kind: wire.JoinNew}}}),
		completion(1, 20, 0),
		decision(2, 30, 10, wire.Scheduled{
			Joins:       []wire.Join{{Handle: 1, Tokens: 10, Total: 30, Kind: wire.JoinResumed}},
			Preemptions: []wire.Preemption{{Victim: 1, Lost: 10, Cause: wire.CauseReset}}}),
		completion(2, 40, 0),
		decision(3, 50, 10, wire.Scheduled{}),
		completion(3, 60, 0),
		decision(4, 70, 10, wire.Scheduled{}),
		completion(4, 80, 1),
	)
	var got []ledger.Phase
	for _, s := range b.Engines[0].Sequences[0].Stints {
		for range s.Last - s.First + 1 {
			got = append(got, s.Phase)
		}
	}
	if !slices.Equal(got, []ledger.Phase{ledger.Prefill, ledger.Recompute, ledger.Prefill, ledger.Prefill}) {
		t.Errorf("phases %v", got)
	}
}

// An eviction names whoever used the blocks last, also when that is over.
func TestEvictionNamesItsLastUser(t *testing.T) {
	b := told(t, 1,
		&wire.Queued{Time: 1, Handle: 1, Prompt: 10, Max: 1, N: 1, Logprobs: -1, PromptLogprobs: -1, ID: "a"},
		decision(1, 10, 10, wire.Scheduled{Joins: []wire.Join{{Handle: 1, Tokens: 10, Total: 10, Kind: wire.JoinNew}}}),
		&wire.Done{Time: 20, Returned: 21, Iteration: 1, Tokens: 1, Finishes: []wire.Finish{{Handle: 1, Reason: ledger.FinishLength, Output: 1}}},
		&wire.Cache{Time: 30, Kind: wire.CacheEvicted, Handle: 1, Blocks: 2, Hashes: []uint64{7, 8}},
		&wire.Cache{Time: 30, Kind: wire.CacheEvicted, Blocks: 1, Hashes: []uint64{9}},
	)
	e := b.Engines[0]
	want := []ledger.Eviction{{Iteration: 2, At: 30, Seq: e.Sequences[0], Blocks: 2}, {Iteration: 2, At: 30, Blocks: 1}}
	if !slices.Equal(e.Evictions, want) {
		t.Errorf("evictions %+v", e.Evictions)
	}
}

// Labels come with the headers and with what the request itself says; what was said first stays.
func TestLabelsAddUp(t *testing.T) {
	a := ingest.New()
	id, err := a.Source(wire.Source{Name: "ring"})
	if err != nil {
		t.Fatal(err)
	}
	for n, m := range []wire.Message{
		&wire.Received{Time: 1, HTTP: 1, RequestID: "r"},
		&wire.Labels{Time: 1, HTTP: 1, Class: 7},
		&wire.Labels{Time: 2, HTTP: 1, Tenant: 9},
	} {
		raw, err := wire.Append(nil, uint64(n+1), m)
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := wire.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Frame(id, f); err != nil {
			t.Fatal(err)
		}
	}
	b := a.Book()
	if len(b.Requests) != 1 || b.Requests[0].Labels != (ledger.Labels{Tenant: 9, Class: 7}) {
		t.Errorf("requests %+v", b.Requests)
	}
}

// Ranks write rings of their own: what they say belongs to the iteration, whichever ring is read first.
func TestStepsBelongToTheirIteration(t *testing.T) {
	scheduler := []wire.Message{
		&wire.Queued{Time: 1, Handle: 1, Prompt: 10, Max: 1, N: 1, Logprobs: -1, PromptLogprobs: -1, ID: "a"},
		decision(1, 10, 10, wire.Scheduled{Joins: []wire.Join{{Handle: 1, Tokens: 10, Total: 10, Kind: wire.JoinNew}}}),
		completion(1, 30, 1),
	}
	ranks := [][]wire.Message{
		{&wire.Step{Time: 12, Returned: 20, Iteration: 1, Rank: 0, Padded: 16, Mode: 3, Device: 7, Peak: 100}},
		{&wire.Step{Time: 12, Returned: 25, Iteration: 1, Rank: 1, Padded: 16, Mode: 1, Eager: 1, Device: 6, Wait: 2}},
	}
	want := ledger.Execution{Ranks: 2, Slowest: 1, Host: 13, Device: 7, Wait: 2, Peak: 100, Padded: 16, Graph: ledger.GraphNone, Eager: true}
	for _, order := range [][]int{{0, 1, 2}, {1, 2, 0}, {1, 0, 2}} {
		a := ingest.New()
		for _, k := range order {
			hello := &wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Role: "worker", Thread: "main", Depth: 1, Clock: [3]int64{1, 1, 1},
				Engine: wire.Engine{Name: "vllm", Replica: "e", Incarnation: "i"}}
			messages := scheduler
			if k > 0 {
				messages = ranks[k-1]
			} else {
				hello.Role, hello.Thread = "engine", "scheduler"
			}
			id, err := a.Source(wire.Source{Name: string(rune('a' + k))})
			if err != nil {
				t.Fatal(err)
			}
			feed(t, a, id, append([]wire.Message{hello}, messages...))
		}
		b := a.Book()
		noGaps(t, b)
		if x := b.Engines[0].Row(1).Execution; x == nil || *x != want {
			t.Errorf("order %v: %+v", order, x)
		}
	}
}
