package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func open(t testing.TB, dir string, b Budget) *DB {
	t.Helper()
	db, err := Open(Config{Dir: dir, Detail: Keep{For: 7 * 24 * time.Hour}, Rollup: Keep{For: 400 * 24 * time.Hour}, OutOfOrder: 10 * time.Minute, Budget: b, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// sample is a value of a series at a second after the beginning.
type sample struct {
	series string
	second int
	value  float64
}

func appendAll(t testing.TB, to storage.AppendableV2, samples ...sample) {
	t.Helper()
	app := to.AppenderV2(context.Background())
	for _, s := range samples {
		ls, err := Parser().ParseMetric(s.series)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := app.Append(0, ls, 0, began.Add(time.Duration(s.second)*time.Second).UnixMilli(), s.value, nil, nil, storage.AppendV2Options{}); err != nil {
			t.Fatalf("%s: %v", s.series, err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// ask is the answer to an instant query at a second after the beginning, a line a series.
func ask(t testing.TB, db *DB, query string, second int) string {
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
	var b strings.Builder
	for _, s := range res.Value.(promql.Vector) {
		fmt.Fprintf(&b, "%s %g\n", s.Metric, s.F)
	}
	return b.String()
}

func all(t testing.TB, db *DB) (out []labels.Labels) {
	t.Helper()
	q, err := db.Queryable().Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, ".+"))
	for set.Next() {
		out = append(out, set.At().Labels())
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return out
}

func TestSeriesAsTheyAre(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	appendAll(t, db.Appendable("test"),
		sample{`vllm:num_requests_running{instance="10.0.0.1:8000",model_name="meta-llama/Llama-3.1-8B-Instruct",engine="0"}`, 0, 7},
		sample{`DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1f0c9f64-7f0a-4a5e-9d53-4c2f7a1b9e10",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-7"}`, 0, 99},
		sample{`kube_pod_info{namespace="serving",pod="vllm-7d9f8b6c5d-x2v4k",node="ip-10-0-0-1.ec2.internal"}`, 0, 1})
	want := `{Hostname="node-7", UUID="GPU-1f0c9f64-7f0a-4a5e-9d53-4c2f7a1b9e10", __name__="DCGM_FI_DEV_GPU_UTIL", device="nvidia0", gpu="0", modelName="NVIDIA H100 80GB HBM3"} 99
{__name__="kube_pod_info", namespace="serving", node="ip-10-0-0-1.ec2.internal", pod="vllm-7d9f8b6c5d-x2v4k"} 1
{__name__="vllm:num_requests_running", engine="0", instance="10.0.0.1:8000", model_name="meta-llama/Llama-3.1-8B-Instruct"} 7
`
	if got := ask(t, db, `{__name__=~".+"}`, 0); !sameLines(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if r := db.Refused(); len(r) != 0 {
		t.Errorf("refused: %+v", r)
	}
}

func sameLines(a, b string) bool {
	in := func(s string) map[string]bool {
		m := map[string]bool{}
		for l := range strings.Lines(s) {
			m[l] = true
		}
		return m
	}
	x, y := in(a), in(b)
	for l := range x {
		if !y[l] {
			return false
		}
	}
	return len(x) == len(y)
}

// A length of whylate's own histograms gets in as it is; a text under the same name does not.
func TestLengthsAreNoTexts(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	appendAll(t, db.Appendable("test"), sample{`whylate_request_ttft_seconds_count{deployment="prod",prompt="to 4k"}`, 0, 1}, sample{`whylate_request_tpot_seconds_count{deployment="prod",output="above 256k"}`, 0, 1})
	if r := db.Refused(); len(r) > 0 {
		t.Errorf("refused: %+v", r)
	}
	for _, text := range []string{"hi", "to go", "to 12345k", "from 4k", "to 4k of it", "4k"} {
		for _, label := range []string{"prompt", "output"} {
			if unfit(known[label], text) == "" {
				t.Errorf("%s=%q gets in", label, text)
			}
		}
	}
}

// What is forbidden is found nowhere in the store, and is counted.
func TestForbiddenValues(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	forbidden := map[string]string{
		"request_id": "cmpl-1", "user": "alice", "end_user": "bob", "trace_id": "abc", "prompt": "hi", "session": "s1",
		"reason": "9f86d081884c7d659a2feaa0c55ad015", "source": "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "method": "carol@example.com",
		"handler": "/v1/chat?key=1", "path": "/wp-login.php", "route": "/admin/setup", "status": "sk-abcdefghijklmnop", "kind": "What is the capital of France, please?",
		"mode": "1234567890", "instance": "dave@example.com", "pod": "https://x:y@host/", "tenant": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
	}
	app := db.Appendable("test").AppenderV2(context.Background())
	for label, v := range forbidden {
		if _, err := app.Append(0, labels.FromStrings("__name__", "x_total", label, v), 0, began.UnixMilli(), 1, nil, nil, storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	stored := all(t, db)
	if len(stored) != len(forbidden) {
		t.Errorf("%d series, want one for each of %d labels", len(stored), len(forbidden))
	}
	for _, ls := range stored {
		ls.Range(func(l labels.Label) {
			if l.Name != model.MetricNameLabel && l.Value != other {
				t.Errorf("%s got in as %s", l.Value, ls)
			}
		})
	}
	text := fmt.Sprintf("%+v", db.Refused())
	for label, v := range forbidden {
		if !strings.Contains(text, "Label:"+label+" ") || len(v) > 4 && strings.Contains(text, v) {
			t.Errorf("%s=%q: refused %s", label, v, text)
		}
	}
}

// A scanner's paths are one series that counts what all of them counted.
func TestScanner(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	for second := 0; second <= 600; second += 15 {
		samples := []sample{{`http_requests_total{handler="/v1/chat/completions",instance="a",status="2xx"}`, second, float64(second)}}
		for i := range second / 15 * 10 { // ten new paths each time
			samples = append(samples, sample{fmt.Sprintf(`http_requests_total{handler="/%d/.env",instance="a",status="4xx"}`, i), second, 1})
		}
		appendAll(t, db.Appendable("scrape"), samples...)
	}
	if n := len(all(t, db)); n != 2 {
		t.Errorf("%d series: %v", n, all(t, db))
	}
	want := `{__name__="http_requests_total", handler="other", instance="a", status="4xx"} 320` + "\n" // those of after the first two minutes
	if got := ask(t, db, `http_requests_total{handler="other"}`, 600); got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

func TestFolding(t *testing.T) {
	for name, c := range map[string]struct {
		samples []sample
		ask     string
		want    string
	}{
		"counters by their growth": {[]sample{
			{`x_total{user="a"}`, 0, 100}, {`x_total{user="b"}`, 0, 1000}, {`x_total{user="a"}`, 15, 103}, {`x_total{user="b"}`, 15, 1004},
			{`x_total{user="a"}`, 30, 2}, {`x_total{user="b"}`, 30, 1005}}, `x_total`, `{__name__="x_total", user="other"} 10`},
		"gauges that add": {[]sample{{`vllm:num_requests_running{user="a"}`, 0, 3}, {`vllm:num_requests_running{user="b"}`, 0, 4}, {`vllm:num_requests_running{user="a"}`, 15, 1}},
			`vllm:num_requests_running`, `{__name__="vllm:num_requests_running", user="other"} 5`},
		"other gauges by the greatest": {[]sample{{`temperature{user="a"}`, 0, 30}, {`temperature{user="b"}`, 0, 40}, {`temperature{user="b"}`, 15, 35}},
			`temperature`, `{__name__="temperature", user="other"} 35`},
		"a gauge that went stale": {[]sample{{`temperature{user="a"}`, 0, 30}, {`temperature{user="b"}`, 0, 40}, {`temperature{user="b"}`, 15, math.Float64frombits(value.StaleNaN)}, {`temperature{user="a"}`, 15, 31}},
			`temperature`, `{__name__="temperature", user="other"} 31`},
		"buckets one by one": {[]sample{
			{`h_bucket{user="a",le="1"}`, 0, 1}, {`h_bucket{user="a",le="+Inf"}`, 0, 2}, {`h_bucket{user="b",le="1"}`, 0, 10}, {`h_bucket{user="b",le="+Inf"}`, 0, 20},
			{`h_bucket{user="a",le="1"}`, 15, 3}, {`h_bucket{user="a",le="+Inf"}`, 15, 6}, {`h_bucket{user="b",le="1"}`, 15, 11}, {`h_bucket{user="b",le="+Inf"}`, 15, 22}},
			`h_bucket`, "{__name__=\"h_bucket\", le=\"+Inf\", user=\"other\"} 6\n{__name__=\"h_bucket\", le=\"1\", user=\"other\"} 3"},
		"one that is sent as other": {[]sample{{`x_total{status="other"}`, 0, 5}, {`x_total{status="other"}`, 15, 7}}, `x_total`, `{__name__="x_total", status="other"} 2`},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, t.TempDir(), Budget{})
			for second := range 31 {
				var now []sample
				for _, s := range c.samples {
					if s.second == second {
						now = append(now, s)
					}
				}
				appendAll(t, db.Appendable("test"), now...)
			}
			if got := ask(t, db, c.ask, 30); !sameLines(got, c.want+"\n") {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// Whatever is sent, there are no more series than the budgets allow.
func TestBudgets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		b := Budget{Total: 20 + r.IntN(400), Each: 2 + r.IntN(30)}
		db := open(t, t.TempDir(), b)
		for second := range 30 {
			app := db.Appendable("test").AppenderV2(context.Background())
			for range 200 {
				ls := randomSeries(r)
				if _, err := app.Append(storage.SeriesRef(r.IntN(3)*r.IntN(1000)), ls, 0, began.Add(time.Duration(second)*time.Second).UnixMilli(), 1, nil, nil, storage.AppendV2Options{}); err != nil &&
					!strings.Contains(err.Error(), "duplicate sample") {
					t.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		stored := all(t, db)
		by := map[string]map[uint64]bool{}
		for _, ls := range stored {
			name := nameOf(ls)
			if by[name] == nil {
				by[name] = map[uint64]bool{}
			}
			by[name][identityOf(ls)] = true
		}
		for name, own := range by {
			if len(own) > b.Each {
				t.Errorf("%s has %d series, budget %d", name, len(own), b.Each)
			}
		}
		if len(stored) > b.Total {
			t.Errorf("%d series, budget %d", len(stored), b.Total)
		}
		if g := db.detail.guard; g.series != len(stored) || len(g.metrics) > b.Total+1 {
			t.Errorf("the guard counts %d series of %d metrics, there are %d", g.series, len(g.metrics), len(stored))
		}
		db.Close()
	}
}

func randomSeries(r *rand.Rand) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	name := fmt.Sprintf("m%d", r.IntN(12))
	switch r.IntN(4) {
	case 0:
		name += "_bucket"
		b.Set("le", fmt.Sprint(r.IntN(8)))
	case 1:
		name += "_total"
	}
	b.Set(model.MetricNameLabel, name)
	for range r.IntN(4) {
		b.Set([]string{"pod", "status", "user", "handler", "other"}[r.IntN(5)], []string{fmt.Sprintf("p-%d", r.IntN(1000)), "other", fmt.Sprint(r.Uint64()), "/v1/models"}[r.IntN(4)])
	}
	return b.Labels()
}

// Whatever a label is called and whatever stands in it, what is found afterwards is fit to be kept, and no refusal shows a value.
func FuzzLabels(f *testing.F) {
	for _, v := range []string{"", "other", "a", "/v1/models", "/etc/passwd", "alice@example.com", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "\xff", "GPU-0", "x\ny", "9f86d081884c7d65", "https://a:b@c/", "+Inf"} {
		f.Add("x_total", "status", v)
		f.Add("x_bucket", "le", v)
		f.Add("x", v, "a")
		f.Add(v, "pod", v)
	}
	db := open(f, f.TempDir(), Budget{Total: 300, Each: 20})
	second := 0
	f.Fuzz(func(t *testing.T, name, label, v string) {
		second++
		app := db.Appendable("fuzz").AppenderV2(context.Background())
		if _, err := app.Append(0, labels.FromStrings(model.MetricNameLabel, name, label, v), 0, began.Add(time.Duration(second)*time.Second).UnixMilli(), 1, nil, nil, storage.AppendV2Options{}); err != nil && label != model.MetricNameLabel {
			t.Errorf("%q{%q=%q}: %v", name, label, v, err)
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
		stored := all(t, db)
		if len(stored) > 300 {
			t.Fatalf("%d series", len(stored))
		}
		for _, ls := range stored {
			ls.Range(func(l labels.Label) {
				switch {
				case l.Name == model.MetricNameLabel && isName(l.Value), (l.Name == labels.BucketLabel || l.Name == "quantile") && isBound(l.Value), l.Value == other && isName(l.Name):
				case unfit(db.detail.guard.trust(l.Name), l.Value) != "":
					t.Errorf("%s", ls)
				}
			})
		}
	})
}

// Looking for sources that may be let go holds everybody up, so it is not done for each one that finds no place.
func TestFoldedSeriesAreSweptSeldom(t *testing.T) {
	now := began
	g := newGuard("detail", Budget{Total: 1000, Each: 10}, false, func() time.Time { return now })
	p := &pool{labels: labels.FromStrings("__name__", "hits_total", "path", other), counts: true, from: map[uint64]*source{}}
	add := func(i, second int) {
		g.add(p, labels.FromStrings("__name__", "hits_total", "path", fmt.Sprint(i)), false, int64(second)*1000, 1, nil)
	}
	for i := range mostSources {
		add(i, 0)
	}
	add(mostSources, 600) // the first that finds no place looks: all are as new as the newest
	p.newest = 600_000
	if add(mostSources+1, 600); g.sources != mostSources || g.droppedSamples != 2 {
		t.Errorf("%d sources are followed, %d samples dropped: looked again at once", g.sources, g.droppedSamples)
	}
	now = now.Add(sweepEvery)
	if add(mostSources+2, 600); g.sources != 1 || g.droppedSamples != 2 {
		t.Errorf("%d sources are followed, %d samples dropped: the silent ones are not let go", g.sources, g.droppedSamples)
	}
}
