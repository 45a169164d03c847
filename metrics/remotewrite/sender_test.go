package remotewrite

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	prom "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

// It needs modules that nothing else here needs, so it stands behind a tag: storage/remote imports processors of the OpenTelemetry Collector.

// A Prometheus's own sender, reading its own log: samples, the end of a series, native histograms.
func TestARealSender(t *testing.T) {
	to := open(t, t.TempDir())
	h := New(to, nil)
	answered := make(chan int, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes())
		answered <- rec.Code
	}))
	defer srv.Close()

	dir := t.TempDir()
	from := open(t, dir)
	sender := remote.NewStorage(quiet, prometheus.NewRegistry(), func() (int64, error) { return 0, nil }, dir, time.Second, nil, false)
	defer sender.Close()
	from.SetWriteNotified(sender)
	c, err := prom.Load(fmt.Sprintf("remote_write: [{url: %q, send_native_histograms: true, metadata_config: {send: false}, queue_config: {batch_send_deadline: 50ms}}]", srv.URL), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.ApplyConfig(c); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Minute).UnixMilli() // the sender leaves out what is older than itself
	app := from.Appender(t.Context())
	for i, v := range []float64{1, 2, math.Float64frombits(value.StaleNaN)} {
		if _, err := app.Append(0, labels.FromStrings("__name__", "a", "model", "m/x"), at+int64(i), v); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "h"), at, tsdbutil.GenerateTestHistogram(3), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "f"), at, nil, tsdbutil.GenerateTestFloatHistogram(3)); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(map[string][]string{`{__name__="a", model="m/x"}`: {"1", "2", "stale"}, `{__name__="h"}`: {"histogram of 39"}, `{__name__="f"}`: {"histogram of 39"}})
	limit := time.After(30 * time.Second)
	for fmt.Sprint(all(t, to)) != want {
		select {
		case code := <-answered:
			if code != http.StatusNoContent {
				t.Fatalf("answered %d; %v", code, h.Faults())
			}
		case <-limit:
			t.Fatalf("there is %v, want %s", all(t, to), want)
		}
	}
}
