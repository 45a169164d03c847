package world

import (
	"slices"
	"time"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/wire"
)

// Evictions of several iterations share their messages (docs/formats/stream.md §2, cache).
const (
	evictionsTogether = 16  // iterations
	evictionsAtOnce   = 256 // blocks
)

// cacheLog keeps what happens to the prefix cache until it is told. It is a [simulate.Watcher].
type cacheLog struct {
	fills   []fill
	evicted []eviction
	message wire.Cache
}

type fill struct {
	q             *simulate.Sequence
	first, blocks int
}

type eviction struct {
	user uint32
	hash uint64
}

func (c *cacheLog) begin(e *Engine) {
	if e.settings.PrefixCaching && e.scheduling.heard() {
		e.scheduler.Watch(c)
	}
}

// Filled implements [simulate.Watcher].
func (c *cacheLog) Filled(q *simulate.Sequence, first, blocks int) {
	c.fills = append(c.fills, fill{q, first, blocks})
}

// Evicted implements [simulate.Watcher].
func (c *cacheLog) Evicted(user uint32, hash uint64) {
	c.evicted = append(c.evicted, eviction{user, hash})
}

// flushFills tells which blocks may be found from now on. Hashes of a prompt were told when it was queued.
func (c *cacheLog) flushFills(e *Engine, t time.Duration) {
	m := &c.message
	for _, f := range c.fills {
		*m = wire.Cache{Time: e.mono(t), Kind: wire.CacheFilled, Handle: f.q.Number(), First: uint32(f.first), Blocks: uint32(f.blocks), Hashes: m.Hashes[:0]}
		for i := max(len(f.q.Hashes), f.first); i < f.first+f.blocks; i++ {
			m.Hashes = append(m.Hashes, f.q.Hash(i))
		}
		e.scheduling.record(t, m)
	}
	clear(c.fills)
	c.fills = c.fills[:0]
}

// flushEvictions tells which blocks were given up, by who held them last.
func (c *cacheLog) flushEvictions(e *Engine, t time.Duration, iteration uint64, idle bool) {
	if len(c.evicted) == 0 || iteration%evictionsTogether != 0 && len(c.evicted) < evictionsAtOnce && !idle {
		return
	}
	slices.SortStableFunc(c.evicted, func(a, b eviction) int { return int(int64(a.user) - int64(b.user)) })
	m := &c.message
	for i := 0; i < len(c.evicted); {
		user := c.evicted[i].user
		*m = wire.Cache{Time: e.mono(t), Kind: wire.CacheEvicted, Handle: user, Hashes: m.Hashes[:0]}
		for ; i < len(c.evicted) && c.evicted[i].user == user; i++ {
			m.Hashes = append(m.Hashes, c.evicted[i].hash)
		}
		m.Blocks = uint32(len(m.Hashes))
		e.scheduling.record(t, m)
	}
	c.evicted = c.evicted[:0]
}
