package simulate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// small is an engine that a handful of requests fill.
var small = Settings{BlockSize: 4, Blocks: 9, MaxSequences: 3, MaxTokens: 16, MaxLength: 64, PrefixCaching: true, ReserveInput: true}

func scheduler(t testing.TB, version string, change func(*Settings)) *Scheduler {
	t.Helper()
	r, err := RulesOf(version)
	if err != nil {
		t.Fatal(err)
	}
	settings := small
	if change != nil {
		change(&settings)
	}
	s, err := New(r, settings)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t testing.TB, s *Scheduler, r Request) *Sequence {
	t.Helper()
	q, err := s.Add(r)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// decided is a decision in words: id:tokens@before for each member, and -id for who was preempted.
func decided(d *Decision) string {
	var words []string
	for _, m := range d.Members {
		words = append(words, fmt.Sprintf("%s:%d@%d", m.Sequence.ID, m.Tokens, m.Before))
	}
	for _, p := range d.Preempted {
		words = append(words, "-"+p.Victim.ID)
	}
	return strings.Join(words, " ")
}

// play makes and completes decisions one after the other, and holds each against what is wanted.
func play(t *testing.T, s *Scheduler, want ...string) {
	t.Helper()
	var d Decision
	for i, w := range want {
		s.Decide(&d)
		if got := decided(&d); got != w {
			t.Fatalf("decision %d: %q, want %q", i+1, got, w)
		}
		s.Complete(&d)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPromptsAreCutToTheBudgetAndDecodesGoFirst(t *testing.T) {
	s := scheduler(t, "0.32.0", func(s *Settings) { s.Blocks = 40 })
	add(t, s, Request{ID: "a", Prompt: 10, Max: 3})
	add(t, s, Request{ID: "b", Prompt: 20, Max: 2})
	play(t, s, "a:10@0 b:6@0", "a:1@10 b:14@6", "a:1@11 b:1@20", "")
}

func TestWithoutChunksAPromptWaitsForTheWholeBudget(t *testing.T) {
	s := scheduler(t, "0.32.0", func(s *Settings) { s.Blocks, s.WholePrompts = 40, true })
	add(t, s, Request{ID: "a", Prompt: 10, Max: 2})
	add(t, s, Request{ID: "b", Prompt: 15, Max: 1})
	add(t, s, Request{ID: "c", Prompt: 1, Max: 1}) // nobody behind b is asked
	play(t, s, "a:10@0", "a:1@10 b:15@0", "c:1@0", "")
}

func TestALongPromptIsHeldBackUnlessItIsAlone(t *testing.T) {
	limit := func(s *Settings) { s.Blocks, s.LongPrefill = 40, 4 }
	for version, want := range map[string]string{"0.20.2": "a:4@0", "0.32.0": "a:12@0"} {
		s := scheduler(t, version, limit)
		add(t, s, Request{ID: "a", Prompt: 12, Max: 1})
		play(t, s, want)
	}
	s := scheduler(t, "0.32.0", limit)
	add(t, s, Request{ID: "a", Prompt: 12, Max: 1})
	add(t, s, Request{ID: "b", Prompt: 6, Max: 1})
	play(t, s, "a:4@0 b:4@0", "a:4@4 b:2@4", "a:4@8", "")
}

func TestAnAdmissionNeedsBlocksForTheWholeInput(t *testing.T) {
	long := Request{ID: "b", Prompt: 28, Max: 1}
	s := scheduler(t, "0.32.0", nil)
	add(t, s, Request{ID: "a", Prompt: 8, Max: 1})
	add(t, s, long) // 7 blocks of 6 that are free
	play(t, s, "a:8@0", "b:16@0", "b:12@16", "")
	s = scheduler(t, "0.32.0", func(s *Settings) { s.ReserveInput = false })
	add(t, s, Request{ID: "a", Prompt: 8, Max: 1})
	add(t, s, long)
	play(t, s, "a:8@0 b:8@0")
}

func TestTheWatermarkIsKeptOnlyWhileSomebodyRuns(t *testing.T) {
	for version, want := range map[string]string{"0.20.2": "a:8@0 b:8@0", "0.32.0": "a:8@0"} {
		s := scheduler(t, version, func(s *Settings) { s.WatermarkBlocks = 5 })
		add(t, s, Request{ID: "a", Prompt: 8, Max: 1})
		add(t, s, Request{ID: "b", Prompt: 8, Max: 1})
		play(t, s, want)
	}
}

func TestTheLastAdmittedIsPreemptedAndComputesAgain(t *testing.T) {
	s := scheduler(t, "0.32.0", func(s *Settings) { s.PrefixCaching = false })
	add(t, s, Request{ID: "a", Prompt: 8, Max: 30})
	add(t, s, Request{ID: "b", Prompt: 8, Max: 30})
	var d Decision
	for len(d.Preempted) == 0 {
		s.Decide(&d)
		s.Complete(&d)
	}
	if got := decided(&d); got != "a:1@16 -b" {
		t.Fatalf("%q", got)
	}
	if s.Running() != 1 || s.Waiting() != 1 {
		t.Errorf("%d running, %d waiting", s.Running(), s.Waiting())
	}
}

func TestTheLeastUrgentIsPreemptedAndLosesWhatItWasGiven(t *testing.T) {
	s := scheduler(t, "0.32.0", func(s *Settings) { s.Priorities, s.PrefixCaching = true, false })
	add(t, s, Request{ID: "low", Prompt: 8, Max: 30, Priority: 5})
	play(t, s, "low:8@0")
	add(t, s, Request{ID: "high", Prompt: 12, Max: 30, Arrival: 1})
	var d Decision
	for len(d.Preempted) == 0 {
		s.Decide(&d)
		s.Complete(&d)
	}
	if got := decided(&d); got != "high:1@16 -low" {
		t.Fatalf("%q", got)
	}
}

func TestThePrefixCacheGivesWholeBlocksAndNeverAllTokens(t *testing.T) {
	s := scheduler(t, "0.32.0", nil)
	hashes := []uint64{1, 2}
	add(t, s, Request{ID: "a", Prompt: 8, Max: 1, Hashes: hashes})
	play(t, s, "a:8@0")
	add(t, s, Request{ID: "b", Prompt: 8, Max: 1, Hashes: hashes})
	add(t, s, Request{ID: "c", Prompt: 9, Max: 1, Hashes: hashes})
	play(t, s, "b:4@4 c:1@8", "")
	add(t, s, Request{ID: "d", Prompt: 9, Max: 1, Hashes: []uint64{9, 2}})
	play(t, s, "d:9@0")
	s.Reset()
	add(t, s, Request{ID: "e", Prompt: 9, Max: 1, Hashes: hashes})
	play(t, s, "e:9@0")
}

// The oldest blocks of the cache go first, the end of a sequence before its beginning.
func TestEviction(t *testing.T) {
	s := scheduler(t, "0.32.0", nil)
	old := []uint64{1, 2, 3, 4}
	add(t, s, Request{ID: "old", Prompt: 16, Max: 1, Hashes: old})
	play(t, s, "old:16@0")
	add(t, s, Request{ID: "new", Prompt: 16, Max: 1, Hashes: []uint64{5, 6, 7, 8}})
	play(t, s, "new:16@0")
	add(t, s, Request{ID: "third", Prompt: 8, Max: 1, Hashes: []uint64{11, 12}})
	play(t, s, "third:8@0")
	add(t, s, Request{ID: "again", Prompt: 16, Max: 1, Hashes: old})
	play(t, s, "again:8@8")
}

func TestAGrammarIsPassedOverUntilItIsReady(t *testing.T) {
	for _, version := range []string{"0.20.2", "0.32.0"} {
		s := scheduler(t, version, nil)
		g := add(t, s, Request{ID: "g", Prompt: 4, Max: 1, Grammar: true})
		add(t, s, Request{ID: "a", Prompt: 4, Max: 1})
		play(t, s, "a:4@0")
		s.GrammarReady(g)
		add(t, s, Request{ID: "b", Prompt: 4, Max: 1})
		play(t, s, "g:4@0 b:4@0")
	}
	s := scheduler(t, "0.32.0", nil)
	g := add(t, s, Request{ID: "g", Prompt: 4, Max: 1, Grammar: true})
	s.GrammarFailed(g)
	play(t, s, "")
	if !g.Finished() || s.Waiting() != 0 {
		t.Error("a request whose grammar does not compile still waits")
	}
}

func TestAdaptersOfAnIterationAreLimited(t *testing.T) {
	s := scheduler(t, "0.32.0", func(s *Settings) { s.Adapters = 1 })
	add(t, s, Request{ID: "a", Prompt: 4, Max: 1, Adapter: 1})
	add(t, s, Request{ID: "b", Prompt: 4, Max: 1, Adapter: 2})
	add(t, s, Request{ID: "c", Prompt: 4, Max: 1, Adapter: 1})
	play(t, s, "a:4@0 c:4@0", "b:4@0")
}

func TestPauses(t *testing.T) {
	s := scheduler(t, "0.32.0", nil)
	add(t, s, Request{ID: "a", Prompt: 4, Max: 9})
	play(t, s, "a:4@0")
	add(t, s, Request{ID: "b", Prompt: 4, Max: 9})
	s.Pause(PausedNew)
	play(t, s, "a:1@4")
	s.Pause(PausedAll)
	play(t, s, "")
	s.Pause(Unpaused)
	play(t, s, "a:1@5 b:4@0")
}

// With two decisions in flight the second takes the output of the first for granted, and none is made beyond the last token.
func TestTwoInFlight(t *testing.T) {
	s := scheduler(t, "0.32.0", func(s *Settings) { s.Asynchronous = true })
	q := add(t, s, Request{ID: "a", Prompt: 4, Max: 2})
	var one, two, three Decision
	s.Decide(&one)
	s.Decide(&two)
	s.Complete(&one)
	s.Decide(&three)
	if got := decided(&one) + ", " + decided(&two) + ", " + decided(&three); got != "a:4@0, a:1@4, " {
		t.Fatal(got)
	}
	s.Complete(&two)
	s.Complete(&three)
	if !q.Finished() || q.Output() != 2 {
		t.Errorf("%+v", q.Progress)
	}
	// Who ends before its limit is in the next decision, too; what that one yields is nobody's.
	q = add(t, s, Request{ID: "b", Prompt: 4, Max: 9, Length: 1})
	s.Decide(&one)
	s.Decide(&two)
	s.Complete(&one)
	s.Complete(&two)
	if got := decided(&two); got != "b:1@4" || q.Output() != 1 || s.FreeBlocks() != small.Blocks-1 {
		t.Errorf("%q, %d tokens, %d blocks free", got, q.Output(), s.FreeBlocks())
	}
}

func TestDraftsAreComputedAndRolledBack(t *testing.T) {
	s := scheduler(t, "0.32.0", func(s *Settings) { s.Drafts = 3 })
	q := add(t, s, Request{ID: "a", Prompt: 4, Max: 20})
	play(t, s, "a:4@0")
	s.Draft(q, 3)
	var d Decision
	s.Decide(&d)
	if decided(&d) != "a:4@4" || d.Members[0].Drafts != 3 {
		t.Fatalf("%q, %d drafts", decided(&d), d.Members[0].Drafts)
	}
	d.Members[0].Accepted = 1
	s.Complete(&d)
	if q.Output() != 3 {
		t.Errorf("%d tokens of output", q.Output())
	}
	play(t, s, "a:1@6")
}

func TestWhatNoEngineTakesIsRefusedByName(t *testing.T) {
	if _, err := RulesOf("0.31.7"); err == nil || !strings.Contains(err.Error(), "0.31.7") || !strings.Contains(err.Error(), "0.32.0") {
		t.Errorf("%v", err)
	}
	broken := small
	broken.Blocks = 1
	if _, err := New(Rules{}, broken); err == nil || !strings.Contains(err.Error(), "blocks: 1") {
		t.Errorf("%v", err)
	}
	s := scheduler(t, "0.32.0", nil)
	for _, r := range []Request{{ID: "x", Max: 1}, {ID: "x", Prompt: 1}, {ID: "x", Prompt: 65, Max: 1}, {ID: "x", Prompt: 1, Max: 1, Length: -1}, {ID: "x", Prompt: 6, Max: 1, Hashes: []uint64{1, 2}}} {
		if _, err := s.Add(r); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func hello() map[string]any {
	n := func(s string) json.Number { return json.Number(s) }
	return map[string]any{"block_size": n("16"), "num_gpu_blocks": n("200"), "max_num_seqs": n("8"), "max_num_active_seqs": n("6"),
		"max_num_scheduled_tokens": n("128"), "max_model_len": n("1024"), "enable_chunked_prefill": true, "enable_prefix_caching": true,
		"scheduler_reserve_full_isl": true, "policy": "priority", "scheduler": "AsyncScheduler", "kv_cache_groups": n("1"), "hash_block_size": n("16")}
}

func TestSettingsFromHello(t *testing.T) {
	_, got, err := FromHello("0.32.0", hello())
	want := Settings{BlockSize: 16, Blocks: 200, MaxSequences: 6, MaxTokens: 128, MaxLength: 1024, PrefixCaching: true, ReserveInput: true,
		Priorities: true, Asynchronous: true}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for name, value := range map[string]any{"kv_cache_groups": json.Number("2"), "kv_connector": "Nixl", "num_lookahead_tokens": json.Number("3"),
		"hash_block_size": json.Number("8"), "max_model_len": "long", "sliding_window": json.Number("512")} {
		h := hello()
		h[name] = value
		if _, _, err := FromHello("0.32.0", h); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s = %v: %v", name, value, err)
		}
	}
	if _, _, err := FromHello("1.0", hello()); err == nil {
		t.Error("an unknown version is taken")
	}
}

func TestAStateThatCannotBeIsRefused(t *testing.T) {
	r, _ := RulesOf("0.32.0")
	holds := func(b ...int32) []*Sequence {
		return []*Sequence{NewSequence(Request{ID: "a", Prompt: 4, Max: 1}, Progress{Tokens: 4, Blocks: b})}
	}
	for name, s := range map[string]State{
		"lost block":      {Free: []int32{1, 2, 3, 4, 5, 6, 7}},
		"free twice":      {Free: []int32{1, 1, 2, 3, 4, 5, 6, 7, 8}},
		"outside":         {Free: []int32{1, 2, 3, 4, 5, 6, 7, 9}},
		"free and held":   {Free: []int32{1, 2, 3, 4, 5, 6, 7, 8}, Running: holds(8)},
		"waits and holds": {Free: []int32{1, 2, 3, 4, 5, 6, 7}, Waiting: holds(8)},
		"cached outside":  {Free: []int32{1, 2, 3, 4, 5, 6, 7, 8}, Cached: []CachedHash{{1, []int32{70}}}},
	} {
		if _, err := Restore(r, small, s); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := Restore(r, small, State{Free: []int32{8, 1, 2, 3, 4, 5, 6}, Running: holds(7)}); err != nil {
		t.Error(err)
	}
}

// run plays a random load on random settings. After each call the books must balance; in the end nobody may be lost. It returns
// all decisions in words.
func run(t *testing.T, version string, seed uint64) []string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	s := scheduler(t, version, func(s *Settings) {
		*s = Settings{BlockSize: 1 + rng.IntN(8), Blocks: 20 + rng.IntN(60), MaxSequences: 1 + rng.IntN(8), MaxTokens: 8 + rng.IntN(40), MaxLength: 64,
			LongPrefill: rng.IntN(2) * 9, AdaptiveLong: rng.IntN(2) == 0, PrefixCaching: rng.IntN(4) > 0, ReserveInput: rng.IntN(4) > 0,
			WatermarkBlocks: rng.IntN(3), Priorities: rng.IntN(2) == 0, Asynchronous: rng.IntN(2) == 0, Drafts: rng.IntN(2) * 2, Adapters: rng.IntN(3)}
		s.Blocks = max(s.Blocks, s.MaxLength/s.BlockSize+5) // else a sequence may never fit
	})
	depth, r := 1, s.rules
	if s.settings.Asynchronous {
		depth = 2
	}
	var all, compiling []*Sequence
	var flight []*Decision
	var told []string
	balance := func(after string) {
		if err := s.Check(); err != nil {
			t.Fatalf("vLLM %s, seed %d, after %s: %v", version, seed, after, err)
		}
	}
	complete := func() {
		d := flight[0]
		flight = flight[1:]
		for i := range d.Members {
			d.Members[i].Accepted = rng.IntN(d.Members[i].Drafts + 1)
		}
		s.Complete(d)
		balance("a completion")
		if depth == 1 && s.settings.Drafts > 0 {
			s.Each(func(q *Sequence) { s.Draft(q, rng.IntN(s.settings.Drafts+1)) })
		}
	}
	step := func() {
		d := &Decision{}
		s.Decide(d)
		balance("a decision")
		tokens := 0
		for _, m := range d.Members {
			if m.Tokens < 1 {
				t.Fatalf("%s has %d tokens", m.Sequence.ID, m.Tokens)
			}
			tokens += m.Tokens
		}
		if tokens > s.settings.MaxTokens {
			t.Fatalf("%d tokens of %d", tokens, s.settings.MaxTokens)
		}
		told = append(told, decided(d))
		if flight = append(flight, d); len(flight) >= depth {
			complete()
		}
	}
	for i := range 300 {
		if rng.IntN(4) == 0 {
			prompt := 1 + rng.IntN(40)
			hashes := make([]uint64, rng.IntN(prompt/s.settings.BlockSize+1))
			for k := range hashes {
				hashes[k] = uint64(k + 1)
			}
			q := add(t, s, Request{ID: fmt.Sprint("r", i), Prompt: prompt, Max: 1 + rng.IntN(20), Priority: rng.IntN(3), Arrival: int64(i),
				Adapter: rng.IntN(4), Grammar: rng.IntN(5) == 0, Hashes: hashes})
			if all = append(all, q); q.Grammar {
				compiling = append(compiling, q)
			}
		}
		if len(compiling) > 0 && rng.IntN(3) == 0 {
			if compiling = compiling[1:]; rng.IntN(4) == 0 {
				s.GrammarFailed(all[slices.IndexFunc(all, func(q *Sequence) bool { return q.grammar == grammarCompiling })])
			}
		}
		if len(all) > 0 && rng.IntN(20) == 0 {
			s.Abort(all[rng.IntN(len(all))])
			balance("an abort")
		}
		if rng.IntN(60) == 0 && (r.HoldStale || !s.settings.Asynchronous) {
			s.Reset()
			balance("a reset")
		}
		step()
	}
	for _, q := range all {
		if q.grammar == grammarCompiling {
			s.GrammarReady(q)
		}
	}
	for i := 0; s.Running()+s.Waiting() > 0; i++ {
		if i > 20_000 {
			t.Fatalf("vLLM %s, seed %d: %d running and %d waiting sequences come to no end: %+v", version, seed, s.Running(), s.Waiting(), s.settings)
		}
		step()
	}
	for len(flight) > 0 {
		complete()
	}
	for _, q := range all {
		if !q.Finished() {
			t.Errorf("%s is in no list, and not over", q.ID)
		}
	}
	if s.FreeBlocks() != s.settings.Blocks-1 {
		t.Errorf("%d of %d blocks are free in the end", s.FreeBlocks(), s.settings.Blocks-1)
	}
	return told
}

func TestBooksBalanceAndNobodyIsLost(t *testing.T) {
	for _, r := range versions {
		for seed := range uint64(40) {
			if first := run(t, r.Version, seed); seed < 5 && !reflect.DeepEqual(first, run(t, r.Version, seed)) {
				t.Errorf("vLLM %s, seed %d: not the same decisions again", r.Version, seed)
			}
		}
	}
}

func TestCheckSeesEachFault(t *testing.T) {
	for name, harm := range map[string]func(*Scheduler){
		"a lost reference":  func(s *Scheduler) { s.pool.refs[s.running[0].Blocks[0]]-- },
		"a lost block":      func(s *Scheduler) { s.pool.unlink(s.pool.next[0]) },
		"twice in the list": func(s *Scheduler) { s.running = append(s.running, s.running[0]) },
		"in two lists":      func(s *Scheduler) { s.waiting.push(s.running[0]) },
		"a wrong state":     func(s *Scheduler) { s.running[0].state = finished },
		"a negative count":  func(s *Scheduler) { s.running[0].Placeholders = -1 },
		"too many":          func(s *Scheduler) { s.settings.MaxSequences = 0 },
	} {
		s := scheduler(t, "0.32.0", nil)
		add(t, s, Request{ID: "a", Prompt: 6, Max: 9})
		play(t, s, "a:6@0")
		if harm(s); s.Check() == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

// BenchmarkIterations is of 64 running sequences, each with a place in a pool under pressure, and others in line.
func BenchmarkIterations(b *testing.B) {
	for _, name := range []string{"synchronous", "asynchronous"} {
		b.Run(name, func(b *testing.B) {
			r, _ := RulesOf("0.32.0")
			s, err := New(r, Settings{BlockSize: 16, Blocks: 64 * 40, MaxSequences: 64, MaxTokens: 2048, MaxLength: 4096, PrefixCaching: true,
				ReserveInput: true, Asynchronous: name == "asynchronous"})
			if err != nil {
				b.Fatal(err)
			}
			depth := 1
			if s.settings.Asynchronous {
				depth = 2
			}
			rng := rand.New(rand.NewPCG(1, 1))
			decisions := make([]Decision, depth)
			members, n := 0, 0
			for b.Loop() {
				for s.Running()+s.Waiting() < 72 {
					prompt := 64 + rng.IntN(512)
					hashes := make([]uint64, prompt/16)
					for k := range hashes {
						hashes[k] = uint64(rng.IntN(8))<<32 | uint64(k)
					}
					add(b, s, Request{ID: "r", Prompt: prompt, Max: 100 + rng.IntN(200), Hashes: hashes})
				}
				d := &decisions[n%depth]
				if n++; n > depth {
					s.Complete(d)
				}
				s.Decide(d)
				members += len(d.Members)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "iterations/s")
			b.ReportMetric(float64(members)/float64(n), "members")
		})
	}
}
