package server

import (
	"context"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// hot is the period that is still going on: an assembler that is fed with what the log has acknowledged, answered from like a
// recording that ends now. It is a [wire.Sink], so the log is replayed into it as it is.
type hot struct {
	*Local
	a     *ingest.Assembler
	now   func() time.Time
	taken uint64 // frames and gaps
	shown uint64 // … when the ledger was last refreshed
}

func newHot(now func() time.Time) *hot {
	h := &hot{a: ingest.New(), now: now}
	h.Local = &Local{l: query.Open(h.a.Live())}
	h.refresh = h.show
	return h
}

// show brings the ledger up to the newest frame, and its clock to now: who waits has waited until this moment.
func (h *hot) show() {
	if h.taken != h.shown {
		h.l.Refresh(h.a.Live())
		h.shown = h.taken
	}
	h.l.SetNow(h.now().UnixNano())
}

// Source implements [wire.Sink].
func (h *hot) Source(s wire.Source) (uint16, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.a.Source(s)
}

// Frame implements [wire.Sink].
func (h *hot) Frame(id uint16, f wire.Frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken++
	return h.a.Frame(id, f)
}

// Gap implements [wire.Sink].
func (h *hot) Gap(id uint16, g wire.Gap) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken++
	return h.a.Gap(id, g)
}

// take feeds records that are on disk.
func (h *hot) take(records []store.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range records {
		r := &records[i]
		id, err := h.a.Source(r.Source)
		if err != nil {
			return err
		}
		h.taken++
		if r.Gap != nil {
			err = h.a.Gap(id, *r.Gap)
		} else if r.Frame.Sequence > h.a.Newest(id) { // a sender that was not answered sends again
			err = h.a.Frame(id, r.Frame)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// engines lists the engines that have iterations, up to date.
func (h *hot) engines() []*ledger.Engine {
	defer h.lock()()
	return h.l.Book.Engines
}

var _ interface {
	wire.Sink
	api.Service
} = (*hot)(nil)

// batching is a sink that hands records on in batches: from rings, which are polled, and from captures.
type batching struct {
	ctx     context.Context
	accept  func(context.Context, []store.Record) error
	sources []wire.Source
	records []store.Record
	bytes   int
	frames  uint64
}

// batchBytes is how much is handed on at once.
const batchBytes = 1 << 20

// Source implements [wire.Sink].
func (b *batching) Source(s wire.Source) (uint16, error) {
	b.sources = append(b.sources, s)
	return uint16(len(b.sources) - 1), nil
}

// Frame implements [wire.Sink]. The frame's bytes are only valid during the call, so they are copied.
func (b *batching) Frame(id uint16, f wire.Frame) error {
	raw := append([]byte(nil), f.Raw...)
	if f.Raw == nil {
		var err error
		if raw, err = wire.AppendFrame(nil, f); err != nil {
			return err
		}
	}
	f, _, err := wire.ParseFrame(raw)
	if err != nil {
		return err
	}
	b.frames++
	return b.add(store.Record{Source: b.sources[id], Frame: f}, len(raw))
}

// Gap implements [wire.Sink].
func (b *batching) Gap(id uint16, g wire.Gap) error {
	if int(id) >= len(b.sources) {
		return nil // about a file as a whole: told by the result of its import
	}
	return b.add(store.Record{Source: b.sources[id], Gap: &g}, 64)
}

func (b *batching) add(r store.Record, size int) error {
	b.records = append(b.records, r)
	b.bytes += size
	if b.bytes >= batchBytes {
		return b.flush()
	}
	return nil
}

// flush hands on what has been gathered.
func (b *batching) flush() error {
	if len(b.records) == 0 {
		return nil
	}
	records := b.records
	b.records, b.bytes = nil, 0
	return b.accept(b.ctx, records)
}
