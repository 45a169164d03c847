package receive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/whylate/whylate/ingest/otlp"
)

// book keeps samples as lines of text.
type book struct {
	lines  []string
	staged []string
	fail   error                                 // of a commit
	refuse func(l labels.Labels, at int64) error // of a sample

}

func (b *book) write(l labels.Labels, at int64, v float64, h *histogram.Histogram) {
	what := fmt.Sprint(v)
	switch {
	case h != nil && value.IsStaleNaN(h.Sum), h == nil && value.IsStaleNaN(v):
		what = "stale"
	case h != nil:
		f := h.ToFloat(nil).Compact(0)
		what = fmt.Sprintf("schema %d count %v sum %v zero %v", f.Schema, f.Count, f.Sum, f.ZeroCount)
		for it := f.AllBucketIterator(); it.Next(); {
			if c := it.At(); c.Count != 0 {
				what += fmt.Sprintf(" %v", c)
			}
		}
	}
	b.staged = append(b.staged, fmt.Sprintf("%s %d %s", l, at, what))
}

func (b *book) Commit() error {
	if b.fail == nil {
		b.lines = append(b.lines, b.staged...)
	}
	b.staged = nil
	return b.fail
}

func (b *book) Rollback() error { b.staged = nil; return nil }

func (b *book) text() string {
	lines := slices.Clone(b.lines)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// taken is a book as the appender of [storage.Appendable].
type taken struct{ *book }

func (t taken) Appender(context.Context) storage.Appender { return t }
func (t taken) Append(_ storage.SeriesRef, l labels.Labels, at int64, v float64) (storage.SeriesRef, error) {
	if t.refuse != nil {
		if err := t.refuse(l, at); err != nil {
			return 0, err
		}
	}
	t.write(l, at, v, nil)
	return 1, nil
}
func (t taken) AppendHistogram(_ storage.SeriesRef, l labels.Labels, at int64, h *histogram.Histogram, _ *histogram.FloatHistogram) (storage.SeriesRef, error) {
	t.write(l, at, 0, h)
	return 1, nil
}
func (taken) SetOptions(*storage.AppendOptions) {}
func (taken) AppendExemplar(storage.SeriesRef, labels.Labels, exemplar.Exemplar) (storage.SeriesRef, error) {
	return 0, nil
}
func (taken) AppendHistogramSTZeroSample(storage.SeriesRef, labels.Labels, int64, int64, *histogram.Histogram, *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return 0, nil
}
func (taken) UpdateMetadata(storage.SeriesRef, labels.Labels, metadata.Metadata) (storage.SeriesRef, error) {
	return 0, nil
}
func (taken) AppendSTZeroSample(storage.SeriesRef, labels.Labels, int64, int64) (storage.SeriesRef, error) {
	return 0, nil
}

// theirs is a book as the appender of Prometheus's own receiver.
type theirs struct{ *book }

func (t theirs) Append(_ storage.SeriesRef, l labels.Labels, _, at int64, v float64, h *histogram.Histogram, _ *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	t.write(l, at, v, h)
	return 1, nil
}

const start, now = 1_772_700_000_000_000_000, 1_772_700_060_000_000_000

// fleet is a request with metrics of every form, as SDKs and collectors send them; seed changes their numbers.
func fleet(seed uint64) pmetric.Metrics {
	random := rand.New(rand.NewPCG(seed, 1))
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "vllm")
	rm.Resource().Attributes().PutStr("service.namespace", "serving")
	rm.Resource().Attributes().PutStr("service.instance.id", "10.0.0.7:8000")
	rm.Resource().Attributes().PutStr("k8s.pod.name", "vllm-0")
	sm := rm.ScopeMetrics().AppendEmpty()
	next := func(name, unit string) pmetric.Metric {
		m := sm.Metrics().AppendEmpty()
		m.SetName(name)
		m.SetUnit(unit)
		return m
	}
	about := func(a pcommon.Map, model string) {
		a.PutStr("gen_ai.request.model", model)
		a.PutInt("server.port", 8000)
	}
	g := next("vllm:num_requests_running", "").SetEmptyGauge().DataPoints()
	for i := range 3 {
		p := g.AppendEmpty()
		about(p.Attributes(), fmt.Sprint("tiny-", i))
		p.SetTimestamp(now)
		p.SetIntValue(random.Int64N(100) - 50)
	}
	g = next("hw.gpu.utilization", "1").SetEmptyGauge().DataPoints()
	p := g.AppendEmpty()
	p.SetTimestamp(now)
	p.SetDoubleValue(random.Float64())
	p = g.AppendEmpty()
	p.Attributes().PutStr("hw.id", "gone")
	p.SetTimestamp(now)
	p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
	s := next("vllm:generation_tokens_total", "").SetEmptySum()
	s.SetIsMonotonic(true)
	s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p = s.DataPoints().AppendEmpty()
	about(p.Attributes(), "tiny")
	p.SetStartTimestamp(start)
	p.SetTimestamp(now)
	p.SetIntValue(random.Int64N(1e6))
	s = next("hw.gpu.memory.usage", "By").SetEmptySum()
	s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p = s.DataPoints().AppendEmpty()
	p.SetTimestamp(now)
	p.SetDoubleValue(random.Float64() * 1e11)
	h := next("gen_ai.client.operation.duration", "s").SetEmptyHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	hp := h.DataPoints().AppendEmpty()
	about(hp.Attributes(), "tiny")
	hp.SetStartTimestamp(start)
	hp.SetTimestamp(now)
	for i := range 15 {
		if i < 14 {
			hp.ExplicitBounds().Append(0.01 * math.Pow(2, float64(i)))
		}
		n := random.Uint64N(20)
		hp.BucketCounts().Append(n)
		hp.SetCount(hp.Count() + n)
	}
	hp.SetSum(random.Float64() * 1000)
	e := next("gen_ai.server.time_to_first_token", "s").SetEmptyExponentialHistogram()
	e.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for scale := int32(-3); scale < 12; scale += 5 {
		ep := e.DataPoints().AppendEmpty()
		ep.Attributes().PutInt("scale", int64(scale))
		ep.SetStartTimestamp(start)
		ep.SetTimestamp(now)
		ep.SetScale(scale)
		ep.SetZeroCount(3)
		ep.SetCount(3)
		fill := func(b pmetric.ExponentialHistogramDataPointBuckets) {
			b.SetOffset(random.Int32N(40) - 20)
			for range 30 {
				n := random.Uint64N(3) * random.Uint64N(5)
				b.BucketCounts().Append(n)
				ep.SetCount(ep.Count() + n)
			}
		}
		fill(ep.Positive())
		fill(ep.Negative())
		ep.SetSum(random.Float64())
	}
	q := next("rpc.duration", "ms").SetEmptySummary().DataPoints().AppendEmpty()
	q.SetTimestamp(now)
	q.SetCount(7)
	q.SetSum(random.Float64())
	for _, at := range []float64{0.5, 0.99} {
		v := q.QuantileValues().AppendEmpty()
		v.SetQuantile(at)
		v.SetValue(random.Float64())
	}
	return md
}

func bodies(t testing.TB, md pmetric.Metrics) (proto, js []byte) {
	t.Helper()
	r := pmetricotlp.NewExportRequestFromMetrics(md)
	proto, err := r.MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	if js, err = r.MarshalJSON(); err != nil {
		t.Fatal(err)
	}
	return proto, js
}

func receiver(b *book) *Receiver {
	return New(Sinks{Metrics: taken{b}}, Settings{Now: func() time.Time { return time.Unix(0, now) }})
}

func send(t *testing.T, r *Receiver, s Signal, b []byte, e otlp.Encoding) answer {
	t.Helper()
	a, f := r.take(t.Context(), s, HTTP, body{bytes: b, encoding: e})
	if f != nil {
		t.Fatal(f)
	}
	return a
}

// What is appended is what Prometheus's own receiver appends, in both encodings.
func TestMetricsAsPrometheus(t *testing.T) {
	for seed := range uint64(20) {
		md := fleet(seed)
		var want book
		c := prometheusremotewrite.NewPrometheusConverter(theirs{&want})
		if _, err := c.FromMetrics(t.Context(), md, prometheusremotewrite.Settings{AddMetricSuffixes: true, DisableTargetInfo: true}); err != nil {
			t.Fatal(err)
		}
		want.Commit()
		proto, js := bodies(t, md)
		for e, body := range map[otlp.Encoding][]byte{otlp.Protobuf: proto, otlp.JSON: js} {
			var got book
			if a := send(t, receiver(&got), Metrics, body, e); a.rejected != 0 {
				t.Error(a.message)
			}
			got.lines = slices.DeleteFunc(got.lines, func(l string) bool { return strings.Contains(l, "target_info") })
			if got.text() != want.text() {
				t.Fatalf("%s:\n%s\nwant\n%s", e, got.text(), want.text())
			}
		}
	}
}

func TestTargetInfo(t *testing.T) {
	var b book
	proto, _ := bodies(t, fleet(1))
	send(t, receiver(&b), Metrics, proto, otlp.Protobuf)
	want := `{__name__="target_info", instance="10.0.0.7:8000", job="serving/vllm", k8s_pod_name="vllm-0"} 1772700060000 1`
	if !slices.Contains(b.lines, want) {
		t.Error(b.text())
	}
}

// deltas is a request with one delta sum and one delta histogram of each form.
func deltas(from, until int64, n int64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	sm := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	m := sm.Metrics().AppendEmpty()
	m.SetName("tokens")
	s := m.SetEmptySum()
	s.SetIsMonotonic(true)
	s.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	p := s.DataPoints().AppendEmpty()
	p.SetStartTimestamp(pcommon.Timestamp(from))
	p.SetTimestamp(pcommon.Timestamp(until))
	p.SetIntValue(n)
	m = sm.Metrics().AppendEmpty()
	m.SetName("duration")
	h := m.SetEmptyHistogram()
	h.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	hp := h.DataPoints().AppendEmpty()
	hp.SetStartTimestamp(pcommon.Timestamp(from))
	hp.SetTimestamp(pcommon.Timestamp(until))
	hp.ExplicitBounds().FromRaw([]float64{1, 2})
	hp.BucketCounts().FromRaw([]uint64{uint64(n), 0, 1})
	hp.SetCount(uint64(n) + 1)
	hp.SetSum(float64(n))
	m = sm.Metrics().AppendEmpty()
	m.SetName("ttft")
	e := m.SetEmptyExponentialHistogram()
	e.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	ep := e.DataPoints().AppendEmpty()
	ep.SetStartTimestamp(pcommon.Timestamp(from))
	ep.SetTimestamp(pcommon.Timestamp(until))
	ep.SetScale(int32(n % 2)) // scales differ: the sum has the coarser one
	ep.Positive().SetOffset(int32(n))
	ep.Positive().BucketCounts().FromRaw([]uint64{uint64(n), 1})
	ep.SetCount(uint64(n) + 1)
	ep.SetSum(float64(n))
	return md
}

// Deltas are added up; one that is sent again, because its answer was lost or the store failed, is not counted twice.
func TestDeltasAreAddedUp(t *testing.T) {
	var b book
	r := receiver(&b)
	export := func(from, until, n int64) (answer, *failure) {
		proto, _ := bodies(t, deltas(start+from*1e9, start+until*1e9, n))
		return r.take(t.Context(), Metrics, HTTP, body{bytes: proto})
	}
	if _, f := export(0, 10, 3); f != nil {
		t.Fatal(f)
	}
	b.fail = errors.New("disk full")
	if _, f := export(10, 20, 4); f == nil || f.retry == 0 || strings.Contains(f.text, "disk") {
		t.Fatal(f)
	}
	b.fail = nil
	for range 2 {
		if _, f := export(10, 20, 4); f != nil {
			t.Fatal(f)
		}
	}
	a, _ := export(0, 10, 3)
	if a.rejected != 3 || !strings.Contains(a.message, repeated) {
		t.Error(a)
	}
	want := []string{
		`{__name__="tokens_total"} 1772700000000 0`, `{__name__="tokens_total"} 1772700010000 3`, `{__name__="tokens_total"} 1772700020000 7`,
		`{__name__="duration_bucket", le="1"} 1772700020000 7`, `{__name__="duration_bucket", le="2"} 1772700020000 7`, `{__name__="duration_bucket", le="+Inf"} 1772700020000 9`,
		`{__name__="duration_sum"} 1772700020000 7`,
		`{__name__="ttft"} 1772700020000 schema 0 count 9 sum 7 zero 0 (2,4]:3 (4,8]:1 (16,32]:4 (32,64]:1`,
	}
	for _, w := range want {
		if !slices.Contains(b.lines, w) {
			t.Errorf("no %s in\n%s", w, b.text())
		}
	}
	if n := strings.Count(b.text(), "tokens_total"); n != 3 {
		t.Errorf("%d samples of a sum that was told twice", n)
	}
}

// Series that are added up are bounded, and silent ones make room.
func TestDeltasAreBounded(t *testing.T) {
	at := time.Unix(0, now)
	var b book
	r := New(Sinks{Metrics: taken{&b}}, Settings{DeltaSeries: 3, Now: func() time.Time { return at }})
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("tokens")
	s := m.SetEmptySum()
	s.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	for i := range 5 {
		p := s.DataPoints().AppendEmpty()
		p.Attributes().PutInt("i", int64(i))
		p.SetTimestamp(now)
		p.SetIntValue(1)
	}
	proto, _ := bodies(t, md)
	if a := send(t, r, Metrics, proto, otlp.Protobuf); a.rejected != 2 || !strings.Contains(a.message, crowded) {
		t.Error(a)
	}
	at = at.Add(2 * deltaIdle)
	s.DataPoints().RemoveIf(func(p pmetric.NumberDataPoint) bool { i, _ := p.Attributes().Get("i"); return i.Int() < 3 })
	proto, _ = bodies(t, md)
	if a := send(t, r, Metrics, proto, otlp.Protobuf); a.rejected != 0 {
		t.Error(a)
	}
}

// Attributes with content or of people are no labels; what differs only in them is added up, where that is right.
func TestPrivateLabels(t *testing.T) {
	md := pmetric.NewMetrics()
	sm := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	m := sm.Metrics().AppendEmpty()
	m.SetName("tokens")
	s := m.SetEmptySum()
	s.SetIsMonotonic(true)
	s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	m = sm.Metrics().AppendEmpty()
	m.SetName("depth")
	g := m.SetEmptyGauge()
	for i, who := range []string{"kim.example@example.com", "lee.example@example.com"} {
		for _, ps := range []pmetric.NumberDataPointSlice{s.DataPoints(), g.DataPoints()} {
			p := ps.AppendEmpty()
			p.Attributes().PutStr("user.id", who)
			p.Attributes().PutStr("gen_ai.prompt", "the invoice of "+who)
			p.Attributes().PutStr("tenant", who)
			p.Attributes().PutStr("model", "tiny")
			p.SetTimestamp(now)
			p.SetIntValue(int64(i + 2))
		}
	}
	for i := range 3 { // what comes after the points that were merged is read into their memory
		m = sm.Metrics().AppendEmpty()
		m.SetName("later")
		p := m.SetEmptyGauge().DataPoints()
		for k := range 2 {
			d := p.AppendEmpty()
			d.Attributes().PutStr("i", fmt.Sprint(i, k))
			d.SetTimestamp(now)
			d.SetIntValue(int64(10*i + k))
			if i == 1 {
				d.Attributes().PutStr("user.id", "kim")
			}
		}
	}
	var b book
	proto, _ := bodies(t, md)
	a := send(t, receiver(&b), Metrics, proto, otlp.Protobuf)
	var later []string
	for i := range 3 {
		for k := range 2 {
			later = append(later, fmt.Sprintf(`{__name__="later", i="%d %d"} 1772700060000 %d`, i, k, 10*i+k))
		}
	}
	for _, l := range later {
		if !slices.Contains(b.lines, l) {
			t.Errorf("no %s in\n%s", l, b.text())
		}
	}
	b.lines = slices.DeleteFunc(b.lines, func(l string) bool { return slices.Contains(later, l) })
	want := `{__name__="depth", model="tiny", tenant="[mail]"} 1772700060000 2
{__name__="tokens_total", model="tiny", tenant="[mail]"} 1772700060000 5`
	if b.text() != want || a.rejected != 1 || strings.Contains(a.message, "kim") {
		t.Errorf("%v\n%s", a, b.text())
	}
}

// A point that cannot be stored costs itself, and its reason quotes nothing.
func TestPointsRefused(t *testing.T) {
	md := fleet(1)
	broken := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	hp := broken.At(4).Histogram().DataPoints().AppendEmpty()
	hp.SetTimestamp(now)
	hp.ExplicitBounds().FromRaw([]float64{2, 1})
	hp.BucketCounts().FromRaw([]uint64{1, 1, 1})
	ep := broken.At(5).ExponentialHistogram().DataPoints().AppendEmpty()
	ep.SetTimestamp(now)
	ep.SetScale(-9)
	ep.Positive().BucketCounts().FromRaw([]uint64{1})
	many := broken.At(0).Gauge().DataPoints().AppendEmpty()
	many.SetTimestamp(now)
	for i := range 1000 {
		many.Attributes().PutStr(fmt.Sprint("l", i), "x")
	}
	long := broken.At(0).Gauge().DataPoints().AppendEmpty()
	long.SetTimestamp(now)
	long.Attributes().PutStr("words", strings.Repeat("invoice ", 1000))
	broken.At(0).Gauge().DataPoints().AppendEmpty() // no time
	proto, js := bodies(t, md)
	for e, b := range map[otlp.Encoding][]byte{otlp.Protobuf: proto, otlp.JSON: js} {
		kept := book{refuse: func(l labels.Labels, _ int64) error {
			if l.Get("gen_ai_request_model") == "tiny-1" {
				return fmt.Errorf("%w: %s", storage.ErrOutOfOrderSample, l)
			}
			return nil
		}}
		r := receiver(&kept)
		a := send(t, r, Metrics, b, e)
		if a.rejected != 6 || !strings.Contains(a.message, "for 6 reasons") || strings.Contains(a.message, "invoice") || len(kept.lines) < 30 {
			t.Errorf("%s: %+v, %d samples", e, a, len(kept.lines))
		}
		if c := &r.stats.of[Metrics][HTTP]; c.rejected.Load() != 6 || c.accepted.Load() != 11 {
			t.Errorf("%d rejected, %d accepted", c.rejected.Load(), c.accepted.Load())
		}
	}
}
