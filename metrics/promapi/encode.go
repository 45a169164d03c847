package promapi

import (
	"io"

	jsoniter "github.com/json-iterator/go"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/jsonutil"
	"github.com/prometheus/prometheus/util/stats"
)

// answered is the data of a query.
type answered struct {
	value parser.Value
	stats stats.QueryStats // nil where nobody asked
}

// flushAt is how much of an answer waits in memory.
const flushAt = 64 << 10

// encode streams an answer: what a query returned is written series by series, with Prometheus's own writers of times and numbers.
func encode(w io.Writer, query string, res result) {
	s := jsoniter.NewStream(jsoniter.ConfigCompatibleWithStandardLibrary, w, flushAt)
	defer s.Flush()
	s.WriteObjectStart()
	s.WriteObjectField("status")
	if res.err != nil {
		s.WriteString("error")
		field(s, "errorType", res.err.name)
		field(s, "error", res.err.Error())
	} else {
		s.WriteString("success")
		s.WriteMore()
		s.WriteObjectField("data")
		data(s, res.data)
	}
	warnings, infos := res.annotations.AsStrings(query, 10, 10)
	if len(warnings) > 0 {
		field(s, "warnings", warnings)
	}
	if len(infos) > 0 {
		field(s, "infos", infos)
	}
	s.WriteObjectEnd()
}

func field(s *jsoniter.Stream, name string, v any) {
	s.WriteMore()
	s.WriteObjectField(name)
	s.WriteVal(v)
}

func data(s *jsoniter.Stream, v any) {
	switch v := v.(type) {
	case *answered:
		s.WriteObjectStart()
		s.WriteObjectField("resultType")
		s.WriteString(string(v.value.Type()))
		s.WriteMore()
		s.WriteObjectField("result")
		value(s, v.value)
		if v.stats != nil {
			field(s, "stats", v.stats)
		}
		s.WriteObjectEnd()
	case []labels.Labels:
		list(s, len(v), func(i int) { metric(s, v[i]) })
	default:
		s.WriteVal(v)
	}
}

func value(s *jsoniter.Stream, v parser.Value) {
	switch v := v.(type) {
	case promql.Vector:
		list(s, len(v), func(i int) {
			s.WriteObjectStart()
			s.WriteObjectField("metric")
			metric(s, v[i].Metric)
			s.WriteMore()
			if v[i].H != nil {
				s.WriteObjectField("histogram")
				histogram(s, promql.HPoint{T: v[i].T, H: v[i].H})
			} else {
				s.WriteObjectField("value")
				float(s, promql.FPoint{T: v[i].T, F: v[i].F})
			}
			s.WriteObjectEnd()
		})
	case promql.Matrix:
		list(s, len(v), func(i int) {
			s.WriteObjectStart()
			s.WriteObjectField("metric")
			metric(s, v[i].Metric)
			if ps := v[i].Floats; len(ps) > 0 {
				s.WriteMore()
				s.WriteObjectField("values")
				list(s, len(ps), func(k int) { float(s, ps[k]) })
			}
			if ps := v[i].Histograms; len(ps) > 0 {
				s.WriteMore()
				s.WriteObjectField("histograms")
				list(s, len(ps), func(k int) { histogram(s, ps[k]) })
			}
			s.WriteObjectEnd()
		})
	case promql.Scalar:
		float(s, promql.FPoint{T: v.T, F: v.V})
	case promql.String:
		s.WriteArrayStart()
		jsonutil.MarshalTimestamp(v.T, s)
		s.WriteMore()
		s.WriteString(v.V)
		s.WriteArrayEnd()
	}
}

func list(s *jsoniter.Stream, n int, each func(int)) {
	s.WriteArrayStart()
	for i := range n {
		if s.Error != nil {
			return // nobody reads any more, and what is not taken would gather here
		}
		if i > 0 {
			s.WriteMore()
		}
		each(i)
		if s.Buffered() > flushAt {
			s.Flush()
		}
	}
	s.WriteArrayEnd()
}

func metric(s *jsoniter.Stream, ls labels.Labels) {
	s.WriteObjectStart()
	first := true
	ls.Range(func(l labels.Label) {
		if !first {
			s.WriteMore()
		}
		first = false
		s.WriteObjectField(l.Name)
		s.WriteString(l.Value)
	})
	s.WriteObjectEnd()
}

func float(s *jsoniter.Stream, p promql.FPoint) {
	s.WriteArrayStart()
	jsonutil.MarshalTimestamp(p.T, s)
	s.WriteMore()
	jsonutil.MarshalFloat(p.F, s)
	s.WriteArrayEnd()
}

func histogram(s *jsoniter.Stream, p promql.HPoint) {
	s.WriteArrayStart()
	jsonutil.MarshalTimestamp(p.T, s)
	s.WriteMore()
	jsonutil.MarshalHistogram(p.H, s)
	s.WriteArrayEnd()
}
