package receive

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/ingest/otlp"
)

// series writes the metrics of one request as Prometheus series, named as OpenTelemetry's compatibility specification names them.
type series struct {
	r       *Receiver
	app     storage.Appender
	counts  *otlp.Counts
	builder *labels.Builder
	sums    *sums
	about   map[string]info // what is known of where points come from, to be written once
	names   map[string]string
	judged  map[string]*judged // evaluations, added up within the request
	fresh   bool               // the point is the first of a sum that began at its start
	ended   bool               // committed or undone
}

type info struct {
	labels labels.Labels
	at     int64 // ms
}

// Why the points of a series are refused. None quotes a value.
const (
	outOfOrder = "a point that is older than the newest of its series"
	twice      = "a second value for one time of one series"
	tooOld     = "a point that is too old to be stored"
	untrue     = "a histogram that contradicts itself"
	notTaken   = "a point that the store did not take: too many series, or a label that it does not allow"
	noName     = "a metric whose name has no letter or digit"
	tooCoarse  = "an exponential histogram whose scale is below -4"
	sameLabels = "a point that differs from another only in attributes that are not kept"
	negative   = "a delta below zero of a sum that only grows"
	repeated   = "a delta that was counted before, or is older than one that was"
	crowded    = "a delta of a new series: too many are added up already"
	otherForm  = "a delta whose buckets are not those of the ones before"
)

// reasonOf is the reason of a storage's error, without its text, which may quote labels.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, storage.ErrOutOfOrderSample):
		return outOfOrder
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		return twice
	case errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrTooOldSample):
		return tooOld
	case errors.As(err, new(histogram.Error)):
		return untrue
	}
	return notTaken
}

// writeMetrics decodes and appends one request. An error that is not of the request is one of the storage: all of it is to be sent again.
func (r *Receiver) writeMetrics(ctx context.Context, d *otlp.Decoder, body []byte, e otlp.Encoding, gzipped bool) (*otlp.Counts, int, error) {
	s := r.begin(ctx)
	defer s.undo() // where it has not come to an end
	counts, points, err := d.Metrics(body, e, gzipped, s.metric)
	if s.counts != nil {
		counts.Merge(s.counts)
	}
	if err != nil {
		return counts, points, errors.Join(err, s.undo())
	}
	return counts, points, s.commit()
}

func (r *Receiver) begin(ctx context.Context) *series {
	return &series{r: r, app: r.sinks.Metrics.Appender(ctx), counts: &otlp.Counts{}, builder: labels.NewBuilder(labels.EmptyLabels()), sums: r.sums.begin(), about: map[string]info{}, names: map[string]string{}}
}

// undo lets go of what is not committed.
func (s *series) undo() error {
	if s.ended {
		return nil
	}
	s.ended = true
	s.sums.end(false)
	return s.app.Rollback()
}

func (s *series) commit() error {
	for _, i := range s.about {
		_, _ = s.app.Append(0, i.labels, i.at, 1) // an older time than the last is no loss
	}
	s.ended = true
	err := s.app.Commit()
	s.sums.end(err == nil)
	if err != nil {
		return &Retry{Err: errors.New("the time series could not be stored")}
	}
	return nil
}

var (
	namer      = otlptranslator.MetricNamer{WithMetricSuffixes: true}
	labelNamer = otlptranslator.LabelNamer{}
)

func typeOf(m *otlp.Metric) otlptranslator.MetricType {
	switch {
	case m.Form == otlp.Gauge:
		return otlptranslator.MetricTypeGauge
	case m.Form == otlp.Sum && m.Monotonic:
		return otlptranslator.MetricTypeMonotonicCounter
	case m.Form == otlp.Sum:
		return otlptranslator.MetricTypeNonMonotonicCounter
	case m.Form == otlp.Histogram:
		return otlptranslator.MetricTypeHistogram
	case m.Form == otlp.Exponential:
		return otlptranslator.MetricTypeExponentialHistogram
	}
	return otlptranslator.MetricTypeSummary
}

// kindOf is a metric's type as Prometheus names it.
func kindOf(m *otlp.Metric) model.MetricType {
	switch m.Form {
	case otlp.Sum:
		if m.Monotonic {
			return model.MetricTypeCounter
		}
	case otlp.Histogram, otlp.Exponential:
		return model.MetricTypeHistogram
	case otlp.Summary:
		return model.MetricTypeSummary
	}
	return model.MetricTypeGauge
}

// metric appends the points of one metric.
func (s *series) metric(from *otlp.Origin, m *otlp.Metric, points []otlp.Point) {
	name, err := namer.Build(otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: typeOf(m)})
	if err != nil {
		s.counts.Reject(len(points), noName)
		return
	}
	_, _ = s.app.UpdateMetadata(0, labels.FromStrings(model.MetricNameLabel, name), metadata.Metadata{Type: kindOf(m), Unit: m.Unit})
	merged := s.merge(from, m, points)
	for i := range points {
		if merged == nil || !merged[i] {
			s.point(name, from, m, &points[i])
		}
	}
}

// merge adds points to the first of those that have the same labels, now that some attributes are not kept; where adding would be wrong, they are
// refused. It says which points are done with; nil: none, as nothing was dropped.
func (s *series) merge(from *otlp.Origin, m *otlp.Metric, points []otlp.Point) (done []bool) {
	if !slices.ContainsFunc(points, func(p otlp.Point) bool { return p.Dropped }) {
		return nil
	}
	done = make([]bool, len(points))
	first := map[string]*otlp.Point{}
	for i := range points {
		p := &points[i]
		key := string(s.base(from, p.Labels).Bytes(nil))
		sum := first[key]
		if sum == nil {
			first[key] = p
			continue
		}
		done[i] = true
		if !add(sum, p, m) {
			s.counts.Reject(1, sameLabels)
		}
		sum.Time = max(sum.Time, p.Time)
	}
	return done
}

// point appends one point, or counts it as refused.
func (s *series) point(name string, from *otlp.Origin, m *otlp.Metric, p *otlp.Point) {
	base := s.base(from, p.Labels)
	reason := ""
	start := int64(p.Start / 1e6)
	s.fresh = false
	if m.Delta && !p.Absent {
		key := name + "\xff" + string(base.Bytes(nil))
		if p, start, s.fresh, reason = s.sums.add(key, m, p); reason != "" {
			s.counts.Reject(1, reason)
			return
		}
	}
	at := int64(p.Time / 1e6)
	if m.Form == otlp.Gauge || start >= at {
		start = 0
	}
	switch m.Form {
	case otlp.Gauge, otlp.Sum:
		reason = s.sample(s.named(base, name), at, start*b2i(m.Monotonic), p.Value, p.Absent)
	case otlp.Histogram:
		reason = s.classic(base, name, at, start, p)
	case otlp.Exponential:
		reason = s.native(s.named(base, name), at, start, p)
	case otlp.Summary:
		reason = s.summary(base, name, at, start, p)
	}
	if reason != "" {
		s.counts.Reject(1, reason)
		return
	}
	s.tell(from, at)
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// base are the labels of a point without its name.
func (s *series) base(from *otlp.Origin, attributes []otlp.Label) labels.Labels {
	s.builder.Reset(labels.EmptyLabels())
	for _, a := range attributes {
		s.set(a)
	}
	job, instance := who(from)
	if job != "" {
		s.builder.Set("job", job)
	}
	if instance != "" {
		s.builder.Set("instance", instance)
	}
	return s.builder.Labels()
}

// set adds an attribute as a label; of two whose names become one, both values stay.
func (s *series) set(a otlp.Label) {
	name, ok := s.names[a.Name]
	if !ok {
		name, _ = labelNamer.Build(a.Name)
		if strings.HasPrefix(name, "__") {
			name = "" // reserved
		}
		s.names[a.Name] = name
	}
	if name == "" || a.Value == "" {
		return
	}
	if before := s.builder.Get(name); before != "" {
		a.Value = before + ";" + a.Value
	}
	s.builder.Set(name, a.Value)
}

// who is the job and the instance of a resource. Without a service.instance.id two pods of one service would be one series: then it is the pod,
// the host or the process.
func who(from *otlp.Origin) (job, instance string) {
	job = from.Resource.Service
	if from.Namespace != "" && job != "" {
		job = from.Namespace + "/" + job
	}
	return job, cmp.Or(from.Resource.Instance, from.Resource.Pod, from.Resource.Host, from.Resource.Process)
}

func (s *series) named(base labels.Labels, name string, more ...string) labels.Labels {
	s.builder.Reset(base)
	s.builder.Set(model.MetricNameLabel, name)
	for i := 0; i+1 < len(more); i += 2 {
		s.builder.Set(more[i], more[i+1])
	}
	return s.builder.Labels()
}

// sample appends a value, with a zero at its start where that is known and new. It gives the reason why it could not.
func (s *series) sample(l labels.Labels, at, start int64, v float64, absent bool) string {
	if absent {
		v = math.Float64frombits(value.StaleNaN)
	} else if start > 0 {
		s.zero(l, at, start)
	}
	if _, err := s.app.Append(0, l, at, v); err != nil {
		return reasonOf(err)
	}
	return ""
}

// zero says that a series was 0 at its start, so that its first value counts as a rise. One that is known already, or too old, is no loss.
func (s *series) zero(l labels.Labels, at, start int64) {
	if s.fresh {
		_, _ = s.app.Append(0, l, start, 0)
		return
	}
	_, _ = s.app.AppendSTZeroSample(0, l, at, start)
}

func (s *series) classic(base labels.Labels, name string, at, start int64, p *otlp.Point) string {
	reason := s.sample(s.named(base, name+"_count"), at, start, float64(p.Count), p.Absent)
	if p.HasTotal || p.Absent {
		reason = cmp.Or(reason, s.sample(s.named(base, name+"_sum"), at, start, p.Total, p.Absent))
	}
	sum := uint64(0)
	for i, bound := range p.Bounds {
		if i < len(p.Counts) {
			sum += p.Counts[i]
		}
		if !math.IsInf(bound, 1) { // that one is made of the count
			reason = cmp.Or(reason, s.sample(s.named(base, name+"_bucket", labels.BucketLabel, number(bound)), at, start, float64(sum), p.Absent))
		}
	}
	return cmp.Or(reason, s.sample(s.named(base, name+"_bucket", labels.BucketLabel, "+Inf"), at, start, float64(p.Count), p.Absent))
}

func (s *series) summary(base labels.Labels, name string, at, start int64, p *otlp.Point) string {
	reason := s.sample(s.named(base, name+"_count"), at, start, float64(p.Count), p.Absent)
	reason = cmp.Or(reason, s.sample(s.named(base, name+"_sum"), at, start, p.Total, p.Absent))
	for i, q := range p.Bounds {
		reason = cmp.Or(reason, s.sample(s.named(base, name, "quantile", number(q)), at, 0, p.Quantiles[i], p.Absent))
	}
	return reason
}

// number is a bound as a label's value, as Prometheus's own receiver writes it.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (s *series) native(l labels.Labels, at, start int64, p *otlp.Point) string {
	h, reason := nativeOf(p)
	if reason != "" {
		return reason
	}
	if start > 0 && !p.Absent {
		_, _ = s.app.AppendHistogramSTZeroSample(0, l, at, start, h, nil)
	}
	if _, err := s.app.AppendHistogram(0, l, at, h, nil); err != nil {
		return reasonOf(err)
	}
	return ""
}

// tell notes that something came from a resource, to say what it is.
func (s *series) tell(from *otlp.Origin, at int64) {
	job, instance := who(from)
	if len(from.About) == 0 || job == "" && instance == "" {
		return
	}
	s.builder.Reset(labels.EmptyLabels())
	for _, a := range from.About {
		s.set(a)
	}
	s.builder.Set(model.MetricNameLabel, "target_info")
	s.builder.Set("job", job)
	s.builder.Set("instance", instance)
	l := s.builder.Labels()
	key := string(l.Bytes(nil))
	s.about[key] = info{l, max(at, s.about[key].at)}
}

// evaluated adds one judgement up; flush appends what they come to.
func (s *series) evaluated(from *otlp.Origin, name string, p otlp.Point, form otlp.Form) {
	m := &otlp.Metric{Name: name, Form: form, Delta: true, Monotonic: true}
	key := name + "\xff" + string(s.base(from, p.Labels).Bytes(nil))
	if before := s.judged[key]; before != nil {
		add(&before.point, &p, m)
		return
	}
	if s.judged == nil {
		s.judged = map[string]*judged{}
	}
	s.judged[key] = &judged{from, m, p}
}

// judged is what evaluations of one series in one request come to.
type judged struct {
	from   *otlp.Origin
	metric *otlp.Metric
	point  otlp.Point
}

func (s *series) flush() {
	for _, j := range s.judged {
		s.metric(j.from, j.metric, []otlp.Point{j.point})
	}
}
