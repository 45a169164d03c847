package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// book is a run of two sequences: b waits for blocks behind nobody, is admitted, preempts nobody, and is preempted by a.
func book(t *testing.T) *ledger.Book {
	t.Helper()
	a := ingest.New()
	id, err := a.Source(wire.Source{Name: "ring"})
	if err != nil {
		t.Fatal(err)
	}
	none := int16(wire.LogprobsNone)
	for n, m := range []wire.Message{
		&wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Role: "engine", Thread: "scheduler", Depth: 1, Clock: [3]int64{1, 1, 1},
			Engine: wire.Engine{Name: "vllm", Replica: "e", Incarnation: "i"}},
		&wire.Queued{Time: 1, Handle: 1, Prompt: 20, Max: 3, N: 1, Logprobs: none, PromptLogprobs: none, ID: "a"},
		&wire.Queued{Time: 2, Handle: 2, Prompt: 30, Max: 9, N: 1, Logprobs: none, PromptLogprobs: none, ID: "b"},
		&wire.Scheduled{Time: 10, Returned: 11, Iteration: 1, Alias: 1, Tokens: 20, Members: 1, Running: 1, Waiting: 1, Free: 4, Digest: wire.Digest(1),
			Head: 2, Need: 5, Stop: ledger.SkipKVBlocks, Joins: []wire.Join{{Handle: 1, Tokens: 20, Total: 20, Kind: wire.JoinNew}}},
		&wire.Done{Time: 20, Returned: 21, Iteration: 1, Tokens: 1},
		&wire.Scheduled{Time: 30, Returned: 31, Iteration: 2, Alias: 2, Tokens: 17, Members: 2, Running: 2, Free: 1, Digest: wire.Digest(1) ^ wire.Digest(2),
			Changes: []wire.Change{{Handle: 1, Tokens: 3}}, Drafts: []wire.Draft{{Handle: 1, Tokens: 2}},
			Joins: []wire.Join{{Handle: 2, Tokens: 14, Before: 16, Cached: 16, Total: 30, Kind: wire.JoinNew}}},
		&wire.Done{Time: 40, Returned: 41, Iteration: 2, Tokens: 1, Emits: []wire.Emit{{Handle: 2, Tokens: 0, Discarded: 1}}},
		&wire.Scheduled{Time: 50, Returned: 51, Iteration: 3, Alias: 3, Tokens: 1, Members: 1, Running: 1, Waiting: 1, Free: 3, Digest: wire.Digest(1),
			Stop: ledger.SkipPreemptionStep, Leaves: []uint32{2}, Changes: []wire.Change{{Handle: 1, Tokens: 1}},
			Preemptions: []wire.Preemption{{Victim: 2, Preemptor: 1, Lost: 30, Free: 0, Blocks: 2, Cause: wire.CauseKVBlocks}}},
		&wire.Done{Time: 60, Returned: 61, Iteration: 3, Tokens: 1, Finishes: []wire.Finish{{Handle: 1, Reason: ledger.FinishLength, Output: 3}}},
		&wire.Finished{Time: 70, Finish: wire.Finish{Handle: 2, Reason: ledger.FinishAbort}},
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
	return a.Book()
}

const truth = `{"e":"run"}
{"e":"queued","id":"a","prompt":20,"max":3}
{"e":"queued","id":"b","prompt":30,"max":9}
{"e":"scheduled","n":1,"alias":1,"running":1,"waiting":1,"free":4,"members":{"a":[20,0,20,20]},"new":{"a":0},"waits":["b"],"reasons":{"b":[3,0]},"head":"b","need":5}
{"e":"done","n":1,"emitted":{"a":1},"discarded":0}
{"e":"scheduled","n":2,"alias":2,"running":2,"waiting":0,"free":1,"members":{"a":[3,20,21,20],"b":[14,16,30,30]},"new":{"b":16},"drafts":{"a":2},"waits":[],"head":"","reasons":{}}
{"e":"done","n":2,"emitted":{"a":1},"discarded":1,"rejected":{"a":2}}
{"e":"scheduled","n":3,"alias":3,"running":1,"waiting":1,"free":3,"members":{"a":[1,21,22,20]},"preempted":[{"victim":"b","lost":30,"output":0,"by":"a","free":0,"blocks":2}],"waits":["b"],"reasons":{"b":[5,0]},"head":""}
{"e":"done","n":3,"emitted":{"a":1},"discarded":0,"finished":{"a":[2,3]}}
{"e":"finished","id":"b","reason":3,"output":0}
{"e":"end","iterations":3,"traced":3}`

func parse(t *testing.T, text string) []line {
	t.Helper()
	var all []line
	for _, s := range strings.Split(text, "\n") {
		var l line
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		all = append(all, l)
	}
	return all
}

func TestTruthAndLedgerAgree(t *testing.T) {
	c := compare(book(t), parse(t, truth))
	if c.count != 0 || c.iterations != 3 || c.reasons[ledger.SkipKVBlocks] != 1 || c.reasons[ledger.SkipPreemptionStep] != 1 {
		t.Errorf("%d differences %v, %d iterations, reasons %v", c.count, c.differences, c.iterations, c.reasons)
	}
}

// Whatever the truth says otherwise is a difference.
func TestEachDifferenceIsFound(t *testing.T) {
	for _, change := range [][2]string{
		{`"id":"b","prompt":30,"max":9`, `"id":"b","prompt":30,"max":8`},
		{`"prompt":20,"max":3`, `"prompt":20,"max":3,"priority":1`},
		{`"a":[20,0,20,20]`, `"a":[19,0,20,20]`},
		{`"b":[14,16,30,30]`, `"b":[14,15,30,30]`},
		{`"a":[3,20,21,20]`, `"a":[3,20,21,21]`}, // its phase and its prompt
		{`"members":{"a":[3,20,21,20],"b":[14,16,30,30]}`, `"members":{"a":[3,20,21,20]}`},
		{`"running":2,"waiting":0`, `"running":3,"waiting":0`},
		{`"running":2,"waiting":0`, `"running":2,"waiting":1`},
		{`"free":4`, `"free":5`},
		{`"n":1,"alias":1`, `"n":1,"alias":7`},
		{`"new":{"b":16}`, `"new":{"b":0}`},
		{`"drafts":{"a":2}`, `"drafts":{"a":1}`},
		{`"rejected":{"a":2}`, `"rejected":{"a":1}`},
		{`"b":[3,0]`, `"b":[1,0]`},
		{`"b":[5,0]`, `"b":[15,2]`},
		{`"waits":["b"],"reasons":{"b":[3,0]}`, `"waits":[],"reasons":{}`},
		{`"waits":[],"head":"","reasons":{}`, `"waits":["c"],"head":"","reasons":{"c":[1,0]}`},
		{`"head":"b"`, `"head":"a"`},
		{`"need":5`, `"need":6`},
		{`"victim":"b","lost":30`, `"victim":"b","lost":29`},
		{`"victim":"b","lost":30`, `"victim":"a","lost":30`},
		{`"output":0,"by":"a"`, `"output":1,"by":"a"`},
		{`"by":"a"`, `"by":"b"`},
		{`"free":0,"blocks":2`, `"free":1,"blocks":2`},
		{`"free":0,"blocks":2`, `"free":0,"blocks":3`},
		{`"blocks":2}`, `"blocks":2,"reset":true}`},
		{`"emitted":{"a":1},"discarded":1`, `"emitted":{"a":2},"discarded":1`},
		{`"discarded":1`, `"discarded":0`},
		{`"finished":{"a":[2,3]}`, `"finished":{"a":[1,3]}`},
		{`"reason":3`, `"reason":4`},
		{`"iterations":3`, `"iterations":4`},
	} {
		if !strings.Contains(truth, change[0]) {
			t.Fatalf("%s is not in the truth", change[0])
		}
		c := compare(book(t), parse(t, strings.Replace(truth, change[0], change[1], 1)))
		if c.count == 0 {
			t.Errorf("%s instead of %s: no difference", change[1], change[0])
		}
	}
}
