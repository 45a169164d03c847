package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// ChangeKind says what changed.
type ChangeKind string

// Kinds of changes. All but the end are seen by comparing an engine incarnation with the one before it of the same deployment, replica
// and rank.
const (
	ChangeRestart ChangeKind = "restart" // a new incarnation; from and to are incarnations
	ChangeVersion ChangeKind = "version" // the engine's software
	ChangeProbe   ChangeKind = "probe"   // who records it
	ChangeModel   ChangeKind = "model"   // what it serves
	ChangeSetting ChangeKind = "setting" // one setting that the scheduler's decisions depend on
	ChangeRank    ChangeKind = "rank"    // a data-parallel rank is there that was not, or the other way round
	ChangeEnd     ChangeKind = "end"     // the engine's process is gone; known as long as what its reader said is not let go

	// Told from outside (POST /api/v1/changes), or seen in metrics and logs; so may be version, model and setting.
	ChangeDeployment ChangeKind = "deployment"
	ChangeWeights    ChangeKind = "weights"   // or their quantisation
	ChangeAdapter    ChangeKind = "adapter"   // LoRA
	ChangePrompt     ChangeKind = "prompt"    // a prompt template
	ChangeRetrieval  ChangeKind = "retrieval" // a retrieval index
	ChangeOther      ChangeKind = "other"
)

// Change is one event on the time line.
type Change struct {
	// At is when it is known to have happened by: of an incarnation, when its first recorded iteration began; of an end, when it was seen; of a
	// difference between two looks, the second one.
	At      int64      `json:"at_unix_ns"`
	After   int64      `json:"after_unix_ns,omitempty"` // it had not happened yet; 0 = not known, or At is exact
	Kind    ChangeKind `json:"kind"`
	ID      string     `json:"id,omitempty"`   // of one that was told: told again under it, it is the same
	Engine  string     `json:"engine"`         // the incarnation that it came with; of an end, that ended
	Subject string     `json:"subject"`        // the setting's name; of other kinds deployment/replica/rank
	From    string     `json:"from,omitempty"` // none: it was not there, or not told
	To      string     `json:"to,omitempty"`
	Source  string     `json:"source"` // who says so, with version
	Text    string     `json:"text"`   // one sentence
}

// Key is an id that a change has by what it says: the same change has the same, whoever found it and when.
func (c *Change) Key() string {
	h := sha256.New()
	for _, part := range []string{string(c.Kind), c.Engine, c.Subject, c.From, c.To, strconv.FormatInt(c.At, 10)} {
		h.Write(append([]byte(part), 0))
	}
	return "change-" + hex.EncodeToString(h.Sum(nil)[:12])
}
