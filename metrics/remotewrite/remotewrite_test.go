package remotewrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, dir string) *tsdb.DB {
	t.Helper()
	db, err := tsdb.Open(dir, quiet, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// all is every sample of a store, as text.
func all(t testing.TB, db *tsdb.DB) map[string][]string {
	t.Helper()
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	out := map[string][]string{}
	set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			text := ""
			if kind == chunkenc.ValFloat {
				_, v := it.At()
				if text = fmt.Sprint(v); value.IsStaleNaN(v) {
					text = "stale"
				}
			} else {
				_, h := it.AtFloatHistogram(nil)
				text = fmt.Sprintf("histogram of %v", h.Count)
			}
			out[set.At().Labels().String()] = append(out[set.At().Labels().String()], text)
		}
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return out
}

// The client of the Prometheus project: samples, the end of a series, native histograms; and it does not come again after a 400.
func TestARealClient(t *testing.T) {
	db := open(t, t.TempDir())
	asked := 0
	h := New(db, clock)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked++; h.ServeHTTP(w, r) }))
	defer srv.Close()
	c, err := remote.NewAPI(srv.URL, remote.WithAPIPath("prometheus/api/v1/write"))
	if err != nil {
		t.Fatal(err)
	}
	native := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "h"}}, Histograms: []prompb.Histogram{
		prompb.FromIntHistogram(50_000, tsdbutil.GenerateTestHistogram(3)), prompb.FromFloatHistogram(50_001, tsdbutil.GenerateTestFloatHistogram(3))}}
	req := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{native,
		series("a", prompb.Sample{Timestamp: 50_000, Value: 1}, prompb.Sample{Timestamp: 50_001, Value: math.Float64frombits(value.StaleNaN)})}}
	if _, err := c.Write(t.Context(), remote.WriteV1MessageType, req); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(all(t, db)); got != `map[{__name__="a"}:[1 stale] {__name__="h"}:[histogram of 39 histogram of 39]]` {
		t.Error(got)
	}
	req.Timeseries = []prompb.TimeSeries{series("a", prompb.Sample{Timestamp: 10, Value: 1})}
	if _, err := c.Write(t.Context(), remote.WriteV1MessageType, req); err == nil || asked != 2 {
		t.Errorf("%v after %d requests", err, asked)
	}
}

func series(name string, samples ...prompb.Sample) prompb.TimeSeries {
	return prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: name}}, Samples: samples}
}

func labelled(pairs ...string) prompb.TimeSeries {
	ts := prompb.TimeSeries{Samples: []prompb.Sample{{Timestamp: 1000, Value: 1}}}
	for i := 0; i < len(pairs); i += 2 {
		ts.Labels = append(ts.Labels, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return ts
}

func packed(t testing.TB, ts ...prompb.TimeSeries) []byte {
	t.Helper()
	b, err := (&prompb.WriteRequest{Timeseries: ts}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return snappy.Encode(nil, b)
}

func send(h *Handler, body []byte, head ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/prometheus/api/v1/write", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", "snappy")
	r.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func clock() time.Time { return time.UnixMilli(100_000) }

// What is wrong with single samples costs those samples, and 400 says how many and why.
func TestTheRestIsKept(t *testing.T) {
	db := open(t, t.TempDir())
	h := New(db, clock)
	if w := send(h, packed(t, series("a", prompb.Sample{Timestamp: 50_000, Value: 1}))); w.Code != http.StatusNoContent {
		t.Fatal(w.Code, w.Body)
	}
	broken := prompb.FromIntHistogram(60_000, tsdbutil.GenerateTestHistogram(1))
	broken.Count = &prompb.Histogram_CountInt{CountInt: 1}
	w := send(h, packed(t,
		series("a", prompb.Sample{Timestamp: 50_000, Value: 2}),    // a second value
		series("a", prompb.Sample{Timestamp: 40_000, Value: 2}),    // older than what is there
		series("a", prompb.Sample{Timestamp: 60_000, Value: 3}),    // good
		series("b", prompb.Sample{Timestamp: 1_000_000, Value: 1}), // the future
		series("c", prompb.Sample{Timestamp: 60_000, Value: 1}, prompb.Sample{Timestamp: 59_000, Value: 2}),
		labelled("__name__", "d\xff"), labelled("__name__", "e", "", "x"), labelled("__name__", "f", "b", "1", "a", "2"), labelled("__name__", "g", "x", "1", "x", "2"), labelled("x", "secret"),
		prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "h"}}, Histograms: []prompb.Histogram{broken}},
		series("z", prompb.Sample{Timestamp: 60_000, Value: 4}),
	))
	body := w.Body.String()
	if w.Code != http.StatusBadRequest || !strings.HasPrefix(body, "10 of 13 samples are not kept, the rest is: ") {
		t.Errorf("%d %s", w.Code, body)
	}
	for _, part := range []string{"1 a second value for one time", "1 out of order", "1 more than 10 minutes in the future", "1 older than the one before it", "not UTF-8", "a label without a name", "not sorted", "a label twice", "without a metric's name", "no valid native histogram"} {
		if !strings.Contains(body, part) {
			t.Errorf("%q is not told: %s", part, body)
		}
	}
	if got := fmt.Sprint(all(t, db)); got != `map[{__name__="a"}:[1 3] {__name__="c"}:[1] {__name__="z"}:[4]]` {
		t.Error(got)
	}
	faults := fmt.Sprint(h.Faults())
	if len(h.Faults()) != 10 || strings.Contains(faults, "secret") {
		t.Errorf("%d: %s", len(h.Faults()), faults)
	}
}

func TestWholeRequestsAreRefused(t *testing.T) {
	h := New(open(t, t.TempDir()), clock)
	good := packed(t, series("a", prompb.Sample{Timestamp: 50_000, Value: 1}))
	bomb := snappy.Encode(nil, make([]byte, mostBytes+1))
	long := series(strings.Repeat("x", mostSeriesBytes), prompb.Sample{Timestamp: 1})
	for name, c := range map[string]struct {
		body []byte
		head []string
		code int
		want string
	}{
		"2.0 by type":    {good, []string{"Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"}, 415, "protobuf_message"},
		"2.0 by version": {good, []string{"X-Prometheus-Remote-Write-Version", "2.0.0"}, 415, "protobuf_message"},
		"JSON":           {good, []string{"Content-Type", "application/json"}, 415, "application/x-protobuf"},
		"no type":        {good, []string{"Content-Type", "%%"}, 415, "application/x-protobuf"},
		"gzip":           {good, []string{"Content-Encoding", "gzip"}, 415, "snappy"},
		"1.0 spelled":    {good, []string{"Content-Type", "application/x-protobuf; proto=prometheus.WriteRequest"}, 204, ""},
		"bomb":           {bomb, nil, 413, "unpacked"},
		"no snappy":      {[]byte("hello, world"), nil, 400, "snappy"},
		"cut":            {good[:len(good)-3], nil, 400, "snappy"},
		"no protobuf":    {snappy.Encode(nil, []byte{0xff, 0xff, 0xff}), nil, 400, "no prometheus.WriteRequest"},
		"cut protobuf":   {snappy.Encode(nil, []byte{0x0a, 0x20, 0x01}), nil, 400, "no prometheus.WriteRequest"},
		"long series":    {packed(t, long), nil, 400, "fewer of its samples"},
		"nothing":        {packed(t), nil, 204, ""},
	} {
		w := send(h, c.body, c.head...)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/", io.LimitReader(zeros{}, mostBytes+1))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("endless: %d", w.Code)
	}
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// away is a store that is gone.
type away struct{ at string }

type awayAppender struct {
	storage.AppenderV2
	at string
}

func (a away) AppenderV2(context.Context) storage.AppenderV2 { return awayAppender{at: a.at} }

func (a awayAppender) Append(storage.SeriesRef, labels.Labels, int64, int64, float64, *histogram.Histogram, *histogram.FloatHistogram, storage.AOptions) (storage.SeriesRef, error) {
	if a.at == "append" {
		return 0, errors.New("no space left on device")
	}
	return 1, nil
}
func (awayAppender) Commit() error   { return errors.New("no space left on device") }
func (awayAppender) Rollback() error { return nil }

// Where the store is away, the sender is told to come again.
func TestTheStoreIsAway(t *testing.T) {
	for _, at := range []string{"append", "commit"} {
		h := New(away{at}, clock)
		w := send(h, packed(t, series("a", prompb.Sample{Timestamp: 50_000, Value: 1})))
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "send it again") || len(h.Faults()) != 1 {
			t.Errorf("%s: %d %s", at, w.Code, w.Body)
		}
	}
}

// What a sender says of its metrics goes along with their samples.
func TestMetadata(t *testing.T) {
	h := New(open(t, t.TempDir()), clock)
	b, err := (&prompb.WriteRequest{Metadata: []prompb.MetricMetadata{{Type: prompb.MetricMetadata_HISTOGRAM, MetricFamilyName: "h", Help: "Of h."}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if w := send(h, snappy.Encode(nil, b)); w.Code != http.StatusNoContent {
		t.Fatal(w.Code, w.Body)
	}
	if o := h.described("h_bucket"); o.MetricFamilyName != "h" || o.Metadata.Type != "histogram" || o.Metadata.Help != "Of h." {
		t.Errorf("%+v", o)
	}
	if o := h.described("other"); o.MetricFamilyName != "" {
		t.Errorf("%+v", o)
	}
}

// Whatever comes, nothing panics, and what is answered with 204 is a whole request.
func FuzzTake(f *testing.F) {
	h := prompb.FromIntHistogram(50_000, tsdbutil.GenerateTestHistogram(1))
	for _, ts := range []prompb.TimeSeries{series("a", prompb.Sample{Timestamp: 50_000, Value: 1}), labelled("x", "y"), {Labels: []prompb.Label{{Name: "__name__", Value: "h"}}, Histograms: []prompb.Histogram{h}}} {
		b, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{ts}}).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(snappy.Encode(nil, b), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, pack bool) {
		raw := b
		if pack {
			b = snappy.Encode(nil, b)
		}
		h := New(discard{}, clock)
		w := send(h, b)
		if w.Code == http.StatusNoContent && pack && (&prompb.WriteRequest{}).Unmarshal(raw) != nil {
			t.Errorf("taken, though Prometheus would not decode it: %x", raw)
		}
		if w.Code >= 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// discard takes everything.
type discard struct{ awayAppender }

func (discard) AppenderV2(context.Context) storage.AppenderV2 { return discard{} }
func (discard) Commit() error                                 { return nil }
