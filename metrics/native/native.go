// Package native reads stored series as their producers sent them: as tracks, which adapters understand.
package native

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// instance is the label that says where a series was read.
const instance = "instance"

// names matches every native series that is registered.
var names = func() *labels.Matcher {
	var alternatives []string
	add := func(name string) {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			alternatives = append(alternatives, name+suffix)
		}
	}
	for i := range signals.All() {
		for _, n := range signals.All()[i].From {
			add(n.Name)
			if _, rest, ok := strings.Cut(n.Name, ":"); ok { // as Ray exports it
				add("ray_" + n.Producer + "_" + rest)
			}
		}
	}
	slices.Sort(alternatives)
	for i, a := range alternatives {
		alternatives[i] = quote(a)
	}
	return labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, strings.Join(slices.Compact(alternatives), "|"))
}()

func quote(name string) string { return strings.ReplaceAll(name, ".", `\.`) }

// Reader makes tracks of the series of a time.
type Reader func(ctx context.Context, from storage.Queryable, since, till time.Time) ([]*adapter.Track, error)

// Registered makes tracks of the registered native series of a time, with all their samples.
func Registered(ctx context.Context, from storage.Queryable, since, till time.Time) ([]*adapter.Track, error) {
	return Matching(ctx, from, since, till, names)
}

// Sight makes tracks of all series of a time. Of those that are registered it reads the samples; of the others those of one series for each
// family of a target, which tell how often it comes, and of all how many there are.
func Sight(ctx context.Context, from storage.Queryable, since, till time.Time) ([]*adapter.Track, error) {
	type family struct{ target, name string }
	seen := map[family]bool{}
	all := labels.MustNewMatcher(labels.MatchNotEqual, model.MetricNameLabel, "")
	return read(ctx, from, since, till, func(ls labels.Labels) bool {
		name := ls.Get(model.MetricNameLabel)
		if names.Matches(name) {
			return true
		}
		f := family{ls.Get(instance), name}
		first := !seen[f]
		seen[f] = true
		return first
	}, all)
}

// Matching makes tracks of the series of a time that match, with all their samples.
func Matching(ctx context.Context, from storage.Queryable, since, till time.Time, match ...*labels.Matcher) ([]*adapter.Track, error) {
	return read(ctx, from, since, till, func(labels.Labels) bool { return true }, match...)
}

// Labels makes tracks of the registered native series of a time without any sample: who is spoken of.
func Labels(ctx context.Context, from storage.Queryable, since, till time.Time) ([]*adapter.Track, error) {
	return read(ctx, from, since, till, func(labels.Labels) bool { return false }, names)
}

func read(ctx context.Context, from storage.Queryable, since, till time.Time, samples func(labels.Labels) bool, of ...*labels.Matcher) ([]*adapter.Track, error) {
	q, err := from.Querier(since.UnixMilli(), till.UnixMilli())
	if err != nil {
		return nil, err
	}
	defer q.Close()
	var ts dialects.Tracks
	set := q.Select(ctx, false, nil, of...)
	var it chunkenc.Iterator
	for set.Next() {
		s := set.At()
		ls := s.Labels()
		track, put, none := ts.Series(ls.Get(instance), ls.Get(model.MetricNameLabel), native(ls))
		track.Series++
		if !samples(ls) {
			continue
		}
		it = s.Iterator(it)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind != chunkenc.ValFloat {
				continue // native histograms: no producer of a registered signal sends them yet
			}
			switch t, v := it.At(); {
			case value.IsStaleNaN(v): // it ended, which is no value
			case math.IsNaN(v):
				none()
			default:
				put(adapter.Point{At: t * 1e6, Value: v})
			}
		}
		if it.Err() != nil {
			return nil, it.Err()
		}
	}
	ts.Assemble()
	return ts.All, set.Err()
}

func native(ls labels.Labels) (out exposition.Labels) {
	ls.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			out = append(out, exposition.Label{Name: l.Name, Value: l.Value})
		}
	})
	return out
}
