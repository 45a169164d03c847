package ingest_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

const pair = `
engine vllm depth=1 max_num_seqs=2
0ms      http r1
1ms      submit r1 prompt=32
2ms      arrive r1
3ms      queue r1 prompt=32 max=4
5ms      http r2
5ms      submit r2 prompt=96
6ms      arrive r2
3..8ms   iter r1:32
8ms      queue r2 prompt=96 max=2
8..61ms  iter r1 r2:64
61..70ms iter r1 r2:32
70..75ms iter r1 r2 end=r1:length,r2:length
76ms     first r1
77ms     last r1
78ms     last r2
`

func book(t *testing.T, text string, drop func(wire.Frame) bool) *ledger.Book {
	t.Helper()
	run, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Assemble(drop)
	if err != nil {
		t.Fatal(err)
	}
	return a.Book()
}

func request(t *testing.T, b *ledger.Book, name string) *ledger.Request {
	t.Helper()
	for _, r := range b.Requests {
		if r.RequestID == name {
			return r
		}
	}
	t.Fatalf("no request %s", name)
	return nil
}

func noGaps(t *testing.T, b *ledger.Book) {
	t.Helper()
	for _, g := range b.AllGaps() {
		t.Errorf("unexpected gap: %v", g)
	}
}

func TestMembershipBecomesStints(t *testing.T) {
	b := book(t, pair, nil)
	noGaps(t, b)
	q := request(t, b, "r1").Sequences[0]
	if q.Join != 1 || q.Leave != 4 || q.FirstEmit != 1 || q.LastEmit != 4 || q.Output != 4 || q.Reason != ledger.FinishLength {
		t.Errorf("r1: joined %d, left %d, first %d, last %d, output %d, %v", q.Join, q.Leave, q.FirstEmit, q.LastEmit, q.Output, q.Reason)
	}
	if len(q.Stints) != 2 || q.Stints[0].Phase != ledger.Prefill || q.Stints[1].Phase != ledger.Decode || q.Stints[1].Before != 32 || q.Stints[1].Last != 4 {
		t.Errorf("r1: stints %+v", q.Stints)
	}
	p := request(t, b, "r2").Sequences[0]
	if len(p.Stints) != 2 || p.Stints[0].First != 2 || p.Stints[0].Last != 3 || p.Stints[0].Sum() != 96 || p.FirstEmit != 3 {
		t.Errorf("r2: stints %+v, first token in %d", p.Stints, p.FirstEmit)
	}
	e := b.Engines[0]
	w := account.WorkOf(e, e.Row(2))
	want := ledger.Work{ledger.WorkIterations: 1, ledger.WorkPrefillSeqs: 1, ledger.WorkPrefillTokens: 64, ledger.WorkPrefillContext: 64 * 32, ledger.WorkDecodeSeqs: 1, ledger.WorkDecodeContext: 32}
	if w != want {
		t.Errorf("work of iteration 2: %v, want %v", w, want)
	}
}

func TestPartsSumToE2E(t *testing.T) {
	b := book(t, pair, nil)
	a := account.Of(request(t, b, "r1"), nil, b.Now)
	got := map[account.Part]int64{}
	var sum int64
	for _, l := range a.Lines {
		got[l.Part] = l.NS / 1e6
		sum += l.NS
	}
	if sum != a.E2E() || a.E2E() != 77e6 {
		t.Fatalf("parts sum to %d, E2E is %d", sum, a.E2E())
	}
	want := map[account.Part]int64{account.Frontend: 2, account.Inbox: 1, account.Prefill: 5, account.Decode: 67, account.Stream: 2}
	for _, p := range account.Parts {
		if got[p] != want[p] {
			t.Errorf("%s: %d ms, want %d", p, got[p], want[p])
		}
	}
	if a.TTFT != 76e6 {
		t.Errorf("TTFT %d", a.TTFT)
	}
}

const pressure = `
engine vllm max_num_seqs=8 num_gpu_blocks=8
1ms      queue r1 prompt=64 max=9
1ms      queue r2 prompt=64 max=9
1ms      queue r3 prompt=96 max=9
1..10ms  iter r1:64 r2:64 stop=kv head=r3 need=3 free=1 waiting=1 hold=r1:3,r2:3
10..20ms iter r1 r2 stop=kv head=r3 need=3 free=1 waiting=1
20..30ms iter r1 stop=preempt waiting=2 preempt=r2 by=r1
30..40ms iter r1 stop=kv head=r2 need=3 free=2 waiting=2
40..50ms iter r1 stop=kv head=r2 need=3 free=2 waiting=2 end=r1:length
50..60ms iter r2:66 stop=kv head=r3 need=3 free=2 waiting=1
60..70ms iter r2 stop=kv head=r3 need=3 free=2 waiting=1 end=r2:length
70..80ms iter r3:96
80..90ms iter r3 end=r3:length
`

func TestSkipsNameReasonAndHead(t *testing.T) {
	b := book(t, pressure, nil)
	noGaps(t, b)
	e := b.Engines[0]
	q := e.Sequences[2]
	var runs []string
	for _, s := range q.Skips {
		runs = append(runs, s.Reason.String())
	}
	if got := strings.Join(runs, " · "); got != "KV blocks · preemption in this step · head of line · KV blocks" {
		t.Errorf("r3 waited for: %s", got)
	}
	if h := q.Skips[2].Head; h != e.Sequences[1] {
		t.Errorf("r3 stood behind %v", h)
	}
	victim := e.Sequences[1]
	if len(victim.Preemptions) != 1 || e.Preemptions[0].Preemptor != e.Sequences[0] || e.Preemptions[0].Lost != 65 {
		t.Errorf("preemption: %+v", e.Preemptions)
	}
	var phases []string
	for _, s := range victim.Stints {
		phases = append(phases, s.Phase.String())
	}
	if got := strings.Join(phases, " "); got != "prefill decode recompute decode" {
		t.Errorf("r2 went through %s", got)
	}
	a := account.Of(victim.Request, nil, b.Now)
	if away := a.Split(account.Decode, account.SplitPreempted); away != 30e6 {
		t.Errorf("r2 was away for %d ns, want 30 ms", away)
	}
}

// A lost completion leaves membership whole; its time goes to unexplained and nowhere else.
func TestLostCompletionIsUnexplained(t *testing.T) {
	whole := account.Of(request(t, book(t, pair, nil), "r1"), nil, 0)
	b := book(t, pair, func(f wire.Frame) bool {
		var d wire.Done
		return f.Type == wire.TypeDone && wire.Decode(f, &d) == nil && d.Iteration == 2
	})
	a := account.Of(request(t, b, "r1"), nil, b.Now)
	if grew := a.Line(account.Unexplained).NS - whole.Line(account.Unexplained).NS; grew != 53e6 {
		t.Errorf("unexplained grew by %d ns, the lost iteration took 53 ms", grew)
	}
	if a.E2E() != whole.E2E() {
		t.Errorf("E2E changed from %d to %d", whole.E2E(), a.E2E())
	}
	if len(b.AllGaps()) != 1 {
		t.Errorf("gaps: %v", b.AllGaps())
	}
}

// Losing a decision leaves a hole that is told, and everything after it is right again.
func TestLostDecisionIsAGap(t *testing.T) {
	b := book(t, pressure, func(f wire.Frame) bool {
		var m wire.Scheduled
		return f.Type == wire.TypeScheduled && wire.Decode(f, &m) == nil && m.Iteration == 4
	})
	e := b.Engines[0]
	if e.Row(4).Complete() || !e.Row(6).Complete() {
		t.Errorf("iteration 4 known %v, iteration 6 known %v", e.Row(4).Known, e.Row(6).Known)
	}
	if len(b.AllGaps()) != 1 {
		t.Errorf("gaps: %v", b.AllGaps())
	}
	if out := e.Sequences[2].Output; out != 2 {
		t.Errorf("r3 emitted %d", out)
	}
}

func TestDuplicatesAndReversalsAreRefused(t *testing.T) {
	run, err := scenario.Parse(pair)
	if err != nil {
		t.Fatal(err)
	}
	frames := run.Engine.Frames
	frames[3], frames[4] = frames[4], frames[3] // iteration 2's decision and completion change places
	run.Engine.Frames = append(frames, frames[0])
	a, err := run.Assemble(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Book()
	var refused uint64
	for _, s := range b.Sources {
		refused += s.Refused
	}
	if refused != 2 {
		t.Errorf("%d frames refused, want the late and the doubled one; gaps %v", refused, b.AllGaps())
	}
}

func TestIterationThatGoesBackIsRefused(t *testing.T) {
	run, err := scenario.Parse(pair)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := wire.Append(nil, uint64(len(run.Engine.Frames)+1), &wire.Scheduled{Time: scenario.Boot + 80e6, Iteration: 2})
	run.Engine.Frames = append(run.Engine.Frames, again)
	a, _ := run.Assemble(nil)
	b := a.Book()
	if g := b.AllGaps(); len(g) != 1 || !strings.Contains(g[0].Why, "iteration: 2 after 4") {
		t.Errorf("gaps: %v", g)
	}
}

// A wall clock that steps leaves durations alone and is told once it happens.
func TestWallClockStepIsTold(t *testing.T) {
	run, err := scenario.Parse(pair)
	if err != nil {
		t.Fatal(err)
	}
	mono := scenario.Boot + 90e6
	step, _ := wire.Append(nil, uint64(len(run.Engine.Frames)+1), &wire.Clock{Time: mono, MonoBefore: mono, Realtime: scenario.Epoch + 90e6 + 3_600e9, MonoAfter: mono})
	run.Engine.Frames = append(run.Engine.Frames, step)
	a, _ := run.Assemble(nil)
	b := a.Book()
	if g := b.AllGaps(); len(g) != 1 || !strings.Contains(g[0].Why, "stepped by 1h0m0s") {
		t.Errorf("gaps: %v", g)
	}
	if e2e := account.Of(request(t, b, "r1"), nil, b.Now).E2E(); e2e != 77e6 {
		t.Errorf("E2E became %d ns", e2e)
	}
}

// A monotonic clock that goes back is nonsense: the record is refused with producer, field and value, and counted.
func TestMonotonicClockThatGoesBackIsRefused(t *testing.T) {
	run, err := scenario.Parse(pair)
	if err != nil {
		t.Fatal(err)
	}
	back, _ := wire.Append(nil, uint64(len(run.Engine.Frames)+1), &wire.Scheduled{Time: scenario.Boot + 40e6, Iteration: 5, Members: 1})
	run.Engine.Frames = append(run.Engine.Frames, back)
	a, _ := run.Assemble(nil)
	b := a.Book()
	g := b.AllGaps()
	if len(g) != 1 || g[0].Producer != "engine-scheduler" || g[0].Count != 1 || !strings.Contains(g[0].Why, "scheduled refused: field time") || !strings.Contains(g[0].Why, "went back") {
		t.Errorf("gaps: %v", g)
	}
	if e := b.Engines[0]; e.Last() != 4 || !e.Row(4).Complete() {
		t.Errorf("something else was lost: %+v", e.Row(4))
	}
}

// A message of a type that this version does not know is counted and costs nothing else.
func TestUnknownMessageIsCounted(t *testing.T) {
	run, err := scenario.Parse(pair)
	if err != nil {
		t.Fatal(err)
	}
	for i, raw := range run.Engine.Frames { // one in the middle becomes a type from the future
		if f, _, _ := wire.ParseFrame(raw); f.Type == wire.TypeQueued && i > 0 {
			f.Type = 200
			run.Engine.Frames[i], _ = wire.AppendFrame(nil, f)
			break
		}
	}
	a, _ := run.Assemble(nil)
	b := a.Book()
	var unknown uint64
	for _, s := range b.Sources {
		unknown += s.Unknown
	}
	if unknown != 1 || b.Engines[0].Last() != 4 {
		t.Errorf("%d unknown, %d iterations", unknown, b.Engines[0].Last())
	}
}

// One refused record of each kind is told with a count; a stream of them does not fill the memory.
func TestRefusalsShareARecord(t *testing.T) {
	run, err := scenario.Parse(pair)
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(len(run.Engine.Frames))
	for k := range uint64(1000) {
		b, _ := wire.Append(nil, n+1+k, &wire.Finished{Time: scenario.Boot + 80e6, Finish: wire.Finish{Handle: 999}})
		run.Engine.Frames = append(run.Engine.Frames, b)
	}
	a, _ := run.Assemble(nil)
	if g := a.Book().AllGaps(); len(g) != 1 || g[0].Count != 1000 || !strings.Contains(g[0].Why, "handle: 999") {
		t.Errorf("gaps: %v", g)
	}
}

// The same capture read twice says everything once.
func TestReadingTwiceDoublesNothing(t *testing.T) {
	run, err := scenario.Parse(pressure)
	if err != nil {
		t.Fatal(err)
	}
	once, _ := run.Book()
	run.Engine.Frames = append(run.Engine.Frames, run.Engine.Frames...)
	a, _ := run.Assemble(nil)
	twice := a.Book()
	if x, y := once.Engines[0], twice.Engines[0]; x.Last() != y.Last() || len(x.Sequences) != len(y.Sequences) || len(x.Preemptions) != len(y.Preemptions) {
		t.Errorf("once %d iterations, %d sequences; twice %d, %d", x.Last(), len(x.Sequences), y.Last(), len(y.Sequences))
	}
}
