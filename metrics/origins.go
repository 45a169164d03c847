package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
)

// mostOrigins is of how many targets it is known by which way they come, and longestOrigin how long the name of one may be.
const mostOrigins, longestOrigin = 10_000, 256

// origins are the ways by which series of each target come. They are not kept: after a start each way is seen again with its first sample.
type origins struct {
	mu sync.RWMutex
	by map[origin][]string
}

type origin struct{ job, instance string }

func originOf(ls labels.Labels) origin { return origin{ls.Get("job"), ls.Get("instance")} }

func (o *origins) note(of origin, way string) {
	o.mu.RLock()
	ways, known := o.by[of]
	full := len(o.by) >= mostOrigins
	o.mu.RUnlock()
	if slices.Contains(ways, way) || !known && full || len(of.job)+len(of.instance) > longestOrigin {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[origin][]string{}
	}
	if ways := o.by[of]; !slices.Contains(ways, way) {
		o.by[of] = append(slices.Clone(ways), way)
	}
}

// Ways are those by which series of a target come, as far as they have since the start: what was given to [DB.Appendable].
func (db *DB) Ways(job, instance string) []string {
	db.origins.mu.RLock()
	defer db.origins.mu.RUnlock()
	return slices.Sorted(slices.Values(db.origins.by[origin{job, instance}]))
}

// SampleBytes is what a sample of detail takes on disk: as measured in the blocks that there are, else 2.
func (db *DB) SampleBytes() float64 {
	var bytes, samples float64
	for _, b := range db.detail.store.Blocks() {
		bytes += float64(b.Size())
		samples += float64(b.Meta().Stats.NumSamples)
	}
	if samples == 0 {
		return 2
	}
	return bytes / samples
}
