package dialect

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/whylate/whylate/wire"
)

// Live is a [world.Recorder] for a run that is watched while it runs: it writes a ring for each source, as probes do, and serves the metrics pages. The
// messages must come as their times do.
type Live struct {
	dir   string
	size  int64
	mu    sync.Mutex
	fleet *fleet
	rings []*wire.RingWriter // by source
}

// RingSize is that of a live run's rings, in bytes of data.
const RingSize = 15 << 20

// NewLive writes rings of so many bytes in a directory; "" makes none.
func NewLive(dir string, size int64) *Live { return &Live{dir: dir, size: size, fleet: newFleet(0)} }

// Source implements [world.Recorder].
func (l *Live) Source(h *wire.Hello) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ring *wire.RingWriter
	if l.dir != "" {
		var err error
		if ring, err = wire.CreateRing(l.dir, h, l.size); err != nil {
			return 0, err
		}
	}
	p, err := l.fleet.open(h)
	if err != nil {
		return 0, err
	}
	l.rings = append(l.rings, ring)
	return p.source, nil
}

// Record implements [world.Recorder].
func (l *Live) Record(source int, m wire.Message) error {
	if _, ok := m.(*wire.Hello); ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fleet.record(source, m); err != nil {
		return err
	}
	if ring := l.rings[source]; ring != nil {
		return ring.Write(m)
	}
	return nil
}

// Close lets go of the rings: their writers are dead.
func (l *Live) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for _, r := range l.rings {
		if r != nil {
			err = errors.Join(err, r.Close())
		}
	}
	return err
}

// ServeHTTP serves the page of a target under /TARGET/metrics, and the one of a run with one target under /metrics, too.
func (l *Live) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	targets := l.fleet.targets()
	target := strings.Trim(path.Dir(r.URL.Path), "/")
	if target == "" && len(targets) == 1 {
		target = targets[0]
	}
	page := l.fleet.page(target, nil)
	l.mu.Unlock()
	if path.Base(r.URL.Path) != "metrics" || page == nil {
		http.Error(w, fmt.Sprintf("no page: ask for /TARGET/metrics, of %s", strings.Join(targets, ", ")), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write(page)
}
