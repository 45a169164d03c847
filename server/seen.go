package server

import (
	"strings"

	"github.com/whylate/whylate/api"
)

// mostField is how much is kept of a field of a change that was seen, in bytes.
const mostField = 500

// Seen keeps changes that show by themselves, in metrics and logs. Each has an id by what it says, so that whoever sees one again, after a restart
// too, tells nothing new. A server that keeps no changes lets them go. It says how many were new.
func (s *Server) Seen(changes []api.Change) (fresh int) {
	if s.set.Told == nil {
		return 0
	}
	for _, c := range changes {
		for _, f := range []*string{&c.Subject, &c.Engine, &c.From, &c.To, &c.Text, &c.Source} {
			*f = oneLine(*f)
		}
		if c.ID == "" {
			c.ID = c.Key()
		}
		if s.set.Told.knows(c.ID) {
			continue
		}
		kept, err := s.set.Told.Tell(c)
		if err != nil {
			s.faults.note("keep a change", err, s.set.Now())
			return fresh
		}
		fresh++
		s.feed.Publish(api.Event{Kind: api.EventChange, At: kept.At, Engine: kept.Engine, Text: kept.Engine + ": " + kept.Text})
	}
	return fresh
}

// oneLine is a text as a change may have it: valid, of one line, not too long.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), mostField)], "")
}
