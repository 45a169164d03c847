package look

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ingest"
)

// Bundled is what a run bundle says of itself, and what was made of its members.
type Bundled struct {
	Name     string           `json:"name"`
	Manifest *bundle.Manifest `json:"manifest"`
	Problems []string         `json:"problems,omitempty"` // of the manifest
	Kinds    map[string]int   `json:"kinds"`              // how many members were taken for what
	Text     string           `json:"text"`               // all that in words
}

func bundled(s *Scene) (list []Bundled) {
	for _, b := range s.Bundles {
		d := Bundled{Name: b.Name, Manifest: b.Manifest, Problems: b.Manifest.Problems, Kinds: map[string]int{}}
		for _, src := range s.Sources {
			if src.from == b.path {
				d.Kinds[src.Kind]++
			}
		}
		d.Text = d.text()
		list = append(list, d)
	}
	return list
}

func (d *Bundled) text() string {
	m := d.Manifest
	said := fmt.Sprintf("%s: format %d", exposition.Printable(d.Name, 60), m.FormatVersion)
	if m.Producer != "" {
		said += " of " + exposition.Printable(m.Producer, 60)
	}
	if n := len(m.Engines); n > 0 {
		said += ", " + plural(n, "engine", "engines")
	}
	if m.Span.From != 0 && m.Span.To != 0 {
		said += ", " + clockSpan(m.Span.From, m.Span.To)
	}
	var members []string
	for _, k := range sortedKeys(d.Kinds) {
		if k == "truth" {
			members = append(members, "the truth, which is left closed")
			continue
		}
		members = append(members, fmt.Sprintf("%d × %s", d.Kinds[k], k))
	}
	if len(members) > 0 {
		said += "; in it " + strings.Join(members, ", ")
	}
	for _, p := range m.Problems {
		said += "; " + exposition.Printable(p, 120)
	}
	return said + "."
}

// clockSpan is a time from and to, in UTC, with the day where it is not one.
func clockSpan(from, to int64) string {
	a, b := time.Unix(0, from).UTC(), time.Unix(0, to).UTC()
	layout := time.TimeOnly
	if a.Truncate(24*time.Hour) != b.Truncate(24*time.Hour) {
		layout = time.DateTime
	}
	return a.Format(time.DateTime) + " to " + b.Format(layout) + " UTC"
}

// changes takes up changes that somebody told.
func (r *reader) changes(src *Source, text io.Reader) error {
	src.Kind = "changes"
	changes, problems, err := bundle.ReadChanges(text)
	r.scene.told = append(r.scene.told, changes...)
	src.Problems = append(src.Problems, problems[:min(len(problems), 10)]...)
	if more := len(problems) - 10; more > 0 {
		src.Problems = append(src.Problems, plural(more, "more line is no change", "more lines are no changes"))
	}
	return err
}

// capture takes a capture into the ledger, beside those that came before it.
func (r *reader) capture(in Input, src *Source, text io.Reader) error {
	src.Kind, src.Target = "capture", ""
	if r.frames == nil {
		r.frames = ingest.New()
		r.frames.Samples = r.sampled
	}
	if !slices.Contains(r.scene.captures, in.From) {
		r.scene.captures = append(r.scene.captures, in.From)
	}
	if err := ingest.ReadCapture(text, in.Name, r.frames); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), in.Name+": "))
	}
	return nil
}
