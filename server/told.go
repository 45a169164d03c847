package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/vfs"
)

// toldFile is where changes that were told from outside are kept, one JSON object a line: the changes.jsonl of a run bundle.
const toldFile = "changes.jsonl"

// toldMost is how many are kept; the oldest go first.
const toldMost = 100_000

// Told keeps the changes that people and their tools tell: deployments, flags, weights, prompt templates.
type Told struct{ journal *journal[api.Change] }

// OpenTold opens the changes of a data directory, and makes their file where there is none.
func OpenTold(disk vfs.FS, dir string) (*Told, error) {
	j, err := openJournal(disk, dir, toldFile, toldMost, func(c *api.Change) string { return c.ID })
	if err != nil {
		return nil, fmt.Errorf("changes: %w", err)
	}
	return &Told{j}, nil
}

// Tell keeps a change and returns when it is durable. One whose id is known is not kept twice: the first is returned.
func (t *Told) Tell(c api.Change) (api.Change, error) {
	fresh, err := t.journal.tell(c)
	if first, ok := t.journal.get(c.ID); err == nil && len(fresh) == 0 && ok {
		return first, nil
	}
	return c, err
}

// knows reports whether a change of this id was told.
func (t *Told) knows(id string) bool {
	_, ok := t.journal.get(id)
	return ok
}

// List is what was told, the oldest first.
func (t *Told) List() []api.Change { return t.journal.all() }

// Close closes the file.
func (t *Told) Close() error { return t.journal.close() }

// toldKinds are those that nobody but people and their tools can tell.
var toldKinds = []api.ChangeKind{api.ChangeDeployment, api.ChangeVersion, api.ChangeSetting, api.ChangeModel, api.ChangeWeights, api.ChangeAdapter, api.ChangePrompt, api.ChangeRetrieval, api.ChangeOther}

// A change may be told for a time so long ago or so soon to come.
const (
	toldAfter  = 90 * 24 * time.Hour
	toldBefore = time.Hour
)

// Tell implements [api.Teller].
func (s *Server) Tell(ctx context.Context, c api.Change) (*api.Change, error) {
	if s.set.Told == nil {
		return nil, &api.Unsupported{What: "this server keeps no changes that are told", Remedy: "tell a server with a data directory ('whylate serve')"}
	}
	now := s.set.Now()
	if c.At == 0 {
		c.At = now.UnixNano()
	}
	if err := sound(&c, now); err != nil {
		return nil, err
	}
	c.Source = cmp.Or(c.Source, "told")
	c.Text = cmp.Or(c.Text, worded(&c))
	c.ID = cmp.Or(c.ID, fmt.Sprintf("%s/%s/%d/%s", c.Kind, c.Subject, c.At, c.To))
	kept, err := s.set.Told.Tell(c)
	if err != nil {
		s.faults.note("keep a change", err, now)
		return nil, &api.Unavailable{What: "the change could not be written: " + err.Error()}
	}
	s.feed.Publish(api.Event{Kind: api.EventChange, At: kept.At, Text: kept.Text})
	return &kept, nil
}

// sound refuses what cannot be a change, or should not be kept as one.
func sound(c *api.Change, now time.Time) error {
	wrong := func(field, value, problem string) error {
		return &api.InvalidArgument{Argument: field, Value: value, Problem: problem}
	}
	if !slices.Contains(toldKinds, c.Kind) {
		var names []string
		for _, k := range toldKinds {
			names = append(names, string(k))
		}
		return wrong("kind", string(c.Kind), "give one of "+strings.Join(names, ", "))
	}
	if c.Subject == "" {
		return wrong("subject", "", "name what changed: a service, a replica, a route, a flag")
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{{"subject", c.Subject, 200}, {"engine", c.Engine, 200}, {"from", c.From, 500}, {"to", c.To, 500}, {"text", c.Text, 500}, {"source", c.Source, 100}, {"id", c.ID, 200}} {
		if len(f.value) > f.most {
			return wrong(f.name, fmt.Sprintf("%.40s…", f.value), fmt.Sprintf("it has %d bytes; %d are allowed", len(f.value), f.most))
		}
		if !utf8.ValidString(f.value) || strings.ContainsFunc(f.value, unicode.IsControl) {
			return wrong(f.name, fmt.Sprintf("%.40q", f.value), "give text of one line, without control characters")
		}
	}
	if at := time.Unix(0, c.At); at.Before(now.Add(-toldAfter)) || at.After(now.Add(toldBefore)) {
		return wrong("at_unix_ns", at.UTC().Format(time.RFC3339), "give a time of the last 90 days, in nanoseconds since 1970; 0 is now")
	}
	return nil
}

func worded(c *api.Change) string {
	switch {
	case c.From != "" && c.To != "":
		return fmt.Sprintf("%s %s is %s, was %s", c.Kind, c.Subject, c.To, c.From)
	case c.To != "":
		return fmt.Sprintf("%s %s is %s", c.Kind, c.Subject, c.To)
	case c.From != "":
		return fmt.Sprintf("%s %s is gone, was %s", c.Kind, c.Subject, c.From)
	}
	return fmt.Sprintf("%s %s changed", c.Kind, c.Subject)
}
