package dialect

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// page writes a metrics page as Python's prometheus_client does: labels sorted by name, every number a float, and the time of each
// series' creation as a family of its own.
type page struct {
	text    []byte
	created float64 // Unix s; 0 = not told, as where several processes share a page
}

// label is one label of a series.
type label struct{ name, value string }

// family begins a family of series.
func (p *page) family(name, kind, help string) {
	p.text = append(p.text, "# HELP "...)
	p.text = append(append(append(p.text, name...), ' '), help...)
	p.text = append(p.text, "\n# TYPE "...)
	p.text = append(append(append(append(p.text, name...), ' '), kind...), '\n')
}

// sample writes the value of one series. Labels are sorted here.
func (p *page) sample(name string, labels []label, value float64) {
	p.series(name, labels)
	p.text = append(appendPython(append(p.text, ' '), value), '\n')
}

func (p *page) series(name string, labels []label) {
	p.text = append(p.text, name...)
	if len(labels) == 0 {
		return
	}
	slices.SortFunc(labels, func(a, b label) int { return strings.Compare(a.name, b.name) })
	p.text = append(p.text, '{')
	for i, l := range labels {
		if i > 0 {
			p.text = append(p.text, ',')
		}
		p.text = append(append(p.text, l.name...), '=', '"')
		p.text = append(append(p.text, escape.Replace(l.value)...), '"')
	}
	p.text = append(p.text, '}')
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// counter writes a family of counters, whose name is without _total; its series are those of each.
func (p *page) counter(name, help string, each func(put func(value float64, labels ...label))) {
	p.family(name+"_total", "counter", help)
	each(func(value float64, labels ...label) { p.sample(name+"_total", labels, value) })
	p.creations(name, help, each)
}

// gauge writes a family of gauges.
func (p *page) gauge(name, help string, each func(put func(value float64, labels ...label))) {
	p.family(name, "gauge", help)
	each(func(value float64, labels ...label) { p.sample(name, labels, value) })
}

// creations writes when each series of a family was made.
func (p *page) creations(name, help string, each func(put func(value float64, labels ...label))) {
	if p.created == 0 {
		return
	}
	p.gauge(name+"_created", help, func(put func(float64, ...label)) {
		each(func(_ float64, labels ...label) { put(p.created, labels...) })
	})
}

// histogram writes a family of histograms.
func (p *page) histogram(name, help string, each func(put func(h *histogram, labels ...label))) {
	p.family(name, "histogram", help)
	each(func(h *histogram, labels ...label) {
		var sum float64
		for i, n := range h.counts {
			le := math.Inf(1)
			if i < len(h.bounds) {
				le = h.bounds[i]
			}
			sum += n
			p.sample(name+"_bucket", append(slices.Clone(labels), label{"le", string(appendPython(nil, le))}), sum)
		}
		p.sample(name+"_count", labels, sum)
		p.sample(name+"_sum", labels, h.sum)
	})
	p.creations(name, help, func(put func(float64, ...label)) {
		each(func(_ *histogram, labels ...label) { put(0, labels...) })
	})
}

// histogram counts observations in the buckets of upper bounds, the last of which has none.
type histogram struct {
	bounds []float64
	counts []float64 // of each bucket alone
	sum    float64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]float64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i]++
	h.sum += v
}

// appendPython writes a number as Python prints a float, and as its prometheus_client changes that: an exponent from a million on, as Go
// has it.
func appendPython(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	case math.IsNaN(v):
		return append(b, "NaN"...)
	}
	a := math.Abs(v)
	if a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, v, 'f', -1, 64)
	dot := strings.IndexByte(string(b[start:]), '.')
	if dot < 0 {
		dot = len(b) - start
		b = append(b, ".0"...)
	}
	if v <= 0 || dot <= 6 {
		return b
	}
	digits := string(b[start:start+dot]) + string(b[start+dot+1:])
	mantissa := strings.TrimRight(digits[:1]+"."+digits[1:], "0.")
	return append(append(b[:start], mantissa...), "e+0"+strconv.Itoa(dot-1)...)
}
