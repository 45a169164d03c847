package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// format is the version of a sealed period's files. Older ones are read; a newer one is refused by name. Format 2 has a filter of ids,
// and no rows for the stints of most sequences. Format 3 has executions, evictions, and columns for drafts and labels: a program
// of format 2 would lose them when it merges, and read contexts with the rejected drafts in them. Format 4 has calls that spans told of.
const format = 4

const manifestFile = "manifest.json"

// manifest is what a period says of itself. It is written last but for the rename, and names and checks every file.
type manifest struct {
	Format   int                 `json:"format"`
	Writer   string              `json:"writer"`
	ID       string              `json:"id"`
	Engine   ledger.EngineID     `json:"engine"`
	First    uint64              `json:"first_iteration"`
	Last     uint64              `json:"last_iteration"`
	Earliest int64               `json:"earliest_sequence_iteration"` // that any sequence in it was there in
	Latest   int64               `json:"latest_sequence_iteration"`
	From     int64               `json:"from_unix_ns"`
	To       int64               `json:"to_unix_ns"`
	Began    uint64              `json:"began_iteration"`
	Batch    uint64              `json:"span_batch,omitempty"` // last batch of the log of spans that its calls were made of
	Firsts   map[string]uint64   `json:"firsts,omitempty"`
	Files    map[string]fileInfo `json:"files"`             // by table
	Filter   *fileInfo           `json:"filter,omitempty"`  // of ids; nil in format 1
	Dropped  []string            `json:"dropped,omitempty"` // tables whose retention is over
	Replaces []replaced          `json:"replaces,omitempty"`
	Checksum string              `json:"sha256"` // of this file with an empty checksum
}

// replaced is a period that was merged into this one.
type replaced struct {
	ID       string `json:"id"`
	Requests int64  `json:"request_row"` // where its requests begin
}

func (m manifest) sum() string {
	m.Checksum = ""
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // plain fields
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func (m manifest) encode() ([]byte, error) {
	m.Checksum = m.sum()
	b, err := json.MarshalIndent(m, "", "  ")
	return append(b, '\n'), err
}

// readManifest reads and checks the manifest of the period in dir.
func readManifest(f vfs.FS, dir string) (m manifest, err error) {
	path := filepath.Join(dir, manifestFile)
	b, err := vfs.ReadFile(f, path)
	if err != nil {
		return m, &store.Error{Err: store.ErrCorrupt, What: "open a sealed period", Where: path, Cause: err, Remedy: "the rest of the store answers without it; restore it from a copy, or delete its directory"}
	}
	var v struct {
		Format int    `json:"format"`
		Writer string `json:"writer"`
	}
	if err := json.Unmarshal(b, &v); err == nil && v.Format > format {
		return m, newerError(path, v.Format, v.Writer)
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Format < 1 || m.sum() != m.Checksum {
		return m, &store.Error{Err: store.ErrCorrupt, What: "open a sealed period", Where: path, Value: "its checksum does not agree", Cause: err, Remedy: "the rest of the store answers without it; restore it from a copy, or delete its directory"}
	}
	return m, nil
}

func newerError(path string, version int, writer string) error {
	return &store.Error{Err: store.ErrNewer, What: "open the store", Where: path, Value: fmt.Sprintf("it has format %d, written by %s; this whylate reads formats up to %d", version, writer, format),
		Remedy: "open it with that whylate or a newer one; nothing was changed"}
}

// lacks reports whether the period does not have a table, because its format did not have it yet or it has no calls: it is read as one without
// rows.
func (m manifest) lacks(name string) bool {
	if slices.Contains(callTables, name) {
		_, has := m.Files["calls"]
		return !has
	}
	return m.Format < 3 && (name == "executions" || name == "evictions")
}

func (m manifest) info() store.PeriodInfo {
	i := store.PeriodInfo{ID: m.ID, Engine: m.Engine, First: m.First, Last: m.Last, From: m.From, To: m.To, Format: m.Format,
		Rows: map[string]int64{}, Bytes: map[string]int64{}, Detail: len(m.Dropped) == 0, Requests: m.Files["requests"].Rows}
	for name, f := range m.Files {
		i.Rows[name], i.Bytes[name] = f.Rows, f.Bytes
	}
	if m.Filter != nil {
		i.Filter = m.Filter.Bytes
	}
	return i
}
