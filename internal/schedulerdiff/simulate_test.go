package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/whylate/whylate/experiment/simulate/fidelity"
)

// told is a run of two sequences of one prefix on an engine of 9 blocks of 4 tokens, with 16 tokens an iteration: a's blocks are
// found again by b, once a has computed them.
const told = `{"e":"run","settings":{"asynchronous":false,"groups":0.2}}
{"e":"queued","id":"a","prompt":8,"max":2,"hashes":[1,2]}
{"e":"state","before":{"step":0,"running":[],"waiting":[{"id":"a","tokens":8,"hashes":[1,2]}],"held":[],"free":[1,2,3,4,5,6,7,8],"cached":[]}}
{"e":"scheduled","n":1,"running":1,"waiting":0,"free":6,"members":{"a":[8,0,8,8]},"waits":[]}
{"e":"done","n":1}
{"e":"queued","id":"b","prompt":9,"max":9,"hashes":[1,2]}
{"e":"state","before":{"step":1,"running":[{"id":"a","tokens":9,"computed":8,"cached":2,"blocks":[1,2],"hashes":[1,2]}],"waiting":[{"id":"b","tokens":9,"hashes":[1,2]}],"held":[],"free":[3,4,5,6,7,8],"cached":[{"hash":1,"blocks":[1]},{"hash":2,"blocks":[2]}]}}
{"e":"scheduled","n":2,"running":2,"waiting":0,"free":4,"members":{"a":[1,8,9,8],"b":[1,8,9,9]},"waits":[]}
{"e":"done","n":2,"finished":{"a":[2,2]}}
{"e":"finished","id":"b","reason":3,"output":1}
{"e":"scheduled","n":3,"running":0,"waiting":0,"free":8,"members":{},"waits":[]}
{"e":"done","n":3}
{"e":"end","iterations":3}`

func hello() map[string]any {
	n := func(s string) json.Number { return json.Number(s) }
	return map[string]any{"scheduler": "Scheduler", "policy": "fcfs", "block_size": n("4"), "num_gpu_blocks": n("9"),
		"max_num_seqs": n("3"), "max_num_scheduled_tokens": n("16"), "max_model_len": n("64"), "enable_chunked_prefill": true,
		"enable_prefix_caching": true, "scheduler_reserve_full_isl": true}
}

func TestSimulationAgreesWithTheTruth(t *testing.T) {
	c, err := simulated("0.32.0", hello(), parse(t, told))
	if err != nil {
		t.Fatal(err)
	}
	if c.free.Decisions != 3 || c.free.Right != 3 || c.oneStep.Decisions != 2 || c.oneStep.Right != 2 || c.free.Nontrivial != 3 || c.baseline.Right != 0 {
		t.Errorf("%+v", c)
	}
}

// Whatever the engine decides otherwise is a difference, and has a kind.
func TestEachSimulatedDifferenceIsFound(t *testing.T) {
	for _, change := range [][3]string{
		{`"b":[1,8,9,9]`, `"b":[5,4,9,9]`, "found in the cache"},
		{`"a":[1,8,9,8]`, `"a":[1,7,9,8]`, "computed before"},
		{`"a":[1,8,9,8]`, `"a":[2,8,9,8]`, "tokens"},
		{`"a":[1,8,9,8],`, ``, "members"},
		{`"a":[1,8,9,8],`, `"c":[1,8,9,8],`, "members"},
		{`"running":2`, `"running":3`, "running, waiting, free blocks"},
		{`"free":4`, `"free":5`, "running, waiting, free blocks"},
		{`"running":2,"waiting":0`, `"running":2,"waiting":1`, "running, waiting, free blocks"},
		{`"n":2,"running":2`, `"n":2,"preempted":[{"victim":"b"}],"running":2`, "preempted"},
		{`"n":2,"running":2`, `"n":2,"drafts":{"a":1},"running":2`, "drafts"},
	} {
		if !strings.Contains(told, change[0]) {
			t.Fatalf("%s is not in the truth", change[0])
		}
		c, err := simulated("0.32.0", hello(), parse(t, strings.Replace(told, change[0], change[1], 1)))
		if err != nil {
			t.Fatal(err)
		}
		for way, s := range map[string]fidelity.Score{"one step": c.oneStep, "free running": c.free} {
			if s.Right != s.Decisions-1 || s.Kinds[change[2]] != 1 || len(s.Examples) != 1 {
				t.Errorf("%s instead of %s, %s: %+v", change[1], change[0], way, s)
			}
		}
	}
}

// The free run knows nothing of states, decisions or hits: what is told of them changes nothing but its score.
func TestTheFreeRunIsNotResynchronised(t *testing.T) {
	wrong := strings.Replace(told, `"a":[8,0,8,8]`, `"a":[4,4,8,8]`, 1)
	wrong = strings.Replace(wrong, `"computed":8`, `"computed":4`, 1)
	c, err := simulated("0.32.0", hello(), parse(t, wrong))
	if err != nil {
		t.Fatal(err)
	}
	if c.free.Right != 2 || c.oneStep.Right != 0 {
		t.Errorf("free running %+v, one step %+v", c.free, c.oneStep)
	}
}

func TestSessionsAreNotSimulated(t *testing.T) {
	c, err := simulated("0.32.0", hello(), parse(t, strings.Replace(told, `"groups"`, `"sessions":true,"groups"`, 1)))
	if err != nil || c.refused == "" || c.free.Decisions != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}
