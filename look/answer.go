package look

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// promqlSeries is one series of an answer of Prometheus's HTTP API.
type promqlSeries struct {
	Metric map[string]string    `json:"metric"`
	Values [][2]json.RawMessage `json:"values"`
	Value  *[2]json.RawMessage  `json:"value"`
}

// parts are the series of one histogram, moment by moment.
type parts struct {
	track   *adapter.Track
	moments map[int64]*moment
}

type moment struct{ bounds, counts, sum, count []float64 }

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
	put, none := r.place(target, name, ls)
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

// place is where a series' values go: into a track of its own, or into the histogram that it is a part of.
func (r *reader) place(target, name string, ls exposition.Labels) (put func(adapter.Point), none func()) {
	name, isRate := rated(name)
	base := trim(name)
	if base == name || ls.Get("le") == "" && !isHistogram(base) {
		t := r.track(target, name, exposition.Unknown, ls)
		t.Rate = isRate
		return func(p adapter.Point) { t.Points = append(t.Points, p) }, func() { t.NaN++ }
	}
	own := ls.Without("le")
	t := r.track(target, base, exposition.Histogram, own)
	key := target + "\xff" + base + "\xff" + own.Key()
	h := r.parts[key]
	if h == nil {
		h = &parts{t, map[int64]*moment{}}
		r.parts[key] = h
	}
	bound, err := strconv.ParseFloat(ls.Get("le"), 64)
	return func(p adapter.Point) {
		m := h.moments[p.At]
		if m == nil {
			m = &moment{}
			h.moments[p.At] = m
		}
		switch name[len(base):] {
		case "_sum":
			m.sum = append(m.sum, p.Value)
		case "_count":
			m.count = append(m.count, p.Value)
		default:
			if err == nil {
				m.bounds, m.counts = append(m.bounds, bound), append(m.counts, p.Value)
			}
		}
	}, func() { t.NaN++ }
}

// isHistogram reports whether a family is known as one, whoever sends it.
func isHistogram(family string) bool {
	for i := range adapters {
		for _, m := range signals.Named(adapters[i].Producer, family) {
			if m.Signal.Kind == signals.Histogram {
				return true
			}
		}
	}
	return false
}

// assemble makes histograms of the parts that came one by one.
func (r *reader) assemble() {
	for _, h := range r.parts {
		for _, at := range slices.Sorted(maps.Keys(h.moments)) {
			m := h.moments[at]
			hist, _ := exposition.Assemble(h.track.Labels, m.bounds, m.counts, only(m.sum), only(m.count))
			h.track.Hists = append(h.track.Hists, adapter.HistPoint{At: at, Hist: hist})
		}
	}
}

func only(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return values[len(values)-1]
}
