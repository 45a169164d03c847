package embedded

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/storetest"
)

// generated is an engine of n iterations in continuous decode: a batch of so many sequences, each with an id of 36 random characters, a
// prompt of about 500 tokens computed in one iteration, and about output tokens; iterations jitter by 2 %, gaps and the scheduler's own
// times by 10 %. A sequence that ends is followed by a new one. Nothing in it repeats.
func generated(seed uint64, n, batch, output int) (*ledger.Engine, []*ledger.Request) {
	rng := rand.New(rand.NewPCG(seed, 9))
	e := &ledger.Engine{ID: ledger.EngineID{Deployment: "bench", Replica: "host-1", Incarnation: fmt.Sprintf("%016x", rng.Uint64())}, Name: "vllm", Version: "0.32.0", Depth: 1,
		First: 1, Iterations: make([]ledger.Iteration, 0, n), Settings: map[string]any{}, Capabilities: map[string]bool{}}
	type live struct {
		q    *ledger.Sequence
		left int
	}
	var running []*live
	var requests []*ledger.Request
	now := int64(1_800_000_000_000_000_000)
	jitter := func(ns, share float64) int64 { return int64(ns * (1 + share*rng.NormFloat64())) }
	var sums ledger.Sums
	var context float64
	for i := uint64(1); i <= uint64(n); i++ {
		it := ledger.Iteration{Number: i, Alias: i, Known: ledger.KnownAll}
		work := ledger.Work{ledger.WorkIterations: 1, ledger.WorkDecodeSeqs: float64(len(running)), ledger.WorkDecodeContext: context}
		it.Tokens = uint32(len(running))
		context += float64(len(running))
		var joined []*live
		for len(running)+len(joined) < batch && (len(joined) == 0 || i > 1) {
			uuid := fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", rng.Uint32(), rng.Uint32N(1<<16), rng.Uint32N(1<<16), rng.Uint32N(1<<16), rng.Uint64N(1<<48))
			trace := fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64())
			r := &ledger.Request{RequestID: uuid, ResponseID: "cmpl-" + uuid, TraceID: trace, TraceParent: fmt.Sprintf("00-%s-%016x-01", trace, rng.Uint64()), Path: "/v1/completions",
				Received: now - rng.Int64N(20e6) - 3e6, Status: 200, End: ledger.EndComplete, FrontClock: ledger.Clock{Domain: "monotonic/boot", Uncertainty: 100}}
			prompt := uint32(300 + rng.IntN(400))
			q := &ledger.Sequence{ID: fmt.Sprintf("cmpl-%s-0-%08x", uuid, rng.Uint32()), External: "cmpl-" + uuid + "-0", Request: r, Engine: e, Prompt: prompt, Max: 4096, N: 1, Logprobs: -1, PromptLogprobs: -1,
				Submitted: r.Received + rng.Int64N(1e6), Join: i, FirstEmit: i, Reason: ledger.FinishStop}
			q.Arrived = q.Submitted + rng.Int64N(500e3)
			q.Queued = q.Arrived + rng.Int64N(500e3)
			q.Stints = []ledger.Stint{{Seq: q, Phase: ledger.Prefill, First: i, Last: i, Tokens: []uint32{prompt}, Final: true}}
			r.Sequences = []*ledger.Sequence{q}
			requests = append(requests, r)
			e.Sequences = append(e.Sequences, q)
			joined = append(joined, &live{q, 1 + rng.IntN(2*output)})
			it.Tokens += prompt
			work[ledger.WorkPrefillTokens] += float64(prompt)
			work[ledger.WorkPrefillContext] += float64(prompt) * float64(prompt) / 2
		}
		it.Members = uint32(len(running) + len(joined))
		it.Running, it.Emitted, it.FreeBlocks = it.Members, it.Members, 20000-uint32(context/16)
		gap := jitter(400e3, 0.1)
		it.Start = now + gap
		it.Decided = it.Start
		it.Launched = it.Decided + jitter(150e3, 0.1)
		it.End = it.Start + jitter(8e6+20e3*float64(it.Members)+30e3*work[ledger.WorkPrefillTokens]+50*work[ledger.WorkDecodeContext], 0.02)
		it.Completed = it.End - jitter(200e3, 0.1)
		if i == 1 {
			gap = 0
		}
		sums.Gap += gap
		sums.Busy += it.End - it.Start
		sums.Work = sums.Work.Add(work)
		it.Sums = sums
		now = it.End
		e.Iterations = append(e.Iterations, it)
		kept := running[:0]
		for _, k := range append(running, joined...) {
			q := k.q
			if q.Join != i {
				if q.Join == i-1 {
					q.Stints = append(q.Stints, ledger.Stint{Seq: q, Phase: ledger.Decode, First: i, Before: q.Prompt})
				}
				q.Stints[1].Last = i
			} else {
				q.FirstToken = it.End
				q.Request.FirstByte = it.End + rng.Int64N(300e3)
				context += float64(q.Prompt)
			}
			q.Output++
			q.Leave, q.LastEmit, q.LastToken = i, i, it.End
			if k.left--; k.left > 0 {
				kept = append(kept, k)
				continue
			}
			q.Finished = it.End
			q.Answered = it.End + rng.Int64N(200e3)
			q.Delivered = q.Answered
			q.Request.LastByte = q.Answered + rng.Int64N(300e3)
			q.Request.Chunks, q.Request.Bytes = q.Output, uint64(q.Output)*180
			context -= float64(q.Prompt + q.Output - 1)
		}
		running = kept
	}
	return e, requests
}

// sealed seals an engine in periods of so many iterations.
func sealed(tb testing.TB, s *Store, e *ledger.Engine, requests []*ledger.Request, m *account.Model, period uint64) {
	tb.Helper()
	at := 0 // requests are in the order in which they joined
	var open []*ledger.Request
	for after := uint64(0); after < e.Last(); after += period {
		end := min(after+period, e.Last())
		for at < len(requests) && requests[at].Sequences[0].Join <= end {
			open = append(open, requests[at])
			at++
		}
		p := store.Cut(e, open, m, after, end, storetest.Over(end))
		if _, err := s.Seal(ctx, p); err != nil {
			tb.Fatal(err)
		}
		open = slices.DeleteFunc(open, func(r *ledger.Request) bool { return storetest.Over(end)(r.Sequences[0]) })
	}
}

// sizes reports bytes per iteration (iterations, stints, skips), bytes per request (everything that is counted by requests), and all by table.
func sizes(b *testing.B, s *Store, label string) {
	ps, err := s.Periods(ctx)
	if err != nil {
		b.Fatal(err)
	}
	rows, bytes := map[string]int64{}, map[string]int64{}
	for _, p := range ps {
		for name := range p.Rows {
			rows[name] += p.Rows[name]
			bytes[name] += p.Bytes[name]
		}
	}
	for _, t := range store.Tables {
		b.Logf("%s %-12s %9d rows %10d B %7.1f B/row", label, t.Name, rows[t.Name], bytes[t.Name], float64(bytes[t.Name])/float64(max(rows[t.Name], 1)))
	}
	it, rq := float64(rows["iterations"]), float64(max(rows["requests"], 1))
	b.ReportMetric(float64(bytes["iterations"]+bytes["stints"]+bytes["skips"])/it, "B/iteration")
	b.ReportMetric(float64(bytes["requests"]+bytes["sequences"]+bytes["ids"])/rq, "B/request")
	b.ReportMetric(float64(bytes["clients"])/rq, "B/client")
	b.ReportMetric(float64(bytes["holdings"]+bytes["preemptions"])/it, "B/iteration_kv")
}

func scratch(b *testing.B) *Store {
	b.Helper()
	s, err := Open(filepath.Join(b.TempDir(), "data"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// BenchmarkSealedBytes measures what is on disk, on the real capture and on generated data.
func BenchmarkSealedBytes(b *testing.B) {
	b.Run("demo", func(b *testing.B) {
		for b.Loop() {
			in, err := os.Open("../../cli/demo.wlc")
			if err != nil {
				b.Fatal(err)
			}
			a := ingest.New()
			if err := ingest.ReadCapture(in, "demo.wlc", a); err != nil {
				b.Fatal(err)
			}
			in.Close()
			book := a.Book()
			s := scratch(b)
			e := book.Engines[0]
			storetest.SealAll(b, s, book, e.Completed())
			sizes(b, s, "demo")
		}
	})
	b.Run("random", func(b *testing.B) { // six running, up to thirty waiting, stops that change every few iterations
		for b.Loop() {
			s := scratch(b)
			book := storetest.Random(b, 1, 50_000)
			storetest.SealAll(b, s, book, book.Engines[0].Completed())
			sizes(b, s, "random")
		}
	})
	for _, batch := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("batch%d", batch), func(b *testing.B) {
			for b.Loop() {
				s := scratch(b)
				e, rs := generated(1, 50_000, batch, 250)
				sealed(b, s, e, rs, nil, 50_000)
				sizes(b, s, fmt.Sprintf("batch %d", batch))
			}
		})
	}
}

// BenchmarkSeal measures how many iterations a second are sealed, with their requests.
func BenchmarkSeal(b *testing.B) {
	e, rs := generated(1, 100_000, 64, 250)
	fitted, _ := account.Fit(e)
	p := store.Cut(e, rs, &fitted, 0, e.Last(), storetest.Over(e.Last()))
	for b.Loop() {
		b.StopTimer()
		s := scratch(b)
		b.StartTimer()
		if _, err := s.Seal(ctx, p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(e.Iterations))*float64(b.N)/b.Elapsed().Seconds(), "iterations/s")
}

// BenchmarkLoad measures how long it takes to find a request by its id and load it with its slice, and what explaining it needs besides. 10⁷ iterations only
// with WHYLATE_BENCH_LONG=1.
func BenchmarkLoad(b *testing.B) {
	ns := []int{100_000, 1_000_000}
	if os.Getenv("WHYLATE_BENCH_LONG") != "" {
		ns = append(ns, 10_000_000)
	}
	for _, n := range ns {
		b.Run(fmt.Sprintf("iterations=%d", n), func(b *testing.B) {
			s := scratch(b)
			var all []*ledger.Request
			for k := 0; k < n; k += 100_000 { // engines of 10⁵ iterations, as after restarts
				e, rs := generated(uint64(k), 100_000, 64, 250)
				sealed(b, s, e, rs, nil, 100_000)
				for _, r := range rs {
					if r.Sequences[0].Finished != 0 && len(all) < 20_000_000 {
						all = append(all, &ledger.Request{RequestID: r.RequestID})
					}
				}
			}
			rng := rand.New(rand.NewPCG(1, 1))
			var took, found []time.Duration
			for b.Loop() {
				r := all[rng.IntN(len(all))]
				start := time.Now()
				refs, err := s.Find(ctx, r.RequestID, 2)
				if err != nil || len(refs) != 1 {
					b.Fatalf("%s: %v, %v", r.RequestID, refs, err)
				}
				found = append(found, time.Since(start))
				got, err := s.Load(ctx, refs[0])
				if err != nil {
					b.Fatal(err)
				}
				account.Of(got.Request, got.Model, 0)
				took = append(took, time.Since(start))
			}
			quantiles(b, "explain", took)
			quantiles(b, "find", found)
		})
	}
}

func quantiles(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, what+"_p50_ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, what+"_p99_ms")
}

// BenchmarkList measures a page of the worst requests by a part, of all.
func BenchmarkList(b *testing.B) {
	s := scratch(b)
	requests := 0
	for k := range uint64(4) {
		e, rs := generated(k, 100_000, 64, 50)
		sealed(b, s, e, rs, nil, 100_000)
		requests += len(rs)
	}
	for _, f := range []store.Filter{{Sort: "ttft"}, {Sort: "queue"}, {Sort: "e2e", Over: 2e9}, {}} {
		b.Run("sort="+f.Sort, func(b *testing.B) {
			for b.Loop() {
				if page, err := s.List(ctx, f); err != nil || len(page.Rows) == 0 {
					b.Fatal(page, err)
				}
			}
			b.ReportMetric(float64(requests), "requests")
		})
	}
}

// BenchmarkAppend measures the time to an acknowledgement, alone and with others, on the disk of the temporary directory.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := scratch(b)
			var mu sync.Mutex
			var took []time.Duration
			var wg sync.WaitGroup
			each := max(b.N/callers, 1)
			b.ResetTimer()
			for k := range callers {
				wg.Go(func() {
					var mine []time.Duration
					for n := range each {
						var batch []store.Record
						for i := range 10 { // a tenth of a second of one engine at 100 Hz
							batch = append(batch, storetest.Notice(fmt.Sprint(k), uint64(10*n+i+1)))
						}
						start := time.Now()
						if _, err := s.Append(ctx, batch); err != nil {
							b.Error(err)
							return
						}
						mine = append(mine, time.Since(start))
					}
					mu.Lock()
					defer mu.Unlock()
					took = append(took, mine...)
				})
			}
			wg.Wait()
			quantiles(b, "acknowledged", took)
		})
	}
}

// BenchmarkRecovery measures opening a store with a log, and replaying it into an assembler.
func BenchmarkRecovery(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "data")
	s, err := Open(dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	fillLog(b, s, 40_000)
	bytes := s.LogInfo().Bytes
	s.Close()
	var opened, replayed time.Duration
	for b.Loop() {
		start := time.Now()
		s, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		opened += time.Since(start)
		start = time.Now()
		if _, err := s.Replay(ctx, store.Position{}, ingest.New()); err != nil {
			b.Fatal(err)
		}
		replayed += time.Since(start)
		s.Close()
	}
	mb := float64(bytes) / 1e6 * float64(b.N)
	b.ReportMetric(float64(bytes)/1e6, "MB_log")
	b.ReportMetric(float64(opened)/1e6/mb, "open_ms/MB")
	b.ReportMetric(float64(replayed)/1e6/mb, "replay_ms/MB")
}

// fillLog appends the frames of a random run in batches of a hundred.
func fillLog(b *testing.B, s *Store, iterations int) {
	b.Helper()
	for _, batch := range storetest.Frames(b, 1, iterations, 100) {
		if _, err := s.Append(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRows measures reading 300 iterations of one engine, and nothing beside them.
func BenchmarkRows(b *testing.B) {
	s := scratch(b)
	e, rs := generated(1, 100_000, 64, 250)
	sealed(b, s, e, rs, nil, 100_000)
	rng := rand.New(rand.NewPCG(1, 1))
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		err := s.periods[0].use([]string{"iterations"}, func(t map[string]*table) error {
			rows, err := readRows[store.IterationRow](t["iterations"], rng.Int64N(99_000), 300)
			if len(rows) != 300 {
				b.Fatal(len(rows))
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	quantiles(b, "rows300", took)
}
