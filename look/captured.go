package look

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/query"
)

// captured makes the ledger of what captures told.
func (r *reader) captured() {
	if r.frames != nil {
		r.scene.Ledger = query.Open(r.frames.Book())
	}
}

// CapturedEngine is an engine that captures have records of.
type CapturedEngine struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"`
	Model      string `json:"model,omitempty"`
	Iterations int    `json:"iterations"`
}

// Captured is a ledger in short.
type Captured struct {
	Engines  []CapturedEngine `json:"engines"`
	Requests int              `json:"requests"`
	From     int64            `json:"from_unix_ns,omitempty"` // of the first iteration
	To       int64            `json:"to_unix_ns,omitempty"`   // of the newest record
	Coverage float64          `json:"coverage"`               // records seen / expected
	Worst    *WorstRequest    `json:"worst,omitempty"`        // none where no request was seen
	Text     string           `json:"text"`                   // that in words
}

// WorstRequest is the one that took longest.
type WorstRequest struct {
	ID       string `json:"id"`
	E2E      int64  `json:"e2e_ns"`
	Headline string `json:"headline"` // why, in a sentence
	Command  string `json:"command"`  // that explains it
}

// captured are the engines of captures.
func (s *Scene) captured() (list []CapturedEngine) {
	if s.Ledger == nil {
		return nil
	}
	for _, e := range s.Ledger.Book.Engines {
		list = append(list, CapturedEngine{e.ID.String(), e.Name, e.Version, e.Model(), len(e.Iterations)})
	}
	return list
}

func inCaptures(s *Scene) *Captured {
	if s.Ledger == nil || len(s.Ledger.Book.Engines)+len(s.Ledger.Book.Requests) == 0 {
		return nil
	}
	book := s.Ledger.Book
	c := &Captured{Engines: append([]CapturedEngine{}, s.captured()...), Requests: len(book.Requests), To: book.Newest, Coverage: book.Coverage()}
	iterations := 0
	for _, e := range book.Engines {
		iterations += len(e.Iterations)
		if len(e.Iterations) > 0 {
			if at := e.TileStart(e.First); c.From == 0 || at < c.From {
				c.From = at
			}
		}
	}
	c.Worst = worstRequest(s)
	said := []string{fmt.Sprintf("%s, %s, %s", plural(len(c.Engines), "engine", "engines"), several(c.Requests, "request", "requests"), several(iterations, "iteration", "iterations"))}
	if c.From != 0 {
		said = append(said, clockSpan(c.From, c.To))
	}
	if c.Coverage < 1 {
		said = append(said, fmt.Sprintf("%s of the records arrived", share(c.Coverage)))
	}
	c.Text = strings.Join(said, "; ") + "."
	if c.Worst != nil {
		c.Text += fmt.Sprintf(" The slowest: %s", c.Worst.Headline)
	}
	return c
}

func worstRequest(s *Scene) *WorstRequest {
	found, err := s.Ledger.Select(query.Selector{By: "e2e", Limit: 1})
	if err != nil || len(found.Accounts) == 0 {
		return nil
	}
	a := found.Accounts[0]
	x := diagnose.Explain(s.Ledger, a.Request)
	w := &WorstRequest{ID: x.Request.Name, E2E: a.E2E(), Headline: x.Headline, Command: "whylate explain " + quoted(x.Request.Name)}
	for _, path := range slices.Sorted(slices.Values(s.captures)) {
		w.Command += " --from " + quoted(path)
	}
	return w
}

// quoted is a word for a shell.
func quoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=-", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(exposition.Printable(cmp.Or(word, "-"), 1000), "'", `'\''`) + "'"
}
