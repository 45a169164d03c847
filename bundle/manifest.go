package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// FormatVersion is the version of the format that is written here. A change that older readers would misunderstand counts it up.
const FormatVersion = 1

// Manifest says what a bundle is of.
type Manifest struct {
	FormatVersion int      `json:"format_version"`
	Producer      string   `json:"producer"` // who wrote it, with version
	Span          Span     `json:"span"`
	Engines       []Engine `json:"engines"`
	Clocks        []Clock  `json:"clocks"`

	Problems []string `json:"-"` // what of it is not as the format says; the rest was taken
}

// Span is the time that a bundle is of, in Unix ns; 0 = not known.
type Span struct {
	From int64 `json:"from_unix_ns"`
	To   int64 `json:"to_unix_ns"`
}

// Engine is one that a bundle has records of.
type Engine struct {
	ID      string `json:"id"`                // deployment/replica/rank@incarnation, or a scrape's target
	Name    string `json:"name,omitempty"`    // of its software
	Version string `json:"version,omitempty"` // likewise
	Model   string `json:"model,omitempty"`
}

// Clock is how times of one domain lie to Unix time.
type Clock struct {
	Domain      string `json:"domain"`
	Offset      int64  `json:"offset_ns"`      // added to its times to give Unix time
	Uncertainty int64  `json:"uncertainty_ns"` // half the width of the interval in which the true offset lies
}

// NewerFormat refuses a bundle that a later version has written.
type NewerFormat struct {
	Name    string
	Version int
}

func (e *NewerFormat) Error() string {
	return fmt.Sprintf("%s: bundle format %d; this version reads up to %d: use a newer whylate", e.Name, e.Version, FormatVersion)
}

// mostManifest bounds a manifest, in bytes.
const mostManifest = 16 << 20

func (b *Bundle) readManifest() error {
	f, err := b.root.Open(ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		b.refuse(ManifestName, err.Error()+": read as a folder")
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostManifest+1))
	switch {
	case err != nil:
		b.refuse(ManifestName, err.Error()+": read as a folder")
		return nil
	case len(text) > mostManifest:
		b.refuse(ManifestName, fmt.Sprintf("over %d MiB: read as a folder", mostManifest>>20))
		return nil
	}
	m, err := ParseManifest(text)
	if err != nil {
		b.refuse(ManifestName, err.Error()+": read as a folder")
		return nil
	}
	if m.FormatVersion > FormatVersion {
		return &NewerFormat{b.Name, m.FormatVersion}
	}
	b.Manifest = m
	return nil
}

// ParseManifest reads a manifest. A field that is not as it should be is left out and told; unknown ones are those of a later minor version.
func ParseManifest(text []byte) (*Manifest, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &fields); err != nil {
		return nil, fmt.Errorf("no manifest: %w", err)
	}
	m := &Manifest{FormatVersion: FormatVersion}
	for _, f := range []struct {
		name string
		into any
	}{{"producer", &m.Producer}, {"span", &m.Span}, {"engines", &m.Engines}, {"clocks", &m.Clocks}} {
		text, ok := fields[f.name]
		if !ok {
			m.Problems = append(m.Problems, f.name+" is not told")
			continue
		}
		if err := json.Unmarshal(text, f.into); err != nil {
			m.Problems = append(m.Problems, fmt.Sprintf("%s is not as the format says, and was left out: %v", f.name, err))
		}
	}
	m.readVersion(fields["format_version"])
	return m, nil
}

// readVersion takes 1, and the "1.2" of those who count minor versions too.
func (m *Manifest) readVersion(text json.RawMessage) {
	major, _, _ := strings.Cut(strings.Trim(string(text), `"`), ".")
	var n int
	if len(text) == 0 {
		m.Problems = append(m.Problems, fmt.Sprintf("format_version is not told: read as %d", FormatVersion))
	} else if err := json.Unmarshal([]byte(major), &n); err != nil || n < 1 {
		m.Problems = append(m.Problems, fmt.Sprintf("format_version is %.40s, which is no version: read as %d", text, FormatVersion))
	} else {
		m.FormatVersion = n
	}
}
