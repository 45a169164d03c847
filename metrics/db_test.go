package metrics

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

func TestRestartKeepsSeriesAndTheirCount(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Budget{Each: 3})
	put := func(second int, pods ...string) {
		for _, p := range pods {
			appendAll(t, db.Appendable("test"), sample{`x{pod="` + p + `"}`, second, 1})
		}
	}
	put(0, "a", "b", "c")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir, Budget{Each: 3})
	put(15, "a", "b", "c", "d")
	want := "{__name__=\"x\", pod=\"a\"} 1\n{__name__=\"x\", pod=\"b\"} 1\n{__name__=\"x\", overflow=\"other\"} 1\n"
	if got := ask(t, db, "x", 15); !sameLines(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if len(db.Lost()) != 0 {
		t.Errorf("lost %+v", db.Lost())
	}
}

func TestOneOwner(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, Budget{})
	_, err := Open(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "belong to another process") || !strings.Contains(err.Error(), "data_dir") {
		t.Errorf("a second owner: %v", err)
	}
}

// A log that is damaged in the middle is opened, and what that cost is said.
func TestDamagedLog(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Budget{})
	for second := range 200 {
		appendAll(t, db.Appendable("test"), sample{`x{pod="a"}`, second, float64(second)})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(dir, "detail", "wal", "00000000")
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	used := len(strings.TrimRight(string(b), "\x00"))
	b[used/2] ^= 0xff
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir, Budget{})
	lost := db.Lost()
	if len(lost) != 1 || lost[0].Store != "detail" || lost[0].Bytes < int64(used/2) || !strings.HasPrefix(lost[0].At, "wal/00000000 byte ") || !lost[0].After.After(began) || !lost[0].After.Before(began.Add(200*time.Second)) {
		t.Errorf("lost %+v of %d bytes", lost, used)
	}
	appendAll(t, db.Appendable("test"), sample{`x{pod="a"}`, 300, 300})
	if got := ask(t, db, "x", 300); !strings.HasSuffix(got, " 300\n") {
		t.Error(got)
	}
}

// Samples that come late are taken within the window, and refused with an error beyond it.
func TestOutOfOrder(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	appendAll(t, db.Appendable("test"), sample{"x", 3600, 1}, sample{"x", 3300, 2})
	app := db.Appendable("test").AppenderV2(context.Background())
	defer app.Rollback()
	_, err := app.Append(0, labels.FromStrings("__name__", "x"), 0, began.UnixMilli(), 1, nil, nil, storage.AppendV2Options{})
	if err == nil {
		t.Error("an hour too late, and taken")
	}
	if got := ask(t, db, "count_over_time(x[1h])", 3600); !strings.HasSuffix(got, " 2\n") {
		t.Error(got)
	}
}

// Both forms of an appender are guarded alike, and a reference that a sender kept leads past no guard.
func TestOlderAppender(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	app := db.Appendable("test").Appender(context.Background())
	kept, err := app.Append(0, labels.FromStrings("__name__", "x", "pod", "a"), began.UnixMilli(), 1)
	if err != nil || kept == 0 {
		t.Fatal(kept, err)
	}
	folded, err := app.Append(0, labels.FromStrings("__name__", "x", "user", "alice"), began.UnixMilli(), 1)
	if err != nil || folded != 0 {
		t.Errorf("folded: %d %v", folded, err)
	}
	if _, err := app.Append(kept+1000, labels.FromStrings("__name__", "x", "user", "bob"), began.UnixMilli(), 2); err != nil {
		t.Error(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	want := "{__name__=\"x\", pod=\"a\"} 1\n{__name__=\"x\", user=\"other\"} 2\n"
	if got := ask(t, db, "x", 0); !sameLines(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestNativeHistogramsFold(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	h := func(n float64) *histogram.FloatHistogram {
		return &histogram.FloatHistogram{Count: 3 * n, Sum: n, PositiveSpans: []histogram.Span{{Length: 2}}, PositiveBuckets: []float64{n, 2 * n}}
	}
	for i, n := range []float64{1, 3, 2} { // grows by 2, starts again, and has 2
		app := db.Appendable("test").AppenderV2(context.Background())
		for _, user := range []string{"a", "b"} {
			if _, err := app.Append(0, labels.FromStrings("__name__", "h", "user", user), 0, began.Add(time.Duration(i)*time.Minute).UnixMilli(), 0, nil, h(n), storage.AppendV2Options{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, db, "histogram_count(h)", 120); got != "{user=\"other\"} 24\n" {
		t.Error(got)
	}
}

func TestOwnMetrics(t *testing.T) {
	db := open(t, t.TempDir(), Budget{})
	r := prometheus.NewRegistry()
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "whylate_x_seconds", Help: "How long.", Buckets: []float64{1}}, []string{"route"})
	r.MustRegister(seconds)
	seconds.WithLabelValues("/healthz").Observe(0.5)
	if err := Record(context.Background(), db.Appendable("whylate"), prometheus.Gatherers{r, db.Gatherer()}, labels.FromStrings("job", "whylate"), began); err != nil {
		t.Fatal(err)
	}
	want := "{__name__=\"whylate_x_seconds_bucket\", job=\"whylate\", le=\"+Inf\", route=\"/healthz\"} 1\n{__name__=\"whylate_x_seconds_bucket\", job=\"whylate\", le=\"1\", route=\"/healthz\"} 1\n"
	if got := ask(t, db, "whylate_x_seconds_bucket", 0); !sameLines(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if m := db.Metadata()["whylate_x_seconds"]; m.Help != "How long." || m.Type != "histogram" {
		t.Errorf("metadata %+v", m)
	}
	for _, r := range db.Refused() {
		t.Errorf("of its own, whylate refuses %+v", r)
	}
	if got := ask(t, db, `prometheus_tsdb_head_series`, 0); strings.Count(got, "\n") != 2 {
		t.Errorf("the stores' own figures: %s", got)
	}
}
