package dialects

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// Tracks puts native series together, whichever way they come: sample by sample, or a histogram's parts one by one. The zero value is empty.
type Tracks struct {
	All   []*adapter.Track // in the order of their first sight
	by    map[string]*adapter.Track
	parts map[string]*parts
}

// parts are the series of one histogram, moment by moment.
type parts struct {
	track   *adapter.Track
	moments map[int64]*moment
}

type moment struct{ bounds, counts, sum, count []float64 }

// Track is the one of a target, a family and labels.
func (ts *Tracks) Track(target, family string, kind exposition.Type, ls exposition.Labels) *adapter.Track {
	key := target + "\xff" + family + "\xff" + ls.Key()
	t := ts.by[key]
	if t == nil {
		t = &adapter.Track{Target: target, Family: family, Type: kind, Labels: ls}
		if ts.by == nil {
			ts.by = map[string]*adapter.Track{}
		}
		ts.by[key] = t
		ts.All = append(ts.All, t)
	}
	return t
}

// Series is where the values of a series of this name go: into a track of its own, or into the histogram that it is a part of. none takes a value
// that is no number. track is what it is, or is a part of.
func (ts *Tracks) Series(target, name string, ls exposition.Labels) (track *adapter.Track, put func(adapter.Point), none func()) {
	base, suffix := exposition.Split(name)
	if suffix == "" || ls.Get("le") == "" && !IsHistogram(base) {
		t := ts.Track(target, name, exposition.Unknown, ls)
		return t, func(p adapter.Point) { t.Points = append(t.Points, p) }, func() { t.NaN++ }
	}
	own := ls.Without("le")
	t := ts.Track(target, base, exposition.Histogram, own)
	key := target + "\xff" + base + "\xff" + own.Key()
	h := ts.parts[key]
	if h == nil {
		h = &parts{t, map[int64]*moment{}}
		if ts.parts == nil {
			ts.parts = map[string]*parts{}
		}
		ts.parts[key] = h
	}
	bound, err := strconv.ParseFloat(ls.Get("le"), 64)
	return t, func(p adapter.Point) {
		m := h.moments[p.At]
		if m == nil {
			m = &moment{}
			h.moments[p.At] = m
		}
		switch suffix {
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

// Assemble makes histograms of the parts that came one by one.
func (ts *Tracks) Assemble() {
	for _, h := range ts.parts {
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
