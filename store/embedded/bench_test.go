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
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/storetest"
)

// generated is a steady engine of n iterations, assembled from its frames.
func generated(tb testing.TB, seed uint64, n, batch, output int) (*ledger.Engine, []*ledger.Request) {
	tb.Helper()
	s := scenario.NewSteady(scenario.Load{Seed: seed, Replica: fmt.Sprintf("host-%d", seed), Batch: batch, Output: output, Iteration: 10 * time.Millisecond})
	a := ingest.New()
	for i := range n {
		if err := s.Next(); err != nil {
			tb.Fatal(err)
		}
		if i%1000 == 999 || i == n-1 {
			if err := s.Feed(a); err != nil {
				tb.Fatal(err)
			}
		}
	}
	book := a.Live()
	return book.Engines[0], slices.DeleteFunc(slices.Clone(book.Requests), func(r *ledger.Request) bool { return r.LastByte == 0 })
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
	b.ReportMetric(float64(bytes["executions"])/it, "B/iteration_execution")
	b.ReportMetric(float64(bytes["requests"]+bytes["sequences"]+bytes["ids"])/rq, "B/request")
	b.ReportMetric(float64(bytes["clients"])/rq, "B/client")
	b.ReportMetric(float64(bytes["holdings"]+bytes["preemptions"]+bytes["evictions"])/it, "B/iteration_kv")
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
	b.Run("facts", func(b *testing.B) { // ranks that are seen, and a prefix cache that is full: three reports of evictions in sixteen iterations
		for b.Loop() {
			s := scratch(b)
			e, rs := generated(b, 1, 50_000, 64, 250)
			storetest.Facts(&ledger.Book{Engines: []*ledger.Engine{e}, Requests: rs})
			sealed(b, s, e, rs, nil, 50_000)
			sizes(b, s, "facts")
		}
	})
	for _, batch := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("batch%d", batch), func(b *testing.B) {
			for b.Loop() {
				s := scratch(b)
				e, rs := generated(b, 1, 50_000, batch, 250)
				sealed(b, s, e, rs, nil, 50_000)
				sizes(b, s, fmt.Sprintf("batch %d", batch))
			}
		})
	}
}

// BenchmarkSeal measures how many iterations a second are sealed, with their requests.
func BenchmarkSeal(b *testing.B) {
	e, rs := generated(b, 1, 100_000, 64, 250)
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
				e, rs := generated(b, uint64(k), 100_000, 64, 250)
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
		e, rs := generated(b, k, 100_000, 64, 50)
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
	e, rs := generated(b, 1, 100_000, 64, 250)
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
