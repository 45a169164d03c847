package api

import (
	"time"

	"github.com/whylate/whylate/ledger"
)

// ChangesQuery selects changes. Zero fields choose all.
type ChangesQuery struct {
	From  time.Time // at or after this
	To    time.Time // before this
	Limit int       // at most so many, the newest; 0 = all
}

// ChangeList is the changes that were recorded, the newest first.
type ChangeList struct {
	Matched int      `json:"matched"` // before the limit
	Changes []Change `json:"changes"`
	// Recorded are the kinds that are recorded here. That none of another kind is listed is no evidence that there was none.
	Recorded []ChangeKind `json:"recorded"`
}

// Change is one event on the time line.
type Change = ledger.Change

// ChangeKind says what changed.
type ChangeKind = ledger.ChangeKind

// Kinds of changes.
const (
	ChangeRestart    = ledger.ChangeRestart
	ChangeVersion    = ledger.ChangeVersion
	ChangeProbe      = ledger.ChangeProbe
	ChangeModel      = ledger.ChangeModel
	ChangeSetting    = ledger.ChangeSetting
	ChangeRank       = ledger.ChangeRank
	ChangeEnd        = ledger.ChangeEnd
	ChangeDeployment = ledger.ChangeDeployment
	ChangeWeights    = ledger.ChangeWeights
	ChangeAdapter    = ledger.ChangeAdapter
	ChangePrompt     = ledger.ChangePrompt
	ChangeRetrieval  = ledger.ChangeRetrieval
	ChangeOther      = ledger.ChangeOther
)
