package look

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
)

// Promise is an objective, and the signal that tells whether it is kept.
type Promise struct {
	Setting string // objectives.ttft
	Signal  string
	Within  time.Duration // 0 promises nothing
}

// Unseen tells of objectives that engines' own histograms cannot be held against: no bucket ends at them, so the share within is not known.
func Unseen(s *Scene, promises []Promise) (facts []Fact) {
	for _, p := range promises {
		if p.Within <= 0 {
			continue
		}
		targets := map[string][]string{} // by what is wrong
		firsts := map[string]Fact{}
		for _, r := range s.Of(p.Signal) {
			f, blind := unseen(p, r)
			if !blind {
				continue
			}
			if targets[f.Text] == nil {
				firsts[f.Text] = f
			}
			targets[f.Text] = with(targets[f.Text], r.Target)
		}
		for _, text := range sortedKeys(firsts) {
			f := firsts[text]
			f.Text = strings.Replace(f.Text, "%", list(slices.Sorted(slices.Values(targets[text])), 3, 40), 1)
			facts = append(facts, f)
		}
	}
	return facts
}

// unseen says of one histogram why an objective is not seen in it. A percent sign stands for who sends it.
func unseen(p Promise, r *adapter.Reading) (f Fact, blind bool) {
	n := len(r.Hists)
	if n == 0 || len(r.Hists[n-1].Bounds) == 0 {
		return f, false
	}
	bounds, at := r.Hists[n-1].Bounds, p.Within.Seconds()
	next, _ := slices.BinarySearch(bounds, at*(1-1e-6))
	if next < len(bounds) && math.Abs(bounds[next]-at) <= at*1e-6 {
		return f, false
	}
	f = Fact{ID: "objective-unseen", Weight: Wrong, Path: r.Signal.Path, About: adapter.Title(r.Who.Producer)}
	where, nearest := "", ""
	setting := func(b float64) string { return time.Duration(math.Round(b * 1e9)).String() }
	switch {
	case next == 0:
		where, nearest = "lies below its first bucket, "+seconds(bounds[0]), setting(bounds[0])
	case next == len(bounds):
		where, nearest = "lies above its last bucket, "+seconds(bounds[next-1]), setting(bounds[next-1])
	default:
		where, nearest = fmt.Sprintf("lies between two of its buckets, %s and %s", seconds(bounds[next-1]), seconds(bounds[next])), setting(bounds[next-1])+" or "+setting(bounds[next])
	}
	f.Text = fmt.Sprintf("%s %s cannot be seen in %s of %%: it %s. Which share keeps it is not known from there.", p.Setting, p.Within, r.Native.Name, where)
	f.Do = fmt.Sprintf("%s: %s; or put the probe in: its own histogram has every objective as a bound.", p.Setting, nearest)
	return f, true
}
