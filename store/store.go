package store

import (
	"context"
	"fmt"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Store is a log and its sealed periods. All methods may be called from several goroutines. One process has a store open.
type Store interface {
	Log
	Sealed
	// Spans is the log of spans, a log of its own (docs/adr/0009-spans.md): its frames are batches of them (docs/formats/spans.md).
	Spans() Log
	Close() error
}

// Log keeps what was acknowledged.
type Log interface {
	// Append returns when the records are on disk, and with the position after them; only then may they be acknowledged. It is
	// all or nothing in its answer: after an error some may be on disk all the same, and the caller sends them again, which
	// is harmless: a frame whose sequence is not above the last one kept of its source is passed over. The records are not kept.
	Append(ctx context.Context, records []Record) (Position, error)
	// Kept is the sequence of the last frame that is on disk of a source, 0 if there is none: where a sender goes on.
	Kept(s wire.Source) uint64
	// Replay gives everything from a position on to a sink, each frame once, and returns the position after it. What is
	// damaged comes as a gap. The zero position is the beginning of what has not been forgotten.
	Replay(ctx context.Context, from Position, sink wire.Sink) (Position, error)
	// Forget lets go of what lies before a position; whole files only, so some of it may stay.
	Forget(ctx context.Context, before Position) error
	// LogInfo says how large the log is and where it begins and ends.
	LogInfo() LogInfo
}

// Record is one frame or one gap of a source.
type Record struct {
	Source wire.Source
	Frame  wire.Frame // if Gap is nil
	Gap    *wire.Gap
}

// Position is a place in the log: a file's number and an offset in it. The zero position lies before everything.
type Position struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
}

// Before reports whether p lies before o.
func (p Position) Before(o Position) bool {
	return p.Segment < o.Segment || p.Segment == o.Segment && p.Offset < o.Offset
}

// String is segment:offset.
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Segment, p.Offset) }

// LogInfo describes a log.
type LogInfo struct {
	First, Last Position
	Files       int
	Bytes       int64
	Appended    uint64 // records since the store was opened
	Passed      uint64 // frames passed over because they were on disk already
	Failed      uint64 // appends that failed
	Cut         int64  // bytes of torn tails that were cut when the store was opened
}

// Sealed are the periods that never change again.
type Sealed interface {
	// Seal writes a period, all or nothing. A period of the same engine and iterations that is there already is not written again.
	Seal(ctx context.Context, p *Period) (PeriodInfo, error)
	// Periods lists what is sealed, in order of engine and time, the damaged ones with what is wrong with them.
	Periods(ctx context.Context) ([]PeriodInfo, error)
	// Find returns the requests of which prefix is an id (X-Request-Id, response id, the engine's ids, trace id), and only if there
	// is none those that have an id that begins with it; the newest first and at most limit of them.
	Find(ctx context.Context, prefix string, limit int) ([]RequestRef, error)
	// Has reports whether a request of an engine is sealed that has a sequence with this internal id.
	Has(ctx context.Context, engine ledger.EngineID, id string) (bool, error)
	// List selects requests by the requests table alone, sums of accounts included.
	List(ctx context.Context, f Filter) (RequestPage, error)
	// Load returns a request with its slice of the engine. Without its detail the error is ErrExpired.
	Load(ctx context.Context, ref RequestRef) (*Slice, error)
	// SealedTraces gives each trace of which calls are sealed that were made of batches of spans above after: its id, and the last
	// batch that was looked at. A trace may come several times.
	SealedTraces(ctx context.Context, after uint64, each func(trace string, through uint64) error) error
	// Slice returns iterations from … to of an engine, as far as they are there, with everybody who was in them or waited.
	Slice(ctx context.Context, engine ledger.EngineID, from, to uint64) (*Slice, error)

	// Verify reads everything and holds it against its checksums. What is damaged is named, left out of answers and left where it is.
	Verify(ctx context.Context) ([]PeriodInfo, error)
	// Compact merges neighbouring periods of one engine incarnation that have at most rows iterations together, where there are at
	// least fan (2 or more) of like size beside each other: with 2 all that fit are merged now; with more each iteration is written
	// again only a few times while periods keep coming. It returns how many periods there are less.
	Compact(ctx context.Context, rows int64, fan int) (int, error)
	// Retain lets go of what is older than a policy allows.
	Retain(ctx context.Context, p Policy, now time.Time) (Retained, error)
	// Export writes everything that is sealed into a new directory as plain Parquet, with the description of the columns.
	Export(ctx context.Context, dir string) error
	Exporter
	Describer
}

// Policy says how long what is kept, counted from the end of a period; 0 = for ever.
type Policy struct {
	Detail   time.Duration // iterations, stints, skips, preemptions, holdings, executions, evictions
	Requests time.Duration // everything else
}

// Retained is what a retention let go of.
type Retained struct {
	Details int   // periods that lost their detail
	Periods int   // periods that went as a whole
	Bytes   int64 // freed
}

// PeriodInfo describes one sealed period.
type PeriodInfo struct {
	ID       string           `json:"id"`
	Engine   ledger.EngineID  `json:"engine"`
	First    uint64           `json:"first_iteration"` // 0 if it has no iterations
	Last     uint64           `json:"last_iteration"`
	From     int64            `json:"from_unix_ns"`
	To       int64            `json:"to_unix_ns"`
	Rows     map[string]int64 `json:"rows"`  // by table
	Bytes    map[string]int64 `json:"bytes"` // on disk, by table
	Detail   bool             `json:"detail"`
	Format   int              `json:"format"`
	Damaged  string           `json:"damaged,omitempty"` // what is wrong with it; "" = nothing is known to be
	Requests int64            `json:"requests"`
	Filter   int64            `json:"filter_bytes,omitempty"` // on disk, of the filter of ids
}

// Size is the bytes of all its files.
func (p PeriodInfo) Size() int64 {
	n := p.Filter
	for _, b := range p.Bytes {
		n += b
	}
	return n
}

// RequestRef points at one sealed request. It stays good when periods are merged.
type RequestRef struct {
	Period string `json:"period"`
	Row    int64  `json:"row"`
	Name   string `json:"name"` // the id by which answers call it
	At     int64  `json:"at_unix_ns"`
	Exact  bool   `json:"exact"`           // the whole of one of its ids was given
	Level  int    `json:"level,omitempty"` // 1 = told by spans
}

// Filter chooses requests. Zero fields choose all.
type Filter struct {
	From, To int64            // Unix ns: only requests that began at or after From and before To
	At       int64            // Unix ns: only requests that were there at this moment
	Engine   *ledger.EngineID // only of this engine incarnation
	Class    string           // of this class: as its client named it, or by the first digits of its label (ledger.Label)
	Tenant   string           // first digits of the label
	Route    string           // first digits of the label
	Over     int64            // ns: only requests whose E2E is longer
	Sort     string           // a sortable column: "from" (the default, the newest first), "ttft", "tpot", "e2e" or a part's name: the largest first
	Limit    int              // at most so many; 0 = 100
	Page     string           // RequestPage.Next of the page before
}

// RequestPage is one page of a list.
type RequestPage struct {
	Rows    []Listed
	Next    string       // "" = no more
	Missing []PeriodInfo // periods that may hold more, and could not be read
}

// Listed is a row of the requests table and where it lies.
type Listed struct {
	Ref RequestRef
	Row RequestRow
}

// Slice is a piece of a sealed engine: the same types as in memory, so that the same code answers.
type Slice struct {
	Engine   *ledger.Engine    // with the rows asked for, and whoever was there
	Model    *account.Model    // that the accounts were made with; nil = there was none
	Request  *ledger.Request   // the one that Load was asked for
	Requests []*ledger.Request // of all sequences in Engine that are known, in order
	Row      RequestRow        // of Request, with the sums of its account as it was sealed
	Firsts   map[string]uint64 // account.Firsts of the whole engine, not of the slice
	Began    uint64            // first iteration ever recorded of this engine; 1 = from its start
	Missing  []PeriodInfo      // periods that should have had a part, and could not be read
	Calls    []*genai.Call     // that Request is told by, where spans told of it
}
