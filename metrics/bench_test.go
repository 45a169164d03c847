package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"
)

// fleet is what a number of engines send: 40 series each, of ten metrics.
func fleet(engines int) (all []labels.Labels) {
	for e := range engines {
		for i := range 40 {
			all = append(all, labels.FromStrings("__name__", []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
				"vllm:kv_cache_usage_perc", "vllm:num_preemptions_total", "vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket", "vllm:e2e_request_latency_seconds_bucket", "vllm:request_success_total"}[i%10],
				"engine", "0", "instance", fmt.Sprintf("10.0.%d.%d:8000", e/250, e%250), "job", "engines", "le", []string{"0.1", "0.5", "1", "+Inf"}[i/10], "model_name", "meta-llama/Llama-3.1-8B-Instruct"))
		}
	}
	return all
}

// scrapes appends so many rounds of samples, 15 s apart, with the references that a scraper keeps.
func scrapes(b testing.TB, to storage.AppendableV2, all []labels.Labels, refs []storage.SeriesRef, first, n int) {
	for round := first; round < first+n; round++ {
		app := to.AppenderV2(context.Background())
		at := began.Add(time.Duration(round) * 15 * time.Second).UnixMilli()
		for i, ls := range all {
			ref, err := app.Append(refs[i], ls, 0, at, float64(round*(i%7)), nil, nil, storage.AppendV2Options{})
			if err != nil {
				b.Fatal(err)
			}
			refs[i] = ref
		}
		if err := app.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

func bare(b testing.TB) *tsdb.DB {
	o := tsdb.DefaultOptions()
	o.WALCompression = compression.Snappy
	o.OutOfOrderTimeWindow = (10 * time.Minute).Milliseconds() // as open
	db, err := tsdb.Open(b.TempDir(), slog.New(slog.DiscardHandler), nil, o, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

// BenchmarkAppend is the guard's cost: the same rounds into a bare TSDB and through the guard, by turns. By references, as a scraper sends, and
// by labels alone, as remote write does.
func BenchmarkAppend(b *testing.B) {
	all := fleet(100)
	for _, kind := range []string{"references", "labels"} {
		b.Run(kind, func(b *testing.B) {
			plain, guarded := bare(b), open(b, b.TempDir(), Budget{}).Appendable("bench")
			refs := [2][]storage.SeriesRef{make([]storage.SeriesRef, len(all)), make([]storage.SeriesRef, len(all))}
			var took [2]time.Duration
			round := 0
			for b.Loop() {
				for i := range 2 {
					k := (i + round) % 2 // neither is always first
					to := []storage.AppendableV2{plain, guarded}[k]
					if kind == "labels" {
						clear(refs[k])
					}
					start := time.Now()
					scrapes(b, to, all, refs[k], round, 1)
					took[k] += time.Since(start)
				}
				round++
			}
			n := float64(round * len(all))
			b.ReportMetric(n/took[0].Seconds(), "bare/s")
			b.ReportMetric(n/took[1].Seconds(), "guarded/s")
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
		})
	}
}

// BenchmarkMemory is what a series takes, its first two hours of samples with it.
func BenchmarkMemory(b *testing.B) {
	all := fleet(2500)
	for b.Loop() {
		before := heap()
		db := open(b, b.TempDir(), Budget{})
		scrapes(b, db.Appendable("bench"), all, make([]storage.SeriesRef, len(all)), 0, 60)
		b.ReportMetric((heap()-before)/float64(len(all)), "B/series")
		db.Close()
	}
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkQuery is a typical panel over a day of 100 engines, 4,000 series at 15 s: the rate of tokens by model, 300 points.
func BenchmarkQuery(b *testing.B) {
	db := open(b, b.TempDir(), Budget{})
	all := fleet(100)
	scrapes(b, db.Appendable("bench"), all, make([]storage.SeriesRef, len(all)), 0, 24*240)
	if err := db.detail.store.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	for name, query := range map[string]string{
		"rate":     `sum by (model_name) (rate(vllm:generation_tokens_total[5m]))`,
		"quantile": `histogram_quantile(0.99, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))`,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				q, err := db.Engine().NewRangeQuery(context.Background(), db.Queryable(), nil, query, began, began.Add(24*time.Hour), 288*time.Second)
				if err != nil {
					b.Fatal(err)
				}
				res := q.Exec(context.Background())
				if m, ok := res.Value.(promql.Matrix); res.Err != nil || !ok || len(m) != 1 || len(m[0].Floats) < 299 || math.IsInf(m[0].Floats[100].F, 0) {
					b.Fatal(res)
				}
				q.Close()
			}
		})
	}
}
