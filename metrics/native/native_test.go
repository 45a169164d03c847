package native

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/metrics"
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func put(t testing.TB, db *metrics.DB, values []float64, ls ...string) {
	t.Helper()
	app := db.Appendable("scrape").AppenderV2(t.Context())
	for i, v := range values {
		if _, err := app.Append(0, labels.FromStrings(ls...), 0, began.Add(time.Duration(i)*15*time.Second).UnixMilli(), v, nil, nil, storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) *metrics.DB {
	t.Helper()
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// What is registered comes with its samples or without; of everything else one series tells how often it comes.
func TestReaders(t *testing.T) {
	db := open(t)
	put(t, db, []float64{1, math.NaN(), 3, math.Float64frombits(value.StaleNaN)}, "__name__", "vllm:num_requests_running", "instance", "a:1", "engine", "0")
	for _, le := range []string{"0.1", "+Inf"} {
		put(t, db, []float64{1, 2, 3, 4}, "__name__", "vllm:time_to_first_token_seconds_bucket", "instance", "a:1", "le", le)
	}
	for _, code := range []string{"200", "404"} {
		put(t, db, []float64{1, 2, 3, 4}, "__name__", "app_requests_total", "instance", "a:1", "code", code)
	}
	told := func(read Reader) map[string]string {
		t.Helper()
		tracks, err := read(context.Background(), db.Detail(), began.Add(-time.Minute), began.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, x := range tracks {
			out[x.Family+x.Labels.Get("code")] = fmt.Sprintf("%s %d points %d histograms %d NaN of %d series", x.Target, len(x.Points), len(x.Hists), x.NaN, x.Series)
		}
		return out
	}
	for name, c := range map[string]struct {
		read Reader
		want map[string]string
	}{
		"registered": {Registered, map[string]string{"vllm:num_requests_running": "a:1 2 points 0 histograms 1 NaN of 1 series", "vllm:time_to_first_token_seconds": "a:1 0 points 4 histograms 0 NaN of 2 series"}},
		"labels":     {Labels, map[string]string{"vllm:num_requests_running": "a:1 0 points 0 histograms 0 NaN of 1 series", "vllm:time_to_first_token_seconds": "a:1 0 points 0 histograms 0 NaN of 2 series"}},
		"sight": {Sight, map[string]string{"vllm:num_requests_running": "a:1 2 points 0 histograms 1 NaN of 1 series", "vllm:time_to_first_token_seconds": "a:1 0 points 4 histograms 0 NaN of 2 series",
			"app_requests_total200": "a:1 4 points 0 histograms 0 NaN of 1 series", "app_requests_total404": "a:1 0 points 0 histograms 0 NaN of 1 series"}},
	} {
		if got := told(c.read); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s:\n%v\nwant\n%v", name, got, c.want)
		}
	}
}

// BenchmarkSight looks at ten minutes of a hundred engines, a sample every 15 s of 300 series each, half of them registered.
func BenchmarkSight(b *testing.B) {
	db := open(b)
	values := make([]float64, 40)
	for i := range values {
		values[i] = float64(i)
	}
	for e := range 100 {
		for k := range 150 {
			put(b, db, values, "__name__", "vllm:request_queue_time_seconds_bucket", "instance", fmt.Sprintf("10.0.0.%d:8000", e), "le", fmt.Sprint(k))
			put(b, db, values, "__name__", fmt.Sprintf("app_metric_%d", k), "instance", fmt.Sprintf("10.0.0.%d:8000", e))
		}
	}
	var tracks []*adapter.Track
	for b.Loop() {
		var err error
		if tracks, err = Sight(b.Context(), db.Detail(), began, began.Add(10*time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
	if len(tracks) != 100*151 {
		b.Fatal(len(tracks))
	}
}
