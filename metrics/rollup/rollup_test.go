package rollup

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/signals"
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func open(t testing.TB) *metrics.DB {
	t.Helper()
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Detail: metrics.Keep{For: 7 * 24 * time.Hour}, Rollup: metrics.Keep{For: 400 * 24 * time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// scrape appends a page as if a target had been scraped at a second after the beginning.
func scrape(t testing.TB, db *metrics.DB, instance string, second int, page string) {
	t.Helper()
	p, err := textparse.New([]byte(page), "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if p == nil {
		t.Fatal(err)
	}
	app := db.Appendable("scrape").AppenderV2(context.Background())
	for {
		kind, err := p.Next()
		if err != nil {
			break
		}
		if kind != textparse.EntrySeries {
			continue
		}
		var ls labels.Labels
		p.Labels(&ls)
		_, _, v := p.Series()
		b := labels.NewBuilder(ls)
		b.Set("instance", instance)
		b.Set("job", "engines")
		if _, err := app.Append(0, b.Labels(), 0, began.Add(time.Duration(second)*time.Second).UnixMilli(), v, nil, nil, storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

func minute(t testing.TB, db *metrics.DB, second int) int {
	t.Helper()
	till := began.Add(time.Duration(second) * time.Second)
	n, err := Minute(context.Background(), db.Detail(), db.Signals("rollup"), till.Add(-Every), till)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ask(t testing.TB, db *metrics.DB, query string, second int) []string {
	t.Helper()
	q, err := db.Engine().NewInstantQuery(context.Background(), db.Queryable(), nil, query, began.Add(time.Duration(second)*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	var out []string
	for _, s := range res.Value.(promql.Vector) {
		out = append(out, fmt.Sprintf("%s %g", s.Metric, s.F))
	}
	slices.Sort(out)
	return out
}

func expect(t testing.TB, db *metrics.DB, query string, second int, want ...string) {
	t.Helper()
	if got := ask(t, db, query, second); !slices.Equal(got, want) {
		t.Errorf("%s\n got %s\nwant %s", query, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// A page of a real engine becomes signals: nothing of it is refused, and what the page does not have is not there.
func TestVLLM(t *testing.T) {
	page, err := os.ReadFile("../../look/testdata/vllm-0.32.0.prom")
	if err != nil {
		t.Fatal(err)
	}
	db := open(t)
	scrape(t, db, "a:8000", 30, string(page))
	if n := minute(t, db, 60); n == 0 {
		t.Fatal("no signal was written")
	}
	for _, r := range db.Refused() {
		t.Errorf("refused: %+v", r)
	}
	expect(t, db, `whylate_request_running`, 60, `{__name__="whylate_request_running", instance="a:8000", job="engines", model="tiny", native="vllm:num_requests_running", producer="vllm", rank="0"} `+onPage(t, string(page), "vllm:num_requests_running"))
	expect(t, db, `whylate_itl_seconds_count - on(job) vllm:inter_token_latency_seconds_count`, 60, `{job="engines"} 0`)
	if got, want := len(ask(t, db, `whylate_itl_seconds_bucket`, 60)), len(ask(t, db, `vllm:inter_token_latency_seconds_bucket`, 60)); got != want || got == 0 {
		t.Errorf("%d buckets, want %d", got, want)
	}
	expect(t, db, `{__name__=~"whylate_gpu_.*"}`, 60)
	if again := len(ask(t, db, `{__name__=~"whylate_.+"}`, 60)); again == 0 || minute(t, db, 60) < 0 || len(ask(t, db, `{__name__=~"whylate_.+"}`, 60)) != again {
		t.Error("a minute that is written again changes what is there")
	}
}

func onPage(t testing.TB, page, name string) string {
	t.Helper()
	for l := range strings.Lines(page) {
		if strings.HasPrefix(l, name+"{") {
			_, v, _ := strings.Cut(l, "} ")
			return strings.TrimSuffix(strings.TrimSpace(v), ".0")
		}
	}
	t.Fatal("not on the page: " + name)
	return ""
}

// Cache use comes as a share, power as watts, whatever a producer's unit.
func TestUnits(t *testing.T) {
	db := open(t)
	for i := range signals.All() {
		s := &signals.All()[i]
		for _, n := range s.From {
			if n.Times == 1 || s.Keep != "rollup" || s.Kind == signals.Histogram || n.Producer != "dcgm" || len(n.Where) > 0 {
				continue
			}
			scrape(t, db, "node:9400", 30, n.Name+`{gpu="0",UUID="GPU-1f0c9f64-7f0a-4a5e-9d53-4c2f7a1b9e10",Hostname="node"} 50`+"\n")
			minute(t, db, 60)
			expect(t, db, fmt.Sprintf(`max(%s{native=%q})`, metrics.NameOf(s), n.Name), 60, fmt.Sprintf("{} %g", 50*n.Times))
		}
	}
}

// A counter that starts again has grown by the same in its signal as in detail, even where one minute hides the fall.
func TestCounterAcrossResets(t *testing.T) {
	db := open(t)
	for i, v := range []float64{100, 150, 200, 250, 300, 10, 400, 410, 420, 430, 440, 450} { // at 75 s it has started again, at 90 s it is above what it was
		scrape(t, db, "a:8000", 15*i, fmt.Sprintf("vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} %g\n", v))
		if i%4 == 0 && i > 0 {
			minute(t, db, 15*i)
		}
	}
	minute(t, db, 165)
	signal := metrics.NameOf(signals.Sent("vllm:generation_tokens_total"))
	expect(t, db, `resets(`+signal+`[10m])`, 165, `{instance="a:8000", job="engines", model="tiny", native="vllm:generation_tokens_total", producer="vllm", rank="0"} 1`)
	// the newest of three minutes, and the first after the fall
	expect(t, db, `sum by () (count_over_time(`+signal+`[10m]))`, 165, `{} 4`)
}

// What did not come in a minute is not there in the next, and a value that is none is none.
func TestAbsentStaysAbsent(t *testing.T) {
	db := open(t)
	scrape(t, db, "a:8000", 15, "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 3\nvllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} NaN\n")
	minute(t, db, 60)
	if n := minute(t, db, 120); n != 0 {
		t.Errorf("%d samples of a minute in which nothing came", n)
	}
	expect(t, db, `count_over_time(whylate_request_running[10m])`, 120, `{instance="a:8000", job="engines", model="tiny", native="vllm:num_requests_running", producer="vllm", rank="0"} 1`)
	expect(t, db, `whylate_request_waiting`, 60)
}
