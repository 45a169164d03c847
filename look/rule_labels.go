package look

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// manySeries of one metric at one target are looked at for a label that runs away.
const manySeries = 100

// personal are labels whose values may name somebody, or let him in: they are not shown.
var personal = regexp.MustCompile(`(?i)user|mail|key|token|customer|session|client|tenant`)

// labelsExplode finds labels whose values grow without bound. Totals are kept: they are added up before anything is folded.
func labelsExplode(s *Scene) (facts []Fact) {
	families := map[[2]string][]*adapter.Track{}
	for _, t := range s.Tracks {
		if t.Series > 0 && len(t.Points)+len(t.Hists) == 0 { // it was only counted
			continue
		}
		families[[2]string{t.Target, t.Family}] = append(families[[2]string{t.Target, t.Family}], t)
	}
	keys := make([][2]string, 0, len(families))
	for k, ts := range families {
		if len(ts) >= manySeries {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, k := range keys {
		if f, ok := exploding(k, families[k]); ok {
			facts = append(facts, f)
		}
	}
	return facts
}

// values are the sums by value of one label, and how many series have it.
type values struct {
	sum    map[string]float64
	series map[string]int
}

func exploding(of [2]string, ts []*adapter.Track) (f Fact, found bool) {
	labels := map[string]*values{}
	total := 0.0
	for _, t := range ts {
		n := 0.0
		if len(t.Points) > 0 {
			n = t.Points[len(t.Points)-1].Value
		}
		if len(t.Hists) > 0 {
			n = t.Hists[len(t.Hists)-1].Count
		}
		total += n
		for _, l := range t.Labels {
			v := labels[l.Name]
			if v == nil {
				v = &values{map[string]float64{}, map[string]int{}}
				labels[l.Name] = v
			}
			v.sum[l.Value] += n
			v.series[l.Value]++
		}
	}
	var worst string
	var useful []string
	for name, v := range labels {
		if len(v.sum) > len(labels[worst].distinct()) || worst == "" {
			worst = name
		}
		if n := len(v.sum); n > 1 && n <= 20 {
			useful = append(useful, fmt.Sprintf("%s (%d values)", name, n))
		}
	}
	slices.Sort(useful)
	v := labels[worst]
	rare, folded, kept := []string{}, 0.0, 0.0
	keptSeries := 0
	for value, n := range v.series {
		if n == 1 && v.sum[value] <= 1 {
			rare = append(rare, value)
			folded += v.sum[value]
		} else {
			kept, keptSeries = kept+v.sum[value], keptSeries+n
		}
	}
	if len(v.sum) < manySeries || len(rare) < len(v.sum)/2 {
		return f, false
	}
	slices.SortFunc(rare, func(a, b string) int { return cmp.Or(cmp.Compare(strangeness(b), strangeness(a)), cmp.Compare(a, b)) })
	such := ""
	if !personal.MatchString(worst) {
		var shown []string
		for _, r := range rare[:min(3, len(rare))] {
			shown = append(shown, "“"+exposition.Printable(r, 30)+"”")
		}
		such = fmt.Sprintf(" (such as %s)", strings.Join(shown, ", "))
	}
	known := ""
	if keptSeries > 0 {
		known = fmt.Sprintf("%s in %d series of known values, ", count(kept), keptSeries)
	}
	f = Fact{Weight: Wrong, Path: "request", About: exposition.Printable(of[0], 60),
		Text: fmt.Sprintf("%s has %s series, for its label %s takes whatever is asked for: %s values, %s of them seen once%s. All %s are counted: %s%s under values seen once, folded into one here.",
			exposition.Printable(of[1], 80), count(float64(len(ts))), exposition.Printable(worst, 40), count(float64(len(v.sum))), count(float64(len(rare))), such, count(total), known, count(folded)),
		Do: fmt.Sprintf("Drop or normalise the label %s where it is made; what sums over it loses nothing.", exposition.Printable(worst, 40))}
	if len(useful) > 0 {
		f.Instead = "Worth keeping: " + strings.Join(useful, ", ") + "."
	}
	return f, true
}

func (v *values) distinct() map[string]float64 {
	if v == nil {
		return nil
	}
	return v.sum
}

// strangeness puts first what says most clearly that a value was never a route: control characters, markup, great length.
func strangeness(s string) int { return strings.Count(s, "<") + strings.Count(s, "\n") + len(s)/1000 }
