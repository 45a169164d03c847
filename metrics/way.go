package metrics

import (
	"context"
	"errors"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
)

// way is the guarded way into one of the stores.
type way struct {
	db   *DB
	part *part
	from string
}

func (w *way) AppenderV2(ctx context.Context) storage.AppenderV2 { return w.appender(ctx) }

func (w *way) Appender(ctx context.Context) storage.Appender {
	return &older{appender: w.appender(ctx)}
}

func (w *way) appender(ctx context.Context) *appender {
	inner := w.part.into.AppenderV2(ctx)
	return &appender{AppenderV2: inner, refs: inner.(storage.GetRef), way: w, guard: w.part.guard}
}

// appender decides on series that are not there, and lets samples of those that are pass.
type appender struct {
	storage.AppenderV2
	refs   storage.GetRef
	way    *way
	guard  *guard
	pools  map[*pool]bool // that this transaction has added to
	family string         // whose metadata were taken last
	target origin         // whose way was noted last
}

// Append implements [storage.AppenderV2]. A sample that is folded or refused is no error: it is counted, and its reference is 0.
func (a *appender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	if opts.MetricFamilyName != "" && opts.MetricFamilyName != a.family {
		a.family = strings.Clone(opts.MetricFamilyName)
		a.way.db.metadata.put(a.family, opts.Metadata)
	}
	opts.Exemplars = nil
	if ref != 0 {
		r, err := a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
		if !errors.Is(err, errUndecided) {
			return r, err
		}
	}
	ls = ls.WithoutEmpty()
	if of := originOf(ls); of != a.target {
		a.target = origin{strings.Clone(of.job), strings.Clone(of.instance)}
		a.way.db.origins.note(a.target, a.way.from)
	}
	if !saysOther(ls) {
		if r, own := a.refs.GetRef(ls, ls.Hash()); r != 0 {
			return a.AppenderV2.Append(r, own, st, t, v, h, fh, opts)
		}
	}
	if twice, ok := ls.HasDuplicateLabelNames(); ok {
		a.guard.duplicate(a.way.from, ls.Get(model.MetricNameLabel), twice)
		return 0, nil
	}
	return a.decide(ls, st, t, v, h, fh, opts)
}

func (a *appender) decide(ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	g := a.guard
	g.deciding.Lock()
	defer g.deciding.Unlock()
	d := g.decide(a.way.from, ls, t, a.way.db.metadata.isCounter(ls.Get(model.MetricNameLabel), opts.Metadata.Type))
	defer g.decided(ls)
	switch {
	case !d.keep.IsEmpty():
		return a.AppenderV2.Append(0, d.keep, st, t, v, h, fh, opts)
	case d.pool != nil:
		if h != nil {
			fh = h.ToFloat(nil)
		}
		g.add(d.pool, ls, d.late, t, v, fh)
		if a.pools == nil {
			a.pools = map[*pool]bool{}
		}
		a.pools[d.pool] = true
	}
	return 0, nil
}

func saysOther(ls labels.Labels) (yes bool) {
	ls.Range(func(l labels.Label) { yes = yes || l.Value == other })
	return yes
}

// Commit implements [storage.AppenderV2]: what was folded in this transaction is appended, a sample a series.
func (a *appender) Commit() error {
	for p := range a.pools {
		a.tell(p)
	}
	a.pools = nil
	return a.AppenderV2.Commit()
}

// tell appends a pool's value. That it comes too late or that there is no room is counted by the store or by the guard, and costs nobody else.
func (a *appender) tell(p *pool) {
	t, v, h, ok := a.guard.tell(p)
	if !ok {
		return
	}
	if r, own := a.refs.GetRef(p.labels, p.labels.Hash()); r != 0 {
		_, _ = a.AppenderV2.Append(r, own, 0, t, v, nil, h, storage.AppendV2Options{})
		return
	}
	a.guard.deciding.Lock()
	defer a.guard.deciding.Unlock()
	if a.guard.room(p.labels) {
		defer a.guard.decided(p.labels)
		_, _ = a.AppenderV2.Append(0, p.labels, 0, t, v, nil, h, storage.AppendV2Options{})
	}
}

// Rollback implements [storage.AppenderV2]. What was folded stays counted: the next transaction tells it.
func (a *appender) Rollback() error {
	a.pools = nil
	return a.AppenderV2.Rollback()
}

// older is the appender in the form that Prometheus is about to leave.
type older struct {
	*appender
	opts storage.AppendV2Options
}

func (a *older) Append(ref storage.SeriesRef, ls labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	return a.appender.Append(ref, ls, 0, t, v, nil, nil, a.opts)
}

func (a *older) AppendHistogram(ref storage.SeriesRef, ls labels.Labels, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return a.appender.Append(ref, ls, 0, t, 0, h, fh, a.opts)
}

func (a *older) SetOptions(o *storage.AppendOptions) {
	a.opts.RejectOutOfOrder = o != nil && o.DiscardOutOfOrder
}

// UpdateMetadata keeps what a metric is: by its name, not by series.
func (a *older) UpdateMetadata(ref storage.SeriesRef, ls labels.Labels, m metadata.Metadata) (storage.SeriesRef, error) {
	a.way.db.metadata.put(strings.Clone(ls.Get(model.MetricNameLabel)), m)
	return ref, nil
}

// Exemplars are not kept: they carry ids of traces, and whoever wants one asks the ledger.
func (a *older) AppendExemplar(ref storage.SeriesRef, _ labels.Labels, _ exemplar.Exemplar) (storage.SeriesRef, error) {
	return ref, nil
}

// Nor are start times: a counter's reset is seen in its values.
func (a *older) AppendSTZeroSample(ref storage.SeriesRef, _ labels.Labels, _, _ int64) (storage.SeriesRef, error) {
	return ref, nil
}

func (a *older) AppendHistogramSTZeroSample(ref storage.SeriesRef, _ labels.Labels, _, _ int64, _ *histogram.Histogram, _ *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return ref, nil
}

var (
	_ storage.Appender   = (*older)(nil)
	_ storage.AppenderV2 = (*appender)(nil)
)
