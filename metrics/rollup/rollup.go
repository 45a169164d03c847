// Package rollup makes registered signals of series as they came: once a minute the newest native values are read as tracks, understood by their
// adapters, and written under the signal's name, in its unit, with who it is about.
//
// What is written are samples that were there, at the time at which they were: nothing is averaged, and a series that has no value in a minute has
// none here. A counter that started again within the minute leaves its last value before and its first after beside the newest, so that its
// growth is the same as in detail.
package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/native"
	"github.com/whylate/whylate/signals"
)

// Every is the time between two points of a signal.
const Every = time.Minute

// before is how far before a minute series are read: what is a misread and what a reset is seen in what surrounds it.
const before = 5 * time.Minute

// Minute writes the signals of the time from (exclusive) to (inclusive), and says how many samples it wrote. A minute may be written again.
func Minute(ctx context.Context, detail storage.Queryable, to storage.AppendableV2, from, till time.Time) (n int, err error) {
	tracks, err := native.Registered(ctx, detail, from.Add(-before), till)
	if err != nil {
		return 0, fmt.Errorf("signals of the minute before %s: %w", till.UTC().Format(time.TimeOnly), err)
	}
	w := writer{app: to.AppenderV2(ctx), from: from.UnixNano(), seen: map[uint64]bool{}}
	for _, r := range adapter.Best(dialects.Read(tracks)) {
		if r.Signal.Keep == "rollup" && !r.Rate {
			w.reading(r)
		}
	}
	return w.n, errors.Join(w.err, w.app.Commit())
}

// writer appends readings.
type writer struct {
	app  storage.AppenderV2
	from int64 // ns: what is older was written before
	seen map[uint64]bool
	n    int
	err  error
}

func (w *writer) reading(r *adapter.Reading) {
	switch {
	case r.Signal.Kind == signals.Histogram:
		w.histogram(r)
	case len(r.Points) > 0:
		w.points(r)
	}
}

func (w *writer) points(r *adapter.Reading) {
	ls := labelsOf(r)
	if !w.first(ls) {
		return
	}
	for _, p := range told(r) {
		if p.At > w.from {
			w.put(ls, p.At, p.Value)
		}
	}
}

// told are the points to keep, in order: the newest, and of a counter those around its resets.
func told(r *adapter.Reading) []adapter.Point {
	last := r.Points[len(r.Points)-1]
	if r.Signal.Kind != signals.Counter {
		return []adapter.Point{last}
	}
	spans, _ := r.Spans()
	if len(spans) == 0 {
		return nil
	}
	var ps []adapter.Point
	for i, s := range spans {
		if i > 0 {
			ps = append(ps, spans[i-1].Last, s.First)
		}
	}
	return inOrder(append(ps, spans[len(spans)-1].Last), func(p adapter.Point) int64 { return p.At })
}

// inOrder leaves of things of one moment only the first.
func inOrder[T any](things []T, at func(T) int64) []T {
	return slices.CompactFunc(things, func(a, b T) bool { return at(a) == at(b) })
}

func (w *writer) histogram(r *adapter.Reading) {
	if len(r.Hists) == 0 {
		return
	}
	ls := labelsOf(r)
	if !w.first(ls) {
		return
	}
	var hs []adapter.HistPoint
	for i := 1; i < len(r.Hists); i++ {
		if _, restarted := r.Hists[i].Since(&r.Hists[i-1].Hist); restarted {
			hs = append(hs, r.Hists[i-1], r.Hists[i])
		}
	}
	for _, h := range inOrder(append(hs, r.Hists[len(r.Hists)-1]), func(h adapter.HistPoint) int64 { return h.At }) {
		if h.At <= w.from {
			continue
		}
		name := metrics.NameOf(r.Signal)
		b := labels.NewBuilder(ls)
		b.Set(model.MetricNameLabel, name+"_bucket")
		for i, bound := range h.Bounds {
			w.put(b.Set(labels.BucketLabel, strconv.FormatFloat(bound, 'g', -1, 64)).Labels(), h.At, h.Counts[i])
		}
		w.put(b.Set(labels.BucketLabel, "+Inf").Labels(), h.At, h.Count)
		b.Del(labels.BucketLabel)
		w.put(b.Set(model.MetricNameLabel, name+"_count").Labels(), h.At, h.Count)
		if !math.IsNaN(h.Sum) {
			w.put(b.Set(model.MetricNameLabel, name+"_sum").Labels(), h.At, h.Sum)
		}
	}
}

// first reports whether no other reading of this minute has these labels. Two that say the same of the same are one.
func (w *writer) first(ls labels.Labels) bool {
	key := ls.Hash()
	if w.seen[key] {
		return false
	}
	w.seen[key] = true
	return true
}

func (w *writer) put(ls labels.Labels, at int64, v float64) {
	_, err := w.app.Append(0, ls, 0, at/1e6, v, nil, nil, storage.AppendV2Options{RejectOutOfOrder: true})
	switch {
	case err == nil:
		w.n++
	case errors.Is(err, storage.ErrOutOfOrderSample), errors.Is(err, storage.ErrDuplicateSampleForTimestamp), errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrTooOldSample):
		// it was written, or a newer one was
	case w.err == nil:
		w.err = fmt.Errorf("%s: %w", ls, err)
	}
}
