package api

import (
	"context"

	"github.com/whylate/whylate/store"
)

// Keeper is a [Service] that keeps a store, and lets it be looked after. All but StoreState may last as long as reading everything that is
// kept does; they end when the context does, and what they did until then is whole.
type Keeper interface {
	// StoreState lists the sealed periods, and says how large the log is.
	StoreState(context.Context) (*StoreState, error)
	// VerifyStore reads everything that is sealed and holds it against its checksums.
	VerifyStore(context.Context) (*StoreVerified, error)
	// CompactStore merges small neighbouring periods.
	CompactStore(context.Context, CompactQuery) (*StoreCompacted, error)
	// ExportStore gives put everything that is sealed as plain Parquet, file by file.
	ExportStore(ctx context.Context, put store.Put) error
}

// StoreState is what a store holds.
type StoreState struct {
	Periods []store.PeriodInfo `json:"periods"` // in order of engine and time
	Log     StoreLog           `json:"log"`
}

// StoreLog is the log of what is acknowledged and not sealed, or not forgotten yet.
type StoreLog struct {
	Files int            `json:"files"`
	Bytes int64          `json:"bytes"`
	First store.Position `json:"first"` // where it begins
	Last  store.Position `json:"last"`  // where it goes on
}

// StoreVerified is what a verification found.
type StoreVerified struct {
	Periods []store.PeriodInfo `json:"periods"` // in order of engine and time
	Damaged int                `json:"damaged"` // of them; the rest answers
}

// CompactQuery says how far to merge.
type CompactQuery struct {
	Rows int64 // while a period has fewer iterations than this; 0 = 1,000,000
}

// StoreCompacted is what a compaction did.
type StoreCompacted struct {
	Fewer int `json:"periods_fewer"`
}

// ExportEnd is the last file of an export over HTTP, export.json: without it, or with an error in it, the export is not whole.
type ExportEnd struct {
	Files int      `json:"files"` // before this one
	Bytes int64    `json:"bytes"` // in them
	Error *Problem `json:"error,omitempty"`
}

// ExportEndFile is the name of that file.
const ExportEndFile = "export.json"
