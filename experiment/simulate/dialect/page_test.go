package dialect

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Python prints so; the numbers are what repr and prometheus_client give.
func TestNumbersAreSpeltAsPythonDoes(t *testing.T) {
	for v, want := range map[float64]string{0: "0.0", 1: "1.0", -3: "-3.0", 0.1: "0.1", 14469: "14469.0", 123456: "123456.0", 1073741824: "1.073741824e+09", 1.7959663773510354e9: "1.7959663773510354e+09",
		1e6: "1e+06", 0.0001: "0.0001", 8.463899996513646e-05: "8.463899996513646e-05", 2e16: "2e+16", math.Inf(1): "+Inf", math.Inf(-1): "-Inf"} {
		if got := string(appendPython(nil, v)); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
	if got := string(appendPython(nil, math.NaN())); got != "NaN" {
		t.Error(got)
	}
}

// ranks are two ranks behind one front end of several processes, written message by message: ms, source, message.
type ranks struct {
	t     *testing.T
	f     *fleet
	names map[string]int
}

func newRanks(t *testing.T) *ranks {
	r := &ranks{t, newFleet(time.Second), map[string]int{}}
	settings := func() map[string]any {
		return map[string]any{"served_model": `the "tiny" one`, "max_model_len": 1000, "num_gpu_blocks": 101, "block_size": 16, "enable_prefix_caching": true, "num_speculative_tokens": 3, "data_parallel_size": 2, "sliding_window": nil}
	}
	for i := range 2 {
		h := hello("engine", "scheduler", uint32(20+i), settings())
		h.Engine.Rank = i
		r.open(fmt.Sprintf("rank%d", i), h)
		r.open(fmt.Sprintf("front%d", i), hello("frontend", "loop", uint32(10+i), nil))
	}
	return r
}

func (r *ranks) open(name string, h *wire.Hello) {
	p, err := r.f.open(h)
	if err != nil {
		r.t.Fatal(err)
	}
	r.names[name] = p.source
}

func (r *ranks) say(source string, m wire.Message) {
	r.t.Helper()
	if err := r.f.record(r.names[source], m); err != nil {
		r.t.Fatal(err)
	}
}

func at(ms float64) int64 { return boot + int64(ms*1e6) }

// begin brings a request to a rank: http is its number at its front end, and its handle everywhere.
func (r *ranks) begin(front, rank string, ms float64, handle uint32, id, parent string, prompt uint32) {
	r.say(front, &wire.Received{Time: at(ms), HTTP: handle, Path: "/v1/completions"})
	r.say(front, &wire.Submitted{Time: at(ms + 1), HTTP: handle, Handle: handle, Prompt: prompt, ID: id, External: id, Parent: parent})
	r.say(rank, &wire.Queued{Time: at(ms + 2), Handle: handle, Prompt: prompt, Max: 50, N: 1, Wall: float64(began)/1e9 + ms/1e3, ID: id, External: id})
}

// step is an iteration of a rank; what it emits is delivered by a front end a millisecond later.
func (r *ranks) step(rank, front string, ms, took float64, s wire.Scheduled, d wire.Done, to ...uint32) {
	s.Time, s.Returned = at(ms), at(ms+0.1)
	d.Time, d.Returned, d.Iteration, d.Key = at(ms+took), at(ms+took+0.1), s.Iteration, (float64(at(ms+took)))/1e9
	r.say(rank, &s)
	r.say(rank, &d)
	if len(to) > 0 {
		r.say(front, &wire.Delivered{Time: at(ms + took + 1), Key: d.Key, Returned: at(ms + took + 1.2), Handles: to})
	}
}

// TestRanks plays what no run of the fixtures has: ranks, several front ends, drafts, a stop string, requests put aside, a preempted request
// whose client goes, and one that the engine aborts.
func TestRanks(t *testing.T) {
	r := newRanks(t)
	join := func(h, tokens, before, total, cached uint32, kind wire.JoinKind) wire.Join {
		return wire.Join{Handle: h, Tokens: tokens, Before: before, Total: total, Cached: cached, Kind: kind}
	}
	r.begin("front0", "rank0", 0, 1, "a", "", 40)
	r.begin("front1", "rank1", 0, 2, "b-0", "b", 20) // two children of one request
	r.say("front1", &wire.Submitted{Time: at(1), HTTP: 2, Handle: 3, Prompt: 20, ID: "b-1", External: "b", Parent: "b"})
	r.say("rank1", &wire.Queued{Time: at(2.5), Handle: 3, Prompt: 20, Max: 50, Wall: float64(began) / 1e9, ID: "b-1", External: "b"})
	r.begin("front1", "rank1", 2, 4, "waits", "", 30)

	// rank 0: 16 of 40 tokens from the cache; the prompt in two chunks, of which the first brings nothing; then a stop string.
	r.step("rank0", "front0", 10, 5, wire.Scheduled{Iteration: 1, Tokens: 16, Members: 1, Running: 1, Free: 97, Joins: []wire.Join{join(1, 16, 16, 40, 16, wire.JoinNew)}}, wire.Done{})
	r.step("rank0", "front0", 16, 5, wire.Scheduled{Iteration: 2, Tokens: 8, Members: 1, Running: 1, Free: 97, Changes: []wire.Change{{Handle: 1, Tokens: 8}}}, wire.Done{Tokens: 1}, 1)
	r.step("rank0", "front0", 23, 5, wire.Scheduled{Iteration: 3, Tokens: 1, Members: 1, Running: 1, Free: 97, Changes: []wire.Change{{Handle: 1, Tokens: 1}}}, wire.Done{Tokens: 1}, 1)
	r.say("front0", &wire.Answered{Time: at(29.1), Handle: 1, Reason: ledger.FinishStop, By: wire.ByStopString, Output: 2})
	r.say("front0", &wire.LastByte{Time: at(30), HTTP: 1, Status: 200})
	r.say("rank0", &wire.Finished{Time: at(30.1), Finish: wire.Finish{Handle: 1, Reason: ledger.FinishAbort, Output: 2}})

	// rank 1: both children; drafts of three, of which two and none are right; b-1 is preempted and its client goes before that is told.
	waits := []wire.SkipEntry{{Handle: 4, Reason: ledger.SkipGrammar}}
	r.step("rank1", "front1", 10, 8, wire.Scheduled{Iteration: 1, Tokens: 40, Members: 2, Running: 2, Waiting: 1, Free: 96, SkipsListed: true, Skips: waits,
		Joins: []wire.Join{join(2, 20, 0, 20, 0, wire.JoinNew), join(3, 20, 0, 20, 0, wire.JoinNew)}}, wire.Done{Tokens: 2}, 2, 3)
	r.step("rank1", "front1", 20, 8, wire.Scheduled{Iteration: 2, Tokens: 8, Members: 2, Running: 2, Waiting: 1, Free: 96, Changes: []wire.Change{{Handle: 2, Tokens: 4}, {Handle: 3, Tokens: 4}},
		Drafts: []wire.Draft{{Handle: 2, Tokens: 3}, {Handle: 3, Tokens: 3}}}, wire.Done{Tokens: 4, Emits: []wire.Emit{{Handle: 2, Tokens: 3}}}, 2, 3)
	r.step("rank1", "front1", 30, 8, wire.Scheduled{Iteration: 3, Tokens: 1, Members: 1, Running: 1, Waiting: 2, Free: 98, Leaves: []uint32{3}, Changes: []wire.Change{{Handle: 2, Tokens: 1}},
		Preemptions: []wire.Preemption{{Victim: 3, Preemptor: 2, Cause: wire.CauseKVBlocks}}}, wire.Done{Tokens: 1}, 2)
	r.say("front1", &wire.Answered{Time: at(39.5), Handle: 3, Reason: ledger.FinishAbort, By: wire.ByClient, Output: 2})
	r.say("rank1", &wire.Finished{Time: at(39.6), Finish: wire.Finish{Handle: 3, Reason: ledger.FinishAbort, Output: 2}})
	r.step("rank1", "front1", 40, 8, wire.Scheduled{Iteration: 4, Tokens: 1, Members: 1, Running: 1, Waiting: 1, Free: 98},
		wire.Done{Tokens: 0, Emits: []wire.Emit{{Handle: 2, Tokens: 0}}, Finishes: []wire.Finish{{Handle: 2, Reason: ledger.FinishError, Output: 5}}}, 2)
	r.say("front1", &wire.Answered{Time: at(49.1), Handle: 2, Reason: ledger.FinishError, Output: 5})
	r.say("front1", &wire.LastByte{Time: at(50), HTTP: 2, Status: 500})
	if err := r.f.end(); err != nil {
		t.Fatal(err)
	}

	page := r.f.page("vllm-0", nil)
	parses(t, "ranks", page)
	if strings.Contains(string(page), "_created") || strings.Contains(string(page), "process_") {
		t.Error("processes that share a page tell neither when a series was made nor of themselves")
	}
	var out strings.Builder
	series := numbers(t, page)
	for _, name := range slices.Sorted(maps.Keys(series)) {
		if series[name] != 0 && !strings.Contains(name, "_bucket") {
			fmt.Fprintf(&out, "%s %.6g\n", name, series[name])
		}
	}
	golden(t, "testdata/ranks.txt", out.String())
}

// A restarted engine begins anew, under the same target; its front end's last page is gone.
func TestRestart(t *testing.T) {
	r := newRanks(t)
	r.begin("front0", "rank0", 0, 1, "a", "", 40)
	r.step("rank0", "front0", 10, 5, wire.Scheduled{Iteration: 1, Tokens: 40, Members: 1, Running: 1, Free: 97, Joins: []wire.Join{{Handle: 1, Tokens: 40, Total: 40, Kind: wire.JoinNew}}}, wire.Done{Tokens: 1}, 1)
	h := hello("engine", "scheduler", 30, map[string]any{"served_model": "tiny", "max_model_len": 1000, "num_gpu_blocks": 101})
	h.Engine.Incarnation = "next"
	r.open("again", h)
	front := hello("frontend", "loop", 31, nil)
	front.Engine.Incarnation = "next"
	r.open("front again", front)
	if err := r.f.end(); err != nil {
		t.Fatal(err)
	}
	series := numbers(t, r.f.page("vllm-0", nil))
	if got := series[`vllm:prompt_tokens_total{engine="0",model_name="tiny"}`]; got != 0 || len(r.f.targets()) != 1 {
		t.Errorf("%v prompt tokens after a restart; targets %v", got, r.f.targets())
	}
}
