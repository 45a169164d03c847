package look

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/signals"
)

// Promise is an objective, and the signal that tells whether it is kept.
type Promise struct {
	Setting string // objectives.ttft
	Signal  string
	Within  time.Duration // 0 promises nothing
}

// Unseen tells of objectives that engines' own histograms cannot be held against: no bucket ends at them, so the share within is not known.
func Unseen(s *Scene, promises []Promise) (facts []Fact) {
	type blind struct{ producer, native, where, nearest string }
	for _, p := range promises {
		targets := map[blind][]string{}
		for _, r := range s.Of(p.Signal) {
			if n := len(r.Hists); n > 0 && p.Within > 0 {
				if where, nearest := edges(r.Hists[n-1].Bounds, p.Within.Seconds()); where != "" {
					k := blind{r.Who.Producer, r.Native.Name, where, nearest}
					targets[k] = with(targets[k], r.Target)
				}
			}
		}
		for _, k := range slices.SortedFunc(maps.Keys(targets), func(a, b blind) int { return cmp.Or(cmp.Compare(a.native, b.native), cmp.Compare(a.where, b.where)) }) {
			facts = append(facts, Fact{ID: "objective-unseen", Weight: Wrong, Path: signals.Lookup(p.Signal).Path, About: adapter.Title(k.producer),
				Text: fmt.Sprintf("%s %s cannot be seen in %s of %s: it lies %s. Which share keeps it is not known from there.", p.Setting, p.Within, k.native, list(slices.Sorted(slices.Values(targets[k])), 3, 40), k.where),
				Do:   fmt.Sprintf("Set %s: %s; or put the probe into the engine: whylate's own histogram has each objective as a bound.", p.Setting, k.nearest)})
		}
	}
	return facts
}

// edges says where a value lies that no bucket ends at, and which bounds are nearest; "" where one does, or there are none.
func edges(bounds []float64, at float64) (where, nearest string) {
	next, _ := slices.BinarySearch(bounds, at*(1-1e-6))
	setting := func(b float64) string { return time.Duration(math.Round(b * 1e9)).String() }
	switch n := len(bounds); {
	case n == 0 || next < n && bounds[next] <= at*(1+1e-6):
		return "", ""
	case next == 0:
		return "below its first bucket, " + seconds(bounds[0]), setting(bounds[0])
	case next == n:
		return "above its last bucket, " + seconds(bounds[n-1]), setting(bounds[n-1])
	}
	return fmt.Sprintf("between two of its buckets, %s and %s", seconds(bounds[next-1]), seconds(bounds[next])), setting(bounds[next-1]) + " or " + setting(bounds[next])
}
