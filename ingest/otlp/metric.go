package otlp

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/whylate/whylate/adapter/genai"
)

// Label is an attribute as a label.
type Label struct{ Name, Value string }

// Origin is the resource that points or records come from.
type Origin struct {
	Resource  *genai.Resource
	Namespace string  // service.namespace
	About     []Label // of its attributes those that tell of the deployment: versions, where it runs
}

// Form is how the points of a metric are made.
type Form uint8

// Forms.
const (
	Gauge Form = iota + 1
	Sum
	Histogram
	Exponential
	Summary
)

// Metric is what a metric's points have in common.
type Metric struct {
	Name, Unit string
	Form       Form
	Delta      bool // points tell what came since the one before; else since their start
	Monotonic  bool // of sums: they never fall
}

// Point is one data point. What it holds is valid until the next metric.
type Point struct {
	Labels      []Label
	Dropped     bool   // it had attributes that are not kept: another point may now have the same labels
	Start, Time uint64 // Unix ns; Start 0 is not known
	Absent      bool   // the series has ended: "no recorded value"

	Value float64 // of gauges and sums

	Count     uint64 // of histograms and summaries
	Total     float64
	HasTotal  bool
	Bounds    []float64 // of histograms: upper bounds; of summaries: quantiles
	Counts    []uint64  // of histograms, one more than bounds
	Quantiles []float64 // of summaries: values at Bounds

	Scale              int32 // of exponential histograms
	Zero               uint64
	ZeroThreshold      float64
	Positive, Negative Buckets
}

// Buckets is one side of an exponential histogram.
type Buckets struct {
	Offset int32
	Counts []uint64
}

// Bounds of one point.
const (
	maxLabels  = 64
	maxBuckets = 2_048
)

// Metrics decodes the body of one metrics request and gives each metric with its points. Points that cannot be taken are left out and counted;
// an error, always a *Refused, is for a body of which nothing can be taken.
func (d *Decoder) Metrics(body []byte, e Encoding, gzipped bool, give func(*Origin, *Metric, []Point)) (counts *Counts, points int, err error) {
	limits := d.Limits.settled()
	out := &Counts{what: "data points"}
	if body, err = d.plain(body, gzipped, limits); err != nil {
		return out, 0, err
	}
	if body, err = d.proto(body, e, metricsRequest, limits); err != nil {
		return out, 0, err
	}
	if _, err = survey(body, limits, pointsIn); err != nil {
		return out, 0, err
	}
	k := keeper{d: d, out: out, limits: limits}
	var origin *Origin
	var r pointReader
	walk(body, limits, func(resource []pair, _, _ []byte) { origin = k.origin(resource) }, func(b []byte) {
		m, ok := r.metric(b, &k)
		points += len(r.points)
		if ok && len(r.points) > 0 {
			give(origin, &m, r.points)
		}
	})
	out.Requests++
	return out, points + out.Rejected, nil
}

// pointsIn is how many points a metric holds, and 1 for itself.
func pointsIn(metric []byte) int {
	sum := 1
	eachField(metric, func(n protowire.Number, data []byte) bool {
		return n < metricGauge || n > metricSummary || eachField(data, func(n protowire.Number, _ []byte) bool {
			if n == dataPoints {
				sum++
			}
			return true
		})
	})
	return sum
}

// Fields of Metric and what is in it.
const (
	metricName, metricUnit                                                        = 1, 3
	metricGauge, metricSum, metricHistogram, metricExponential, metricSummary     = 5, 7, 9, 10, 11
	dataPoints, dataTemporality, dataMonotonic                                    = 1, 2, 3
	pointStart, pointTime, pointCount, pointTotal                                 = 2, 3, 4, 5
	numberDouble, numberInt, numberAttributes, numberFlags                        = 4, 6, 7, 8
	bucketsCounts, bucketsBounds, histogramAttributes, histogramFlags             = 6, 7, 9, 10
	exponentialAttributes, exponentialScale, exponentialZero, exponentialPositive = 1, 6, 7, 8
	exponentialNegative, exponentialFlags, exponentialThreshold                   = 9, 10, 14
	summaryQuantiles, summaryAttributes, summaryFlags                             = 6, 7, 8
	noRecordedValue                                                               = 1
)

var metricMessage = func() *message {
	point := func(name string, attributes, flags protowire.Number, more table) *message {
		fields := table{"attributes": many(attributes, keyValue), "startTimeUnixNano": scalar(pointStart, asFixed), "timeUnixNano": scalar(pointTime, asFixed), "flags": scalar(flags, asVarint)}
		for k, f := range more {
			fields[k] = f
		}
		return &message{name: name, alone: true, fields: fields}
	}
	data := func(name string, point *message) *message {
		return &message{name: name, fields: table{"dataPoints": many(dataPoints, point), "aggregationTemporality": scalar(dataTemporality, asEnum), "isMonotonic": scalar(dataMonotonic, asBool)}}
	}
	side := &message{name: "Buckets", fields: table{"offset": scalar(1, asZigzag), "bucketCounts": packed(2, asVarint)}}
	number := point("NumberDataPoint", numberAttributes, numberFlags, table{"asDouble": scalar(numberDouble, asDouble), "asInt": scalar(numberInt, asSigned)})
	total := table{"count": scalar(pointCount, asFixed), "sum": scalar(pointTotal, asDouble)}
	with := func(t table) table {
		for k, f := range total {
			t[k] = f
		}
		return t
	}
	return &message{name: "Metric", alone: true, fields: table{"name": scalar(metricName, asText), "unit": scalar(metricUnit, asText),
		"gauge": one(metricGauge, data("Gauge", number)), "sum": one(metricSum, data("Sum", number)),
		"histogram": one(metricHistogram, data("Histogram", point("HistogramDataPoint", histogramAttributes, histogramFlags,
			with(table{"bucketCounts": packed(bucketsCounts, asFixed), "explicitBounds": packed(bucketsBounds, asDouble)})))),
		"exponentialHistogram": one(metricExponential, data("ExponentialHistogram", point("ExponentialHistogramDataPoint", exponentialAttributes, exponentialFlags,
			with(table{"scale": scalar(exponentialScale, asZigzag), "zeroCount": scalar(exponentialZero, asFixed), "zeroThreshold": scalar(exponentialThreshold, asDouble),
				"positive": one(exponentialPositive, side), "negative": one(exponentialNegative, side)})))),
		"summary": one(metricSummary, data("Summary", point("SummaryDataPoint", summaryAttributes, summaryFlags,
			with(table{"quantileValues": many(summaryQuantiles, &message{name: "ValueAtQuantile", fields: table{"quantile": scalar(1, asDouble), "value": scalar(2, asDouble)}})})))),
	}}
}()

var forms = [...]Form{metricGauge: Gauge, metricSum: Sum, metricHistogram: Histogram, metricExponential: Exponential, metricSummary: Summary}

// pointReader reads metrics one after the other into the same memory.
type pointReader struct{ points []Point }

// metric reads a Metric; ok is false where nothing of it can be taken, which is counted.
func (r *pointReader) metric(b []byte, k *keeper) (m Metric, ok bool) {
	r.points = r.points[:0]
	var name, unit, data []byte
	ok = eachField(b, func(n protowire.Number, f []byte) bool {
		switch n {
		case metricName:
			name = f
		case metricUnit:
			unit = f
		case metricGauge, metricSum, metricHistogram, metricExponential, metricSummary:
			m.Form, data = forms[n], f
		}
		return true
	})
	refused := max(pointsIn(b)-1, 1)
	switch {
	case !ok:
		k.out.Reject(refused, "a metric that is damaged")
		return m, false
	case len(name) == 0 || len(name) > 255 || len(unit) > 63 || !utf8.Valid(name):
		k.out.Reject(refused, "a metric whose name is empty, longer than 255 bytes or not UTF-8, or whose unit is longer than 63")
		return m, false
	case m.Form == 0:
		return m, false // a metric without data is none
	}
	m.Name, m.Unit = string(name), string(unit)
	temporality := uint64(0)
	ok = fields(data, func(n protowire.Number, f []byte) bool {
		if n == dataPoints {
			r.point(f, m.Form, k)
		}
		return true
	}, func(n protowire.Number, v uint64) bool {
		switch n {
		case dataTemporality:
			temporality = v
		case dataMonotonic:
			m.Monotonic = v != 0
		}
		return true
	})
	m.Delta = temporality == 1
	switch {
	case !ok:
		r.points = r.points[:0]
		k.out.Reject(refused, "a metric that is damaged")
	case temporality == 0 && m.Form >= Sum && m.Form <= Exponential && len(r.points) > 0:
		k.out.Reject(len(r.points), "a sum or histogram that does not say whether it is delta or cumulative")
		r.points = r.points[:0]
	}
	return m, len(r.points) > 0
}

// point reads one data point, or counts it as refused.
func (r *pointReader) point(b []byte, form Form, k *keeper) {
	n := len(r.points)
	if n == cap(r.points) {
		r.points = append(r.points, Point{})
	}
	r.points = r.points[:n+1]
	p := &r.points[n]
	*p = Point{Labels: p.Labels[:0], Bounds: p.Bounds[:0], Counts: p.Counts[:0], Quantiles: p.Quantiles[:0], Positive: Buckets{Counts: p.Positive.Counts[:0]}, Negative: Buckets{Counts: p.Negative.Counts[:0]}}
	attributes, flags := protowire.Number(numberAttributes), protowire.Number(numberFlags) // summaries have the same
	switch form {
	case Histogram:
		attributes, flags = histogramAttributes, histogramFlags
	case Exponential:
		attributes, flags = exponentialAttributes, exponentialFlags
	}
	reason, seen := "", 0
	whole := fields(b, func(n protowire.Number, f []byte) bool {
		switch {
		case n == attributes:
			if seen++; seen > maxLabels {
				reason = "a point with more than 64 attributes"
				return false
			}
			reason = k.label(p, f)
			return reason == ""
		case form == Histogram && n == bucketsCounts:
			p.Counts = fixed64s(f, p.Counts, func(u uint64) uint64 { return u })
		case form == Histogram && n == bucketsBounds:
			p.Bounds = fixed64s(f, p.Bounds, math.Float64frombits)
		case form == Exponential && n == exponentialPositive:
			return p.Positive.read(f)
		case form == Exponential && n == exponentialNegative:
			return p.Negative.read(f)
		case form == Summary && n == summaryQuantiles:
			return p.quantile(f)
		}
		return len(p.Counts) <= maxBuckets && len(p.Bounds) <= maxBuckets
	}, func(n protowire.Number, v uint64) bool {
		switch {
		case n == flags:
			p.Absent = v&noRecordedValue != 0
		case n == pointStart:
			p.Start = v
		case n == pointTime:
			p.Time = v
		case form == Gauge || form == Sum:
			switch n {
			case numberDouble:
				p.Value = math.Float64frombits(v)
			case numberInt:
				p.Value = float64(int64(v))
			}
		case form == Histogram && n == bucketsCounts: // not packed
			p.Counts = append(p.Counts, v)
		case form == Histogram && n == bucketsBounds:
			p.Bounds = append(p.Bounds, math.Float64frombits(v))
		case n == pointCount:
			p.Count = v
		case n == pointTotal:
			p.Total, p.HasTotal = math.Float64frombits(v), true
		case form == Exponential && n == exponentialScale:
			p.Scale = int32(protowire.DecodeZigZag(v))
		case form == Exponential && n == exponentialZero:
			p.Zero = v
		case form == Exponential && n == exponentialThreshold:
			p.ZeroThreshold = math.Float64frombits(v)
		}
		return len(p.Counts) <= maxBuckets && len(p.Bounds) <= maxBuckets
	})
	if reason == "" {
		reason = p.wrong(whole, form)
	}
	if reason != "" {
		r.points = r.points[:n]
		k.out.reject(reason)
	}
}

// wrong says why a point cannot be taken, "" if it can.
func (p *Point) wrong(whole bool, form Form) string {
	switch {
	case len(p.Counts) > maxBuckets || len(p.Bounds) > maxBuckets || len(p.Positive.Counts) > maxBuckets || len(p.Negative.Counts) > maxBuckets:
		return "a point with more than 2048 buckets"
	case !whole:
		return "a field of the point has a wrong type or length"
	case p.Time == 0 || p.Time > math.MaxInt64:
		return "a point without a time"
	case p.Absent:
		return ""
	case form == Histogram && len(p.Counts) > 0 && len(p.Counts) != len(p.Bounds)+1:
		return "a histogram whose buckets do not fit its bounds"
	case form == Histogram && !rising(p.Bounds):
		return "a histogram whose bounds do not rise"
	}
	return ""
}

func rising(bounds []float64) bool {
	for i, b := range bounds {
		if math.IsNaN(b) || i > 0 && b <= bounds[i-1] {
			return false
		}
	}
	return true
}

// fixed64s reads packed 64-bit numbers.
func fixed64s[T any](b []byte, into []T, as func(uint64) T) []T {
	for ; len(b) >= 8 && len(into) <= maxBuckets; b = b[8:] {
		into = append(into, as(binary.LittleEndian.Uint64(b)))
	}
	return into
}

func (s *Buckets) read(b []byte) bool {
	return fields(b, func(n protowire.Number, f []byte) bool {
		for n == 2 && len(f) > 0 {
			v, used := protowire.ConsumeVarint(f)
			if used < 0 || len(s.Counts) > maxBuckets {
				return false
			}
			s.Counts, f = append(s.Counts, v), f[used:]
		}
		return true
	}, func(n protowire.Number, v uint64) bool {
		switch n {
		case 1:
			s.Offset = int32(protowire.DecodeZigZag(v))
		case 2:
			s.Counts = append(s.Counts, v)
		}
		return len(s.Counts) <= maxBuckets
	})
}

func (p *Point) quantile(b []byte) bool {
	var at, value float64
	ok := fields(b, func(protowire.Number, []byte) bool { return true }, func(n protowire.Number, v uint64) bool {
		switch n {
		case 1:
			at = math.Float64frombits(v)
		case 2:
			value = math.Float64frombits(v)
		}
		return true
	})
	p.Bounds, p.Quantiles = append(p.Bounds, at), append(p.Quantiles, value)
	return ok && len(p.Bounds) <= maxBuckets
}

// label adds an attribute to a point's labels, or says why the point cannot be taken.
func (k *keeper) label(p *Point, b []byte) string {
	kv, ok := pairOf(b, 0)
	if !ok {
		return "an attribute that is damaged or nested too deep"
	}
	if genai.Named(kv.key) == nil {
		if class := k.class(kv.key); class == genai.ContentKey || class == genai.PersonKey {
			k.out.Dropped[class]++
			p.Dropped = true
			return ""
		}
	}
	text, ok := labelText(&kv.value)
	switch {
	case !ok:
		k.out.Unusable++
		p.Dropped = true
		return ""
	case len(kv.key) == 0 || len(kv.key) > 128 || !utf8.Valid(kv.key):
		return "an attribute whose key is empty, longer than 128 bytes or not UTF-8"
	case len(text) > maxLabel:
		return "an attribute longer than 1 KiB"
	}
	k.out.Kept++
	safe := genai.Label(text)
	p.Dropped = p.Dropped || safe != text
	p.Labels = append(p.Labels, Label{k.text(kv.key), safe})
	return ""
}

// maxLabel is how long the value of a metric's attribute may be: a longer one is content, and its point is refused.
const maxLabel = 1 << 10

func labelText(v *value) (string, bool) {
	switch v.kind {
	case textual:
		return string(v.text[:min(len(v.text), maxLabel+1)]), true
	case integer:
		return strconv.FormatInt(v.number, 10), true
	case boolean:
		return strconv.FormatBool(v.number != 0), true
	case double:
		return strconv.FormatFloat(v.double, 'g', -1, 64), true
	}
	return "", false // a list, a map or bytes is no label
}

// text is a key as a string that is allocated once.
func (k *keeper) text(b []byte) string {
	if s, ok := k.d.keys[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(k.d.keys) < 4096 {
		if k.d.keys == nil {
			k.d.keys = map[string]string{}
		}
		k.d.keys[s] = s
	}
	return s
}

// about is what is kept of a resource beside who it is.
var about = map[string]bool{"service.version": true, "deployment.environment.name": true, "deployment.environment": true, "k8s.cluster.name": true, "k8s.namespace.name": true,
	"k8s.deployment.name": true, "k8s.statefulset.name": true, "k8s.replicaset.name": true, "k8s.pod.name": true, "k8s.container.name": true, "k8s.node.name": true, "host.name": true,
	"cloud.region": true, "cloud.availability_zone": true, "telemetry.sdk.language": true, "telemetry.sdk.version": true, "container.image.tag": true}

func (k *keeper) origin(attributes []pair) *Origin {
	o := &Origin{Resource: k.resourceOf(attributes)}
	for i := range attributes {
		key := string(attributes[i].key)
		text, ok := labelText(&attributes[i].value)
		switch {
		case !ok:
		case key == "service.namespace":
			o.Namespace = genai.Label(text)
		case about[key]:
			o.About = append(o.About, Label{key, genai.Label(text)})
		}
	}
	return o
}
