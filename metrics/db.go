package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// Config says where series are kept, how long, and how many.
type Config struct {
	Dir        string        // of both stores; made where it is not there
	Detail     Keep          // series as they came
	Rollup     Keep          // registered signals, a point a minute
	OutOfOrder time.Duration // how much older than the newest sample of its series one may be
	Budget     Budget
	Query      Limits
	Log        *slog.Logger     // nil = slog.Default()
	Now        func() time.Time // nil = time.Now
}

// Keep is how long a store keeps samples. What is older or more is dropped in whole blocks.
type Keep struct {
	For   time.Duration // 0 = for ever
	Bytes int64         // of blocks on disk, the log aside; 0 = any
}

// Budget is how many series there may be. A series counts from its first sample until two to three hours after its last.
type Budget struct {
	Total  int      // in each of the two stores; 0 = 500,000
	Each   int      // of one metric that the registry of signals does not know, a histogram counting as one; 0 = 1,000
	Labels []string // names of labels that may stand as they come, beside those that are known
}

// Limits bound one query, and how many there are.
type Limits struct {
	Samples    int           // in memory at once; 0 = 50 million
	Timeout    time.Duration // 0 = 30 s
	Concurrent int           // for whoever answers: more wait, up to the timeout; 0 = 8
}

func (c Config) withDefaults() Config {
	or(&c.Budget.Total, 500_000)
	or(&c.Budget.Each, 1000)
	or(&c.Query.Samples, 50_000_000)
	or(&c.Query.Timeout, 30*time.Second)
	or(&c.Query.Concurrent, 8)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func or[T comparable](v *T, standard T) {
	var zero T
	if *v == zero {
		*v = standard
	}
}

// DB is an open data directory of series. All methods may be called at the same time.
type DB struct {
	config         Config
	detail, rollup *part
	engine         *promql.Engine
	metadata       metadataOf
	origins        origins
	registry       *prometheus.Registry
	close          func() error
}

// part is one of the two stores with its guard.
type part struct {
	name  string
	store *tsdb.DB             // nil of an import, which has only a memory
	into  storage.AppendableV2 // what samples go to
	guard *guard
	lost  *Lost // what the log's repair cost; nil = nothing
}

// Open opens a directory, which has one owner at a time. A log that is damaged is repaired: what was in it behind the damage is lost, and
// [DB.Lost] and the log say how much.
func Open(c Config) (*DB, error) {
	c = c.withDefaults()
	db := &DB{config: c, registry: prometheus.NewRegistry()}
	db.close = sync.OnceValue(db.shut)
	var err error
	if db.detail, err = db.open("detail", c.Detail, tsdb.DefaultStripeSize, false); err != nil {
		return nil, err
	}
	if db.rollup, err = db.open("rollup", c.Rollup, 1<<10, true); err != nil {
		return nil, errors.Join(err, db.detail.store.Close())
	}
	if err := leftOver(c.Dir); err != nil {
		c.Log.Warn("what an import left behind cannot be removed", "error", err)
	}
	db.engine = newEngine(c)
	db.register()
	return db, nil
}

func (db *DB) open(name string, keep Keep, stripes int, signals bool) (*part, error) {
	dir := filepath.Join(db.config.Dir, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("time series: %w", err)
	}
	g := newGuard(name, db.config.Budget, signals, db.config.Now)
	o := tsdb.DefaultOptions()
	o.RetentionDuration = keep.For.Milliseconds()
	o.MaxBytes = keep.Bytes
	o.MaxBlockDuration = longestBlock(keep.For, o.MinBlockDuration)
	o.WALCompression = compression.Snappy
	o.StripeSize = stripes
	o.OutOfOrderTimeWindow = db.config.OutOfOrder.Milliseconds()
	o.SeriesLifecycleCallback = g
	log := db.config.Log.With("store", "metrics/"+name)
	before := walOf(dir)
	var damage *wlog.CorruptionErr
	var once sync.Once // what is damaged later is not of this opening
	watched := slog.New(opening{log.Handler(), func(d *wlog.CorruptionErr) { once.Do(func() { damage = d }) }})
	store, err := tsdb.Open(dir, watched, prometheus.WrapRegistererWith(prometheus.Labels{"store": name}, db.registry), o, nil)
	if err != nil {
		if strings.Contains(err.Error(), "lock DB directory") {
			return nil, fmt.Errorf("time series in %s belong to another process (%w): stop it, or set another data_dir", dir, err)
		}
		return nil, fmt.Errorf("time series in %s: %w; if no disk fault explains it, move the directory away: a new one is made", dir, err)
	}
	g.replayed()
	p := &part{name: name, store: store, into: store, guard: g}
	if once.Do(func() {}); damage != nil {
		p.lost = before.lost(damage)
		p.lost.Store, p.lost.After = name, time.UnixMilli(store.Head().MaxTime())
		log.Warn("the log was damaged and has been repaired: what was behind the damage is lost", "at", p.lost.At, "lost_bytes_at_most", p.lost.Bytes, "newest_sample_left", p.lost.After)
	}
	return p, nil
}

// longestBlock is what Prometheus itself takes: a tenth of the retention, at most 31 days.
func longestBlock(keep time.Duration, least int64) int64 {
	longest := 31 * 24 * time.Hour
	if keep > 0 {
		longest = min(longest, keep/10)
	}
	return max(longest.Milliseconds(), least)
}

// Close writes what is in memory and lets the directory go. Queries that run are waited for; later appends and queries fail.
func (db *DB) Close() error { return db.close() }

func (db *DB) shut() error {
	return errors.Join(db.engine.Close(), db.detail.store.Close(), db.rollup.store.Close())
}

// Way is a guarded way into a store, in both forms that Prometheus has of it.
type Way interface {
	storage.Appendable
	storage.AppendableV2
}

// Appendable is the way into detail. from says whose way it is, in what is refused: scrape, otlp, remote write.
func (db *DB) Appendable(from string) Way { return &way{db, db.detail, from} }

// Signals is the way into rollup, for registered signals alone: names that [NameOf] makes.
func (db *DB) Signals(from string) Way { return &way{db, db.rollup, from} }

// Gatherer gives the stores' own figures for /metrics.
func (db *DB) Gatherer() prometheus.Gatherer { return db.registry }

// quiet is a log for what works beside the stores.
func (db *DB) quiet() *slog.Logger {
	return slog.New(opening{db.config.Log.Handler(), func(*wlog.CorruptionErr) {}})
}
