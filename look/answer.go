package look

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
)

// promqlSeries is one series of an answer of Prometheus's HTTP API.
type promqlSeries struct {
	Metric map[string]string    `json:"metric"`
	Values [][2]json.RawMessage `json:"values"`
	Value  *[2]json.RawMessage  `json:"value"`
}

// series takes up one series. Who speaks is in its labels, not in the file's name.
func (r *reader) series(target string, src *Source, s promqlSeries) {
	name := s.Metric["__name__"]
	var ls exposition.Labels
	for label, value := range s.Metric {
		if label != "__name__" {
			ls = append(ls, exposition.Label{Name: label, Value: value})
		}
	}
	slices.SortFunc(ls, func(a, b exposition.Label) int { return cmp.Compare(a.Name, b.Name) })
	target = cmp.Or(s.Metric["instance"], target)
	values := s.Values
	if s.Value != nil {
		values = append(values, *s.Value)
	}
	name, isRate := rated(name)
	name = dialects.Spelt(name)
	track, put, none := r.tracks.Series(target, name, ls)
	track.Rate = isRate && track.Type != exposition.Histogram
	for _, v := range values {
		var at float64
		var text string
		if json.Unmarshal(v[0], &at) != nil || json.Unmarshal(v[1], &text) != nil {
			src.Problems = append(src.Problems, "a sample is no [time, \"value\"]: "+exposition.Printable(string(v[0])+" "+string(v[1]), 60))
			continue
		}
		value, ok := number(text)
		if !ok {
			none()
			continue
		}
		p := adapter.Point{At: int64(math.Round(at*1e3)) * 1e6, Value: value}
		if math.Abs(value) >= 1<<53 {
			p.Text = text
		}
		put(p)
	}
}
