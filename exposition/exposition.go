// Package exposition reads what a metrics endpoint says: Prometheus text 0.0.4 and 1.0, and OpenMetrics. The grammar is Prometheus's own
// parser; what it would refuse costs one line here, never the page.
package exposition

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Page is one scrape.
type Page struct {
	Families []*Family // in the order of their first sight
	Problems []Problem // lines, or parts of them, that could not be taken

	byName map[string]*Family
}

// Problem is something of a page that could not be taken. Nothing else was lost by it.
type Problem struct {
	Line int    // from 1
	Text string // the offending part, shortened and safe to print
	Why  string // and what follows from it
}

func (p Problem) String() string { return fmt.Sprintf("line %d: %s: %s", p.Line, p.Text, p.Why) }

// Type is what a family is declared to be, which need not be the truth.
type Type string

// The types of the formats.
const (
	Unknown   Type = "unknown"
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
	Summary   Type = "summary"
	Info      Type = "info"
	StateSet  Type = "stateset"
)

// Family is a metric with all its series.
type Family struct {
	Name       string // histograms and summaries without their suffixes; everything else as it stands in the samples
	Type       Type
	Help, Unit string
	Samples    []Sample
	Histograms []Hist    // of the type histogram
	Summaries  []Summed  // of the type summary
	NaN        []NotANum // samples without a number: unknown, never zero
}

// Labels are sorted by name.
type Labels []Label

// Label is a name and a value, byte for byte after unescaping.
type Label struct{ Name, Value string }

// Get is the value of a label, "" where it is absent.
func (ls Labels) Get(name string) string {
	for _, l := range ls {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Without are the labels but some.
func (ls Labels) Without(names ...string) Labels {
	return slices.DeleteFunc(slices.Clone(ls), func(l Label) bool { return slices.Contains(names, l.Name) })
}

// Of are those of the labels that have one of these names.
func (ls Labels) Of(names ...string) Labels {
	return slices.DeleteFunc(slices.Clone(ls), func(l Label) bool { return !slices.Contains(names, l.Name) })
}

// Key is a text that two sets of labels share only if they are equal.
func (ls Labels) Key() string {
	var b strings.Builder
	for _, l := range ls {
		b.WriteString(l.Name)
		b.WriteByte(0xff) // in no UTF-8 text
		b.WriteString(l.Value)
		b.WriteByte(0xff)
	}
	return b.String()
}

// Sample is one number. It is finite or infinite, never NaN.
type Sample struct {
	Labels Labels
	Value  float64
	Text   string // as it stood, where a float64 cannot hold every whole number any more (from 2⁵³); else ""
	At     int64  // Unix ms, if the page says so; else 0
}

// NotANum is a sample whose value is no number.
type NotANum struct {
	Labels Labels
	Line   int
}

// Summed is a summary: quantiles of a window that nobody knows, and totals.
type Summed struct {
	Labels     Labels
	Quantiles  []Quantile
	Sum, Count float64
}

// Quantile is one of a summary.
type Quantile struct{ Q, Value float64 }

// Family is the one of this name, nil where there is none.
func (p *Page) Family(name string) *Family { return p.byName[name] }

// Read reads a page. What it cannot take it names in Problems, and goes on.
func Read(b []byte) *Page {
	p := &Page{byName: map[string]*Family{}}
	r := reader{page: p, hists: map[seriesKey]*Hist{}, sums: map[seriesKey]*Summed{}, types: map[string]Type{}, symbols: labels.NewSymbolTable()}
	r.open = IsOpenMetrics(b)
	if r.all(b) != nil {
		p.Families, p.Problems, p.byName = nil, nil, map[string]*Family{}
		r.hist, r.like, r.hists, r.sums, r.types = nil, likeness{}, map[seriesKey]*Hist{}, map[seriesKey]*Summed{}, map[string]Type{}
		r.each(b)
	}
	r.finish()
	return p
}

// longestLine is how long a line, and a series that a line break in one of its values makes longer than a line, may be. Prometheus ends the
// process at a label of 16 MiB.
const longestLine = 1 << 20

// mostProblems is how many lines of a page may be wrong before no more is made of it: such a page is something else, or meant to harm.
const mostProblems = 100_000

var errLong = fmt.Errorf("over %d bytes", longestLine)

func hasLongLine(b []byte) bool {
	for len(b) > longestLine {
		end := bytes.LastIndexByte(b[:longestLine+1], '\n')
		if end < 0 {
			return true
		}
		b = b[end+1:]
	}
	return false
}

// IsOpenMetrics reports whether a page is OpenMetrics: by its end.
func IsOpenMetrics(b []byte) bool {
	b = bytes.TrimRight(b, "\n")
	return bytes.HasSuffix(b, []byte("\n# EOF")) || bytes.Equal(b, []byte("# EOF"))
}

type seriesKey struct{ name, labels string }

type reader struct {
	page    *Page
	open    bool // OpenMetrics
	symbols *labels.SymbolTable
	types   map[string]Type
	hists   map[seriesKey]*Hist
	sums    map[seriesKey]*Summed
	line    int    // of each(); 0 in all()
	rest    []byte // of all(): what is behind the last series whose line was asked for
	passed  int    // lines before it

	hist     *Hist // the last one that was written to
	histName string
	like     likeness // of the last bucket
}

// likeness is how the text of a bucket's series stands around its bound: another that stands so is of the same histogram, and needs no
// labels read. Most lines of an engine's page are such.
type likeness struct {
	before, after []byte
	hist          *Hist
}

// around divides a bucket's series at the value of its label le; ok is false where that is not plain to see. What looks like the label
// inside another one's value is no bound, as it does not parse as a number.
func around(series []byte) (before, bound, after []byte, ok bool) {
	i := bytes.Index(series, []byte(`le="`))
	if i < 1 || series[i-1] != '{' && series[i-1] != ',' {
		return nil, nil, nil, false
	}
	i += len(`le="`)
	n := bytes.IndexByte(series[i:], '"')
	if n < 0 {
		return nil, nil, nil, false
	}
	return series[:i], series[i : i+n], series[i+n:], true
}

// again takes a bucket that only differs in its bound from the one before it.
func (r *reader) again(series []byte, value float64) bool {
	l := &r.like
	if l.hist == nil || !bytes.HasPrefix(series, l.before) || !bytes.HasSuffix(series, l.after) || len(series) < len(l.before)+len(l.after) {
		return false
	}
	bound, err := strconv.ParseFloat(string(series[len(l.before):len(series)-len(l.after)]), 64)
	if err != nil {
		return false
	}
	l.hist.Bounds, l.hist.Counts = append(l.hist.Bounds, bound), append(l.hist.Counts, value)
	return true
}

// all reads the page in one go, which is fast, and fails at the first line that Prometheus would not take.
func (r *reader) all(b []byte) error {
	if hasLongLine(b) {
		return errLong
	}
	if n := len(b); n > 0 && b[n-1] != '\n' {
		b = append(slices.Clone(b), '\n')
	}
	r.rest = b
	return r.parse(b)
}

// lineOf is the line of a series, which lines must be asked for in order.
func (r *reader) lineOf(series []byte) int {
	if r.line > 0 {
		return r.line
	}
	if at := bytes.Index(r.rest, series); at >= 0 {
		r.passed += bytes.Count(r.rest[:at], []byte("\n"))
		r.rest = r.rest[at:]
	}
	return r.passed + 1
}

// each reads line by line, for pages that are not as they should be.
func (r *reader) each(b []byte) {
	lines(b, r.open, func(n int, line []byte) error {
		r.line = n
		return r.parse(terminated(line, r.open))
	}, func(p Problem) { r.page.Problems = append(r.page.Problems, p) })
}

// lines offers each line that may say something, without its end, and where it is refused and that helps, as it was meant.
func lines(b []byte, open bool, take func(n int, line []byte) error, tell func(Problem)) {
	n, told := 0, 0
	for line := range bytes.Lines(b) {
		n++
		if told == mostProblems {
			tell(Problem{n, "this line and what follows", fmt.Sprintf("%d lines before it are not of the format; the rest was left out", told)})
			return
		}
		text := bytes.TrimRight(line, "\r\n")
		if len(bytes.TrimSpace(text)) == 0 || open && bytes.HasPrefix(text, []byte("# EOF")) {
			continue
		}
		problem := func(text []byte, why string) {
			told++
			tell(Problem{n, Printable(string(text[:min(len(text), 1000)]), 60), why})
		}
		if len(text) > longestLine {
			problem(text, fmt.Sprintf("a line of %d bytes, over %d; it was left out", len(text), longestLine))
			continue
		}
		if !utf8.Valid(text) {
			problem(text, "not UTF-8; the line was left out")
			continue
		}
		if take(n, text) == nil {
			continue
		}
		if repaired, value := asNaN(text); repaired != nil && take(n, repaired) == nil {
			problem([]byte(value), "not a number (such as 0 divided by 0 before the first request): this one sample is unknown, not 0")
			continue
		}
		problem(text, "not a line of the format; it was left out")
	}
}

func terminated(line []byte, open bool) []byte {
	end := "\n"
	if open {
		end = "\n# EOF\n"
	}
	return append(slices.Clip(slices.Clone(line)), end...)
}

// asNaN is the line with its value written as NaN, if that is one of the ways in which C and others write it: -nan, -nan(ind), 1.#QNAN.
// Infinities come back as such.
func asNaN(line []byte) ([]byte, string) {
	end := bytes.LastIndexByte(line, '}') + 1
	rest := string(line[end:])
	name := 0
	if end == 0 {
		if name = strings.IndexAny(rest, " \t"); name < 0 {
			return nil, ""
		}
	}
	fields := strings.Fields(rest[name:])
	if len(fields) == 0 {
		return nil, ""
	}
	value := strings.ToLower(strings.TrimLeft(fields[0], "+-"))
	if !strings.HasPrefix(value, "nan") && !strings.HasPrefix(value, "1.#") {
		return nil, ""
	}
	fixed := "NaN"
	if strings.HasPrefix(value, "1.#inf") {
		fixed = fields[0][:len(fields[0])-len(value)] + "Inf"
	}
	at := end + name + strings.Index(rest[name:], fields[0])
	return slices.Concat(line[:at], []byte(fixed), line[at+len(fields[0]):]), fields[0]
}

// Printable is a text shortened to n runes, with a mark, and with its control characters and invalid bytes escaped: safe on a terminal.
func Printable(s string, n int) string {
	q := strconv.Quote(s)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	if runes := []rune(q); len(runes) > n {
		return fmt.Sprintf("%s… (%d bytes)", string(runes[:n]), len(s))
	}
	return q
}

func (r *reader) parse(b []byte) error {
	var p textparse.Parser
	if r.open {
		p = textparse.NewOpenMetricsParser(b, r.symbols)
	} else {
		p = textparse.NewPromParser(b, r.symbols, false)
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch entry {
		case textparse.EntryType:
			name, t := p.Type()
			r.declare(string(name), t)
		case textparse.EntryHelp:
			name, text := p.Help()
			r.family(r.named(string(name))).Help = string(text)
		case textparse.EntryUnit:
			name, text := p.Unit()
			r.family(r.named(string(name))).Unit = string(text)
		case textparse.EntrySeries:
			var ls labels.Labels
			series, at, value := p.Series()
			if len(series) > longestLine {
				return errLong
			}
			if r.again(series, value) {
				continue
			}
			p.Labels(&ls)
			if err := r.sample(ls, at, value, series); err != nil {
				return err
			}
		}
	}
}

func (r *reader) declare(name string, t model.MetricType) {
	kind := Unknown
	switch t {
	case model.MetricTypeCounter:
		kind = Counter
		if r.open && !strings.HasSuffix(name, "_total") {
			r.types[name+"_total"] = kind // its samples are called so
		}
	case model.MetricTypeGauge:
		kind = Gauge
	case model.MetricTypeHistogram, model.MetricTypeGaugeHistogram:
		kind = Histogram
	case model.MetricTypeSummary:
		kind = Summary
	case model.MetricTypeInfo:
		kind = Info
		r.types[name+"_info"] = kind
	case model.MetricTypeStateset:
		kind = StateSet
	}
	r.types[name], r.like = kind, likeness{}
	if f := r.page.byName[name]; f != nil {
		f.Type = kind
	}
}

// named is the family's name that its samples have: OpenMetrics declares counters and infos without their suffix.
func (r *reader) named(name string) string {
	if !r.open {
		return name
	}
	switch r.types[name] {
	case Counter:
		return strings.TrimSuffix(name, "_total") + "_total"
	case Info:
		return strings.TrimSuffix(name, "_info") + "_info"
	}
	return name
}

func (r *reader) family(name string) *Family {
	f := r.page.byName[name]
	if f == nil {
		f = &Family{Name: name, Type: cmp.Or(r.types[name], Unknown)}
		r.page.byName[name] = f
		r.page.Families = append(r.page.Families, f)
	}
	return f
}

var errNoName = errors.New("a sample without a name")

func (r *reader) sample(ls labels.Labels, at *int64, value float64, series []byte) error {
	name := ls.Get(model.MetricNameLabel)
	if name == "" {
		return errNoName
	}
	if base, suffix := Split(name); suffix != "" {
		switch r.types[base] {
		case Histogram:
			return r.bucket(base, suffix, ls, at, value, series)
		case Summary:
			r.summed(base, suffix, ls, value)
			return nil
		case "":
			if suffix == "_bucket" && ls.Has("le") { // nobody declared it
				r.types[strings.Clone(base)] = Histogram
				return r.bucket(base, suffix, ls, at, value, series)
			}
		}
	}
	if q := ls.Get("quantile"); q != "" && r.types[name] == Summary {
		n, err := strconv.ParseFloat(q, 64)
		if err != nil {
			return err
		}
		s := r.summary(name, ls)
		s.Quantiles = append(s.Quantiles, Quantile{n, value})
		return nil
	}
	f, own := r.family(name), without(ls, "")
	if math.IsNaN(value) {
		f.NaN = append(f.NaN, NotANum{own, r.lineOf(series)})
		return nil
	}
	s := Sample{Labels: own, Value: value}
	if math.Abs(value) >= 1<<53 {
		s.Text = after(series)
	}
	if at != nil {
		s.At = *at
	}
	f.Samples = append(f.Samples, s)
	return nil
}

// without are a sample's labels but its name and one more.
func without(ls labels.Labels, name string) Labels {
	own := make(Labels, 0, ls.Len())
	ls.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel && l.Name != name {
			own = append(own, Label{l.Name, l.Value})
		}
	})
	return own
}

// same reports whether these are the labels of a sample but its name and one more.
func (ls Labels) same(of labels.Labels, name string) bool {
	i, equal := 0, true
	of.Range(func(l labels.Label) {
		if l.Name == model.MetricNameLabel || l.Name == name {
			return
		}
		equal = equal && i < len(ls) && ls[i] == Label{l.Name, l.Value}
		i++
	})
	return equal && i == len(ls)
}

// after is the word behind a series: its value as it stands on the page, of which the series is a slice.
func after(series []byte) string {
	fields := bytes.Fields(series[len(series):min(cap(series), len(series)+64)])
	if len(fields) == 0 {
		return ""
	}
	return string(fields[0])
}

// Split takes the suffix off a sample's name that histograms and summaries have: _bucket, _count or _sum; "" where it has none.
func Split(name string) (base, suffix string) {
	for _, s := range []string{"_bucket", "_count", "_sum"} {
		if b, ok := strings.CutSuffix(name, s); ok {
			return b, s
		}
	}
	return name, ""
}

func (r *reader) bucket(name, suffix string, ls labels.Labels, at *int64, value float64, series []byte) error {
	h := r.hist
	if h == nil || r.histName != name || !h.Labels.same(ls, "le") { // the buckets of one mostly come together
		h = r.histogram(name, ls)
	}
	if at != nil {
		h.At = *at
	}
	switch suffix {
	case "_sum":
		h.Sum = value
	case "_count":
		h.Count = value
	default:
		bound, err := strconv.ParseFloat(ls.Get("le"), 64)
		if err != nil {
			return err
		}
		h.Bounds, h.Counts = append(h.Bounds, bound), append(h.Counts, value)
		r.like = likeness{}
		if before, _, after, ok := around(series); ok {
			r.like = likeness{before, after, h}
		}
	}
	return nil
}

func (r *reader) histogram(name string, ls labels.Labels) *Hist {
	own := without(ls, "le")
	key := seriesKey{name, own.Key()}
	h := r.hists[key]
	if h == nil {
		h = &Hist{Labels: own, Sum: math.NaN(), Count: math.NaN()}
		r.hists[key] = h
		r.family(name)
	}
	r.hist, r.histName = h, name
	return h
}

func (r *reader) summed(name, suffix string, ls labels.Labels, value float64) {
	s := r.summary(name, ls)
	switch suffix {
	case "_sum":
		s.Sum = value
	case "_count":
		s.Count = value
	}
}

func (r *reader) summary(name string, ls labels.Labels) *Summed {
	own := without(ls, "quantile")
	key := seriesKey{name, own.Key()}
	if r.sums[key] == nil {
		r.sums[key] = &Summed{Labels: own, Sum: math.NaN(), Count: math.NaN()}
		r.family(name)
	}
	return r.sums[key]
}

// adopt gives histograms that nobody declared the sums and counts that stood before their first bucket.
func (r *reader) adopt() {
	r.page.Families = slices.DeleteFunc(r.page.Families, func(f *Family) bool {
		base, suffix := Split(f.Name)
		if f.Type != Unknown || suffix == "" || suffix == "_bucket" || r.types[base] != Histogram {
			return false
		}
		f.Samples = slices.DeleteFunc(f.Samples, func(s Sample) bool {
			h := r.hists[seriesKey{base, s.Labels.Key()}]
			switch {
			case h == nil:
				return false
			case suffix == "_sum":
				h.Sum = s.Value
			default:
				h.Count = s.Value
			}
			return true
		})
		if len(f.Samples)+len(f.NaN) > 0 {
			return false
		}
		delete(r.page.byName, f.Name)
		return true
	})
}

// finish sorts the histograms' buckets and hands them to their families, in an order that does not depend on chance.
func (r *reader) finish() {
	r.adopt()
	for key, h := range r.hists {
		f := r.page.byName[key.name]
		f.Type = Histogram
		if why := h.settle(); why != "" {
			r.page.Problems = append(r.page.Problems, Problem{r.line, Printable(key.name, 80), why})
		}
		f.Histograms = append(f.Histograms, *h)
	}
	for key, s := range r.sums {
		f := r.page.byName[key.name]
		f.Summaries = append(f.Summaries, *s)
	}
	for _, f := range r.page.Families {
		slices.SortFunc(f.Histograms, func(a, b Hist) int { return cmp.Compare(a.Labels.Key(), b.Labels.Key()) })
		slices.SortFunc(f.Summaries, func(a, b Summed) int { return cmp.Compare(a.Labels.Key(), b.Labels.Key()) })
	}
}
