package store

import (
	"context"

	"github.com/whylate/whylate/ledger"
)

// Described is what is sealed of one engine incarnation as such.
type Described struct {
	ID       ledger.EngineID
	Name     string
	Version  string
	Producer string
	Settings map[string]any // numbers are json.Number
	Began    int64          // Unix ns: the first iteration that was ever recorded of it began; 0 = that one is not sealed, or let go
}

// Describer knows engine incarnations.
type Describer interface {
	// Describe says what an engine incarnation is, from the earliest of its periods that can be read. It fails with [ErrNotFound] if
	// there is none.
	Describe(ctx context.Context, id ledger.EngineID) (Described, error)
}
