package ledger

import "fmt"

// SkipReason says why a live sequence was not scheduled in an iteration. The list is closed; what a producer cannot
// name is SkipOther with the producer's own code. The numbers are those of the wire (docs/formats/stream.md §2.2).
type SkipReason uint8

const (
	SkipNone           SkipReason = 0
	SkipSequenceLimit  SkipReason = 1
	SkipTokenBudget    SkipReason = 2
	SkipKVBlocks       SkipReason = 3 // need exceeds the free blocks, and no other limit was hit
	SkipHeadOfLine     SkipReason = 4 // behind a sequence that could not be admitted
	SkipPreemptionStep SkipReason = 5 // nobody is admitted in an iteration that preempts
	SkipPriority       SkipReason = 6
	SkipGrammar        SkipReason = 7
	SkipAdapterLimit   SkipReason = 8
	SkipRemoteKV       SkipReason = 9
	SkipEncoder        SkipReason = 10
	SkipStaleOutput    SkipReason = 11
	SkipTokensInFlight SkipReason = 12
	SkipCadence        SkipReason = 13
	SkipPaused         SkipReason = 14
	SkipOther          SkipReason = 15
)

var skipNames = [...]string{"none", "sequence limit", "token budget", "KV blocks", "head of line", "preemption in this step",
	"priority", "grammar", "adapter limit", "remote KV", "encoder", "stale output in flight", "token limit already in flight",
	"cadence", "paused", "other"}

// String is the name used in every answer.
func (r SkipReason) String() string {
	if int(r) < len(skipNames) {
		return skipNames[r]
	}
	return fmt.Sprintf("other(%d)", uint8(r))
}

// MarshalText writes the name, so that JSON answers read like the tables.
func (r SkipReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// FinishReason says how a sequence ended. The numbers are those of the wire (docs/formats/stream.md §2.1).
type FinishReason uint8

const (
	FinishUnknown    FinishReason = 0
	FinishStop       FinishReason = 1
	FinishLength     FinishReason = 2
	FinishAbort      FinishReason = 3
	FinishError      FinishReason = 4
	FinishRepetition FinishReason = 5
	// FinishLost is no engine's: nothing more was heard of the sequence, because its engine died or its records were lost.
	FinishLost FinishReason = 6
)

var finishNames = [...]string{"unknown", "stop", "length", "abort", "error", "repetition", "lost"}

// String is the name used in every answer.
func (r FinishReason) String() string {
	if int(r) < len(finishNames) {
		return finishNames[r]
	}
	return fmt.Sprintf("unknown(%d)", uint8(r))
}

// MarshalText writes the name.
func (r FinishReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Feature bits of a sequence: what makes its rows dearer than plain sampling, or changes how it is scheduled.
type Feature uint32

const (
	FeaturePenalties  Feature = 1
	FeatureGrammar    Feature = 2
	FeatureAdapter    Feature = 4
	FeatureMultimodal Feature = 8
	FeatureStreaming  Feature = 16 // a streaming session: its prompt may grow
)
