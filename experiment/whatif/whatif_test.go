package whatif

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
)

// captured is the recorded run of a real engine that the demo shows: 232 requests, 18 preemptions, a pool of 200 blocks.
func captured(t *testing.T) (*ledger.Book, *ledger.Engine) {
	t.Helper()
	f, err := os.Open("../../cli/demo.wlc")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := ingest.New()
	a.KeepHashes = true
	if err := ingest.ReadCapture(f, "demo", a); err != nil {
		t.Fatal(err)
	}
	b := a.Book()
	return b, b.Engines[0]
}

func asked(t *testing.T, q Question) *Answer {
	t.Helper()
	q.Book, q.Engine = captured(t)
	a, err := Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *Answer) figure(t *testing.T, name string) *Figure {
	t.Helper()
	i := slices.IndexFunc(a.Figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no %s", name)
	}
	return &a.Figures[i]
}

// Where nothing is changed, the simulation is as the engine was.
func TestUnchangedIsAsItWas(t *testing.T) {
	a := asked(t, Question{Unchanged: true, Seed: 1})
	if a.Requests != 232 || len(a.LeftOut) != 0 {
		t.Errorf("%d requests, left out %v", a.Requests, a.LeftOut)
	}
	for name, most := range map[string]float64{"TTFT p50": 0.15, "TTFT p99": 0.05, "TPOT p50": 0.1, "E2E p50": 0.15, "E2E p99": 0.05, "output": 0.02, "preemptions": 0.3, "prompt from cache": 0.001} {
		if f := a.figure(t, name); math.Abs(f.Off()) > most {
			t.Errorf("%s: observed %v, simulated %v", name, f.Observed, f.Same)
		}
	}
	told := 0
	for _, f := range a.Figures {
		if f.Told {
			told++
		}
	}
	if told > 1 { // of ten figures with an interval of 95 % one may be outside
		t.Errorf("%d of %d figures are told apart though nothing was changed: %+v", told, len(a.Figures), a.Figures)
	}
}

// More blocks, and nobody is preempted any more; two sequences at most, and everybody waits.
func TestChangesDoWhatTheyMust(t *testing.T) {
	for _, c := range []struct {
		set, figure string
		sign        float64
	}{
		{"num_gpu_blocks=1000", "preemptions", -1}, {"num_gpu_blocks=1000", "queue mean", -1},
		{"max_num_seqs=2", "queue mean", 1}, {"max_num_seqs=2", "E2E p99", 1},
		{"enable_prefix_caching=false", "prompt from cache", -1},
	} {
		f := asked(t, Question{Set: []string{c.set}, Seed: 1}).figure(t, c.figure)
		if !f.Told || f.Difference*c.sign <= 0 {
			t.Errorf("%s: %s: %+v", c.set, c.figure, f)
		}
	}
	if f := asked(t, Question{Set: []string{"num_gpu_blocks=1000"}, Seed: 1}).figure(t, "preemptions"); f.Changed != 0 {
		t.Errorf("%v preemptions with five times the blocks", f.Changed)
	}
}

func TestOneSeedGivesOneAnswer(t *testing.T) {
	text := func(seed uint64) string {
		b, err := json.Marshal(asked(t, Question{Set: []string{"max_num_batched_tokens=64"}, Seeds: 3, Seed: seed}))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first, again := text(1), text(1)
	if first != again {
		t.Error("the same seed gave another answer")
	}
	if first == text(2) {
		t.Error("another seed gave the same answer")
	}
}

func TestRefusals(t *testing.T) {
	b, e := captured(t)
	for _, c := range []struct {
		q    Question
		says string
	}{
		{Question{}, "nothing is changed"},
		{Question{Set: []string{"max_num_seqs"}}, "setting=value"},
		{Question{Set: []string{"gpu_memory_utilization=0.5"}}, "no setting that can be asked about: those are max_num_batched_tokens"},
		{Question{Set: []string{"max_num_seqs=-1"}}, "sequences: -1: it must be at least 1"},
		{Question{Set: []string{"max_num_seqs=many"}}, "give a number, such as 16"},
		{Question{Set: []string{"max_num_seqs=0"}}, "must be at least 1"},
		{Question{Set: []string{"max_num_seqs=4", "--max-num-seqs=5"}}, "set twice"},
		{Question{Set: []string{"num_gpu_blocks_override=200"}}, "200 in the capture already"},
		{Question{Set: []string{"num_gpu_blocks=3"}}, "the pool holds 64 tokens"},
		{Question{Set: []string{"enable_prefix_caching=perhaps"}}, "give true or false"},
		{Question{Set: []string{"policy=sjf"}}, "fcfs or priority"},
		{Question{Set: []string{"max_num_seqs=4"}, Seeds: 2}, "give 3 to 1000"},
		{Question{Set: []string{"max_num_seqs=4"}, Learn: func(n uint64) bool { return n < 10 }}, "a calibration needs 200"},
		{Question{Set: []string{"max_num_seqs=4"}, Take: func(*ledger.Request) bool { return false }}, "no request"},
	} {
		c.q.Book, c.q.Engine = b, e
		if _, err := Ask(t.Context(), c.q); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v; want %q", c.q.Set, err, c.says)
		}
	}
}

// What was not seen is not silently made up.
func TestNotesTellOfExtrapolation(t *testing.T) {
	a := asked(t, Question{Set: []string{"max_num_batched_tokens=2048", "max_num_seqs=64"}, Seeds: 3, Seed: 1})
	all := strings.Join(a.Notes, "\n")
	for _, want := range []string{"more than 256 tokens: beyond that its time is extrapolated", "sequences: beyond that", "requests come when they came"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}
