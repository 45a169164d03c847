package metrics

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// lookback is for how long a series has its last value where nothing says that it ended.
const lookback = 5 * time.Minute

func newEngine(c Config) *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		Logger: c.Log, MaxSamples: c.Query.Samples, Timeout: c.Query.Timeout, LookbackDelta: lookback,
		EnableAtModifier: true, EnableNegativeOffset: true, EnablePerStepStats: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() }, Parser: Parser(),
	})
}

// Engine evaluates PromQL within the limits of the configuration.
func (db *DB) Engine() *promql.Engine { return db.engine }

// Queryable is both stores as one. They share no name, so no sample is there twice.
func (db *DB) Queryable() storage.Queryable { return both{db} }

type both struct{ db *DB }

func (b both) Querier(least, most int64) (storage.Querier, error) {
	detail, err := b.db.detail.store.Querier(least, most)
	if err != nil {
		return nil, err
	}
	rollup, err := b.db.rollup.store.Querier(least, most)
	if err != nil {
		detail.Close()
		return nil, err
	}
	return &routed{storage.NewMergeQuerier([]storage.Querier{detail, rollup}, nil, storage.ChainedSeriesMerge), detail, rollup}, nil
}

// routed asks only the store that has a name, where a name is given: a merge has to sort.
type routed struct {
	storage.Querier
	detail, rollup storage.Querier
}

func (q *routed) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	for _, m := range ms {
		if m.Type == labels.MatchEqual && m.Name == model.MetricNameLabel && m.Value != "" {
			if SignalOf(m.Value) != nil {
				return q.rollup.Select(ctx, sorted, hints, ms...)
			}
			return q.detail.Select(ctx, sorted, hints, ms...)
		}
	}
	return q.Querier.Select(ctx, sorted, hints, ms...)
}

// Detail is the detail store alone, for what is derived from it.
func (db *DB) Detail() storage.Queryable { return db.detail.store }

// Cardinality is how many series there are in memory, and of what.
type Cardinality struct {
	Series      uint64
	Chunks      int64
	Pairs       int // of a label and a value
	Since, Till int64
	Names       []Count // series by metric
	Labels      []Count // values by label
	Bytes       []Count // of values by label
	ByPair      []Count // series by label and value
}

// Count is how many of something there are.
type Count struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Cardinality tells of detail, at most so many lines a list.
func (db *DB) Cardinality(limit int) Cardinality {
	head := db.detail.store.Head()
	s := head.Stats(model.MetricNameLabel, limit)
	c := Cardinality{Series: s.NumSeries, Since: s.MinTime, Till: s.MaxTime, Chunks: db.chunks()}
	if s.NumSeries == 0 {
		c.Since, c.Till = math.MaxInt64, math.MinInt64
	}
	if p := s.IndexPostingStats; p != nil {
		c.Pairs = p.NumLabelPairs
		for _, l := range p.CardinalityMetricsStats {
			c.Names = append(c.Names, Count{l.Name, l.Count})
		}
		for _, l := range p.CardinalityLabelStats {
			c.Labels = append(c.Labels, Count{l.Name, l.Count})
		}
		for _, l := range p.LabelValueStats {
			c.Bytes = append(c.Bytes, Count{l.Name, l.Count})
		}
		for _, l := range p.LabelValuePairsStats {
			c.ByPair = append(c.ByPair, Count{l.Name, l.Count})
		}
	}
	return c
}

func (db *DB) chunks() int64 {
	fs, _ := db.registry.Gather()
	for _, f := range fs {
		if f.GetName() == "prometheus_tsdb_head_chunks" {
			for _, m := range f.GetMetric() {
				if len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == "detail" {
					return int64(m.GetGauge().GetValue())
				}
			}
		}
	}
	return 0
}

// Kept says how long samples are kept: of series as they came, and of signals.
func (db *DB) Kept() (detail, rollup time.Duration) {
	return db.config.Detail.For, db.config.Rollup.For
}

// Limits are those of a query.
func (db *DB) Limits() Limits { return db.config.Query }
