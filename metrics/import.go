package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

const (
	importAhead = 10 * time.Minute // how far beyond the store's clock a sample may lie
	importMost  = 20_000_000       // samples in memory: then a block is written, though its two hours are not over
	importDir   = "import-"        // what a process left behind that died meanwhile begins so
)

// Import takes samples of any age that the store keeps, in the order of their times. What the store's memory still takes goes there. What is older
// becomes blocks, of two hours each, in a memory and behind a guard of their own: with the same budget, and what that refuses is counted with the
// rest. Not for several goroutines. Close it.
type Import struct {
	db      *DB
	from    string
	past    *part      // of the two hours that are being filled; nil = none
	head    *tsdb.Head // its memory
	dir     string     // that memory's
	window  int64      // which two hours
	samples int
	newest  int64 // Unix ms
	blocks  []ulid.ULID
}

// Import begins an import. from says whose it is, as in [DB.Appendable].
func (db *DB) Import(from string) *Import { return &Import{db: db, from: from} }

// Untimely refuses samples of a time that the store does not keep.
type Untimely struct{ Why string }

func (e *Untimely) Error() string { return e.Why }

// Append lets fill append samples of about a moment, in one transaction. fill returns how many they are. A moment of which the store keeps
// nothing is an *[Untimely], and fill is not called.
func (i *Import) Append(ctx context.Context, at time.Time, fill func(storage.AppenderV2) (samples int, err error)) error {
	to, err := i.to(ctx, at)
	if err != nil {
		return err
	}
	app := to.AppenderV2(ctx)
	n, err := fill(app)
	if err != nil {
		return errors.Join(err, app.Rollback())
	}
	if to.(*way).part == i.past {
		i.samples += n
	}
	return app.Commit()
}

func (i *Import) to(ctx context.Context, at time.Time) (Way, error) {
	c := i.db.config
	switch age := c.Now().Sub(at); {
	case age < -importAhead:
		return nil, &Untimely{fmt.Sprintf("its time, %s, lies ahead of the server's clock", at.UTC().Format(time.RFC3339))}
	case c.Detail.For > 0 && age >= c.Detail.For:
		return nil, &Untimely{fmt.Sprintf("it is of %s, and series are kept for %s (metrics.retention.detail)", at.UTC().Format(time.RFC3339), days(c.Detail.For))}
	case age < c.OutOfOrder/2: // the other half is for the time that it takes
		return i.db.Appendable(i.from), nil
	}
	ms := at.UnixMilli()
	window := ms / tsdb.DefaultBlockDuration
	if i.past != nil && (window != i.window || ms < i.newest || i.samples >= importMost) {
		if err := i.flush(ctx); err != nil {
			return nil, err
		}
	}
	if i.past == nil {
		if err := i.open(); err != nil {
			return nil, err
		}
		i.window = window
	}
	i.newest = ms
	return &way{i.db, i.past, i.from}, nil
}

// days is "7 days", or what Go says of a time that is none in whole days.
func days(d time.Duration) string {
	if n := d / (24 * time.Hour); n > 1 && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", n)
	}
	return d.String()
}

// open makes the memory of two hours.
func (i *Import) open() (err error) {
	if i.dir, err = os.MkdirTemp(i.db.config.Dir, importDir); err != nil {
		return fmt.Errorf("time series: %w", err)
	}
	g := i.db.detail.guard.again()
	o := tsdb.DefaultHeadOptions()
	o.ChunkRange, o.ChunkDirRoot, o.SeriesCallback = tsdb.DefaultBlockDuration, i.dir, g
	i.head, err = tsdb.NewHead(nil, i.db.quiet(), nil, nil, o, tsdb.NewHeadStats())
	if err == nil {
		err = i.head.Init(math.MinInt64)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("time series: %w", err), os.RemoveAll(i.dir))
	}
	g.replayed()
	i.past, i.samples = &part{name: i.db.detail.name, into: i.head, guard: g}, 0
	return nil
}

// flush writes the two hours as a block. It counts as one of late samples: those of the store's own memory stay as they are, also at the next start.
func (i *Import) flush(ctx context.Context) error {
	if i.past == nil {
		return nil
	}
	i.db.detail.guard.absorb(i.past.guard)
	err := i.write(ctx)
	err = errors.Join(err, i.head.Close(), os.RemoveAll(i.dir))
	i.past, i.head = nil, nil
	return err
}

func (i *Import) write(ctx context.Context) error {
	if i.head.NumSeries() == 0 {
		return nil
	}
	c, err := tsdb.NewLeveledCompactor(ctx, nil, i.db.quiet(), []int64{tsdb.DefaultBlockDuration}, chunkenc.NewPool(), nil)
	if err != nil {
		return fmt.Errorf("time series: %w", err)
	}
	late := &tsdb.BlockMeta{}
	late.Compaction.SetOutOfOrder()
	ids, err := c.Write(i.db.detail.store.Dir(), i.head, i.head.MinTime(), i.head.MaxTime()+1, late)
	if err != nil {
		return fmt.Errorf("time series: %w", err)
	}
	i.blocks = append(i.blocks, ids...)
	return nil
}

// Close writes what is left. What was appended can be asked about then; what the store let go at once, since it has no room, is an error.
func (i *Import) Close(ctx context.Context) error {
	if err := i.flush(ctx); err != nil || len(i.blocks) == 0 {
		return err
	}
	store := i.db.detail.store
	if err := store.CompactOOOHead(ctx); err != nil { // it takes up blocks that are new
		return fmt.Errorf("time series: %w", err)
	}
	there := map[ulid.ULID]bool{}
	for _, b := range store.Blocks() {
		for _, id := range b.Meta().Compaction.Sources {
			there[id] = true
		}
	}
	if lost := slices.DeleteFunc(slices.Clone(i.blocks), func(id ulid.ULID) bool { return there[id] }); len(lost) > 0 {
		return fmt.Errorf("time series: %d of %d blocks that were imported were let go at once: there is no room for them; raise metrics.max_bytes", len(lost), len(i.blocks))
	}
	return nil
}

// again is a guard as this one is, of series that are not its own.
func (g *guard) again() *guard {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := newGuard(g.store, g.budget, g.rollup, g.now)
	c.trusted = maps.Clone(g.trusted)
	return c
}

// absorb counts with its own what another guard refused.
func (g *guard) absorb(other *guard) {
	other.mu.Lock()
	defer other.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.foldedSamples += other.foldedSamples
	g.droppedSamples += other.droppedSamples
	for r, e := range other.refusals {
		own := g.refusals[r]
		switch {
		case own != nil:
			own.Count += e.Count
			own.Last = e.Last
		case len(g.refusals) < 2*mostReasons:
			g.refusals[r] = e
		}
	}
}

// leftOver removes what imports left behind when their process died.
func leftOver(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, importDir+"*"))
	for _, path := range old {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
