package receive

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/whylate/whylate/ingest/otlp"
)

// The schemas that a native histogram may have, and how wide its middle is where nothing is said.
const (
	leastScale, mostScale = -4, 8
	zeroWidth             = 1e-128
)

// nativeOf is an exponential histogram as a native one, or the reason why it is none. Their buckets are the same, numbered from 1 instead of 0;
// a scale finer than Prometheus has is made coarser, which is exact.
func nativeOf(p *otlp.Point) (*histogram.Histogram, string) {
	if p.Absent {
		return &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}, ""
	}
	if p.Scale < leastScale {
		return nil, tooCoarse
	}
	h := &histogram.Histogram{Schema: min(p.Scale, mostScale), ZeroThreshold: p.ZeroThreshold, ZeroCount: p.Zero, Count: p.Count, Sum: p.Total}
	if !(h.ZeroThreshold > 0) {
		h.ZeroThreshold = zeroWidth
	}
	down := p.Scale - h.Schema
	if down > 31 {
		return nil, untrue
	}
	var ok, also bool
	h.PositiveSpans, h.PositiveBuckets, ok = sparse(p.Positive, down)
	h.NegativeSpans, h.NegativeBuckets, also = sparse(p.Negative, down)
	if !ok || !also || h.Validate() != nil {
		return nil, untrue
	}
	return h, ""
}

// sparse are dense buckets as spans and differences; 2^down of them become one.
func sparse(b otlp.Buckets, down int32) (spans []histogram.Span, deltas []int64, ok bool) {
	last, before := int64(0), int64(0) // the last bucket's number and count
	for i, n := range b.Counts {
		if n == 0 {
			continue
		}
		at := (int64(b.Offset)+int64(i))>>down + 1
		if at != int64(int32(at)) || n > math.MaxInt64/2 {
			return nil, nil, false
		}
		switch {
		case len(spans) > 0 && at == last:
			deltas[len(deltas)-1] += int64(n)
			before += int64(n)
			continue
		case len(spans) > 0 && at == last+1:
			spans[len(spans)-1].Length++
		case len(spans) > 0:
			spans = append(spans, histogram.Span{Offset: int32(at - last - 1), Length: 1})
		default:
			spans = append(spans, histogram.Span{Offset: int32(at), Length: 1})
		}
		deltas = append(deltas, int64(n)-before)
		last, before = at, int64(n)
	}
	return spans, deltas, true
}
