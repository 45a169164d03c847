package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/exposition"
)

// openLater is a store whose clock is days after the beginning, with a sample of then.
func openLater(t testing.TB, dir string, keep Keep, days int) *DB {
	t.Helper()
	now := began.AddDate(0, 0, days)
	db, err := Open(Config{Dir: dir, Detail: keep, OutOfOrder: 10 * time.Minute, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	appendAll(t, db.Appendable("test"), sample{`live`, days * 86400, 7})
	return db
}

// importPages imports a page a minute.
func importPages(t testing.TB, db *DB, from, minutes int, page func(minute int) string) (sum Paged) {
	t.Helper()
	i := db.Import("import")
	for m := from; m < from+minutes; m++ {
		at := began.Add(time.Duration(m) * time.Minute)
		err := i.Append(context.Background(), at, func(app storage.AppenderV2) (int, error) {
			p, err := AppendPage(app, exposition.Mend([]byte(page(m)), "text/plain"), labels.FromStrings("job", "import", "instance", "e0:8000"), at.UnixMilli())
			sum.Samples, sum.Guarded, sum.Late = sum.Samples+p.Samples, sum.Guarded+p.Guarded, sum.Late+p.Late
			return p.Samples, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := i.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return sum
}

func counting(minute int) string {
	return fmt.Sprintf("# TYPE c counter\n# HELP c what it counts\nc_total{user=\"u%d\"} 1\nc_total %d\nh_bucket{le=\"1\"} %d\nh_bucket{le=\"+Inf\"} %d\nh_sum %d\nh_count %d\n", minute, minute, minute, minute, minute, minute)
}

// What is days old goes into blocks beside what is new, and is there at the next start too.
func TestImportOfOldPages(t *testing.T) {
	dir := t.TempDir()
	db := openLater(t, dir, Keep{For: 7 * 24 * time.Hour}, 2)
	if sum := importPages(t, db, 0, 300, counting); sum.Samples != 300*5 || sum.Guarded != 300 || sum.Late != 0 {
		t.Errorf("%+v", sum)
	}
	check := func(db *DB) {
		t.Helper()
		for minute, want := range map[int]string{0: " 0\n", 119: " 119\n", 299: " 299\n"} {
			if got := ask(t, db, `c_total{user!="other"}`, minute*60); got != `{__name__="c_total", instance="e0:8000", job="import"}`+want {
				t.Errorf("minute %d: %s", minute, got)
			}
		}
		if got := ask(t, db, `increase(h_count[60m])`, 200*60); !strings.HasSuffix(got, " 60\n") {
			t.Error(got)
		}
		if got := ask(t, db, `live`, 2*86400); !strings.HasSuffix(got, " 7\n") {
			t.Error(got)
		}
	}
	check(db)
	if n := len(db.detail.store.Blocks()); n != 3 { // 12:00, 14:00, 16:00
		t.Errorf("%d blocks", n)
	}
	if got := db.detail.guard.series; got != 1 {
		t.Errorf("%d series are said to be in memory", got)
	}
	refused := db.Refused()
	if len(refused) != 1 || refused[0].Label != "user" || refused[0].Count != 300 || refused[0].From != "import" {
		t.Errorf("%+v", refused)
	}
	// Again, it changes nothing.
	importPages(t, db, 0, 300, counting)
	check(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openLater(t, dir, Keep{For: 7 * 24 * time.Hour}, 2)
	check(db)
	appendAll(t, db.Appendable("test"), sample{`live`, 2*86400 + 15, 8}) // the memory takes what is new as before
	if left, _ := filepath.Glob(filepath.Join(dir, importDir+"*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestImportOfNewPagesGoesIntoMemory(t *testing.T) {
	db := openLater(t, t.TempDir(), Keep{}, 1)
	importPages(t, db, 24*60-3, 3, counting)
	if got := ask(t, db, `c_total{user!="other"}`, 86400); !strings.HasSuffix(got, " 1439\n") || len(db.detail.store.Blocks()) != 0 {
		t.Errorf("%s, %d blocks", got, len(db.detail.store.Blocks()))
	}
}

func TestImportRefusesTimesThatAreNotKept(t *testing.T) {
	db := openLater(t, t.TempDir(), Keep{For: 24 * time.Hour}, 2)
	i := db.Import("import")
	for at, want := range map[time.Time]string{began: "kept for 24h0m0s (metrics.retention.detail)", began.AddDate(0, 0, 3): "ahead of the server's clock"} {
		err := i.Append(context.Background(), at, func(storage.AppenderV2) (int, error) { t.Error("called"); return 0, nil })
		var untimely *Untimely
		if !errors.As(err, &untimely) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
	if err := i.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// Pages out of order make more blocks, and nothing is lost.
func TestImportOutOfOrder(t *testing.T) {
	db := openLater(t, t.TempDir(), Keep{}, 2)
	i := db.Import("import")
	for _, minute := range []int{70, 10, 200, 30} {
		at := began.Add(time.Duration(minute) * time.Minute)
		if err := i.Append(context.Background(), at, func(app storage.AppenderV2) (int, error) {
			_, err := app.Append(0, labels.FromStrings("__name__", "x"), 0, at.UnixMilli(), float64(minute), nil, nil, storage.AppendV2Options{})
			return 1, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := i.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, minute := range []int{70, 10, 200, 30} {
		if got := ask(t, db, "x", minute*60); !strings.HasSuffix(got, fmt.Sprintf(" %d\n", minute)) {
			t.Errorf("minute %d: %q", minute, got)
		}
	}
}

// No room is said, not passed over.
func TestImportThatThereIsNoRoomFor(t *testing.T) {
	db := openLater(t, t.TempDir(), Keep{Bytes: 1}, 2)
	i := db.Import("import")
	at := began
	if err := i.Append(context.Background(), at, func(app storage.AppenderV2) (int, error) {
		_, err := app.Append(0, labels.FromStrings("__name__", "x"), 0, at.UnixMilli(), 1, nil, nil, storage.AppendV2Options{})
		return 1, err
	}); err != nil {
		t.Fatal(err)
	}
	if err := i.Close(context.Background()); err == nil || !strings.Contains(err.Error(), "metrics.max_bytes") {
		t.Error(err)
	}
}

func TestWhatAnImportLeftBehindIsRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, importDir+"123", "chunks_head"), 0o755); err != nil {
		t.Fatal(err)
	}
	openLater(t, dir, Keep{}, 0)
	if left, _ := filepath.Glob(filepath.Join(dir, importDir+"*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A value of a page is appended whatever it is; a time of its own is kept.
func FuzzAppendPage(f *testing.F) {
	f.Add([]byte(counting(1)))
	f.Add([]byte("a 1 1774958400000\na{le=\"x\"} NaN\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		for _, media := range []string{"text/plain", "application/openmetrics-text"} {
			p, err := AppendPage(nowhere{}, exposition.Mend(page, media), labels.FromStrings("job", "import"), 1)
			if err != nil {
				t.Errorf("%s: %v", media, err)
			}
			if m := exposition.Mend(page, media); p.Samples != m.Samples {
				t.Errorf("%s: %d of %d samples", media, p.Samples, m.Samples)
			}
		}
	})
}

type nowhere struct{ storage.AppenderV2 }

func (nowhere) Append(_ storage.SeriesRef, ls labels.Labels, _, _ int64, v float64, _ *histogram.Histogram, _ *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	if ls.Get("job") == "" && !math.IsNaN(v) {
		return 0, errors.New("a series without its target's labels")
	}
	return 1, nil
}
