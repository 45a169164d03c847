package look

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/signals"
)

// Changed is one change, or the same one of several targets, in the time that was looked at.
type Changed struct {
	ledger.Change
	Targets []string `json:"targets,omitempty"` // of the same change, where there are several; After and At are then those of all
	Moved   []string `json:"moved,omitempty"`   // what read otherwise after it than before: they come together, and that is all that is said
}

// changesIn are the changes that were told and those that show by themselves, in order of time.
func changesIn(s *Scene) []Changed {
	all := slices.Concat(s.told, ChangesOf(s.Tracks))
	for _, l := range s.Logs {
		all = append(all, l.changes()...)
	}
	if s.Ledger != nil { // between one start of an engine and the next, as its probe told them
		all = append(all, query.Changes(s.Ledger.Incarnations(), s.Ledger.Book.Beats)...)
	}
	inOrder(all)
	all = slices.CompactFunc(all, func(a, b ledger.Change) bool { return a.Key() == b.Key() }) // a server's changes, and its captures that they are from
	var list []Changed
	of := map[string]int{}
	for _, c := range all {
		key := strings.Join([]string{string(c.Kind), c.Subject, c.From, c.To, c.Text}, "\xff")
		if c.Subject == c.Engine { // a restart, a coming: of so many targets
			key = string(c.Kind) + "\xff" + strings.SplitN(c.Text, ":", 2)[0]
		}
		i, ok := of[key]
		if !ok || c.Engine == "" || slices.Contains(list[i].Targets, c.Engine) {
			of[key] = len(list)
			list = append(list, Changed{Change: c, Targets: with(nil, c.Engine)})
			continue
		}
		d := &list[i]
		d.Targets, d.At = append(d.Targets, c.Engine), max(d.At, c.At)
		if c.After != 0 {
			d.After = min(cmp.Or(d.After, c.After), c.After)
		}
	}
	for i := range list {
		list[i].Moved = moved(s, &list[i])
	}
	return list
}

// text is a change with its time, whose it is, and who says so.
func (c *Changed) text() string {
	said := exposition.Printable(c.Text, 200)
	switch {
	case len(c.Targets) > 1:
		said = fmt.Sprintf("%s (%s): %s", plural(len(c.Targets), "target", "targets"), list(c.Targets, 3, 60), said)
	case c.Engine != "":
		said = exposition.Printable(c.Engine, 80) + ": " + said
	}
	if when := c.when(); when != "" {
		said = when + ", " + said
	}
	if c.Source != "" {
		said += " (" + exposition.Printable(c.Source, 80) + ")"
	}
	if len(c.Moved) > 0 {
		said += ". Before it → after it: " + strings.Join(c.Moved, ", ")
	}
	return said + "."
}

func (c *Changed) when() string {
	switch {
	case !dated(c.At):
		return ""
	case c.After != 0 && c.At-c.After >= int64(time.Second):
		return clockSpan(c.After, c.At)
	}
	return time.Unix(0, c.At).UTC().Format(time.DateTime) + " UTC"
}

// Before and after a change so much time is compared, and so many values at least.
const (
	compared  = 15 * time.Minute
	leastSeen = 2
)

// moved are the measures that are told in a line of an engine, those that differ by a quarter and more.
func moved(s *Scene, c *Changed) (said []string) {
	if c.At == 0 {
		return nil
	}
	for _, m := range []struct {
		signal, name string
		text         func(float64) string
	}{
		{"tokens.generated", "output", func(v float64) string { return rate(v, 1) }},
		{"request.running", "running", count}, {"request.waiting", "waiting", count},
		{"gen_ai.server.time_to_first_token", "TTFT", seconds}, {"gen_ai.server.time_per_output_token", "per output token", seconds}, {"kv.usage", "KV cache", share},
	} {
		before, after, ok := s.around(m.signal, c)
		if !ok || math.Abs(after-before) < 0.25*max(math.Abs(before), math.Abs(after)) || max(before, after) == 0 {
			continue
		}
		said = append(said, fmt.Sprintf("%s %s → %s", m.name, m.text(before), m.text(after)))
	}
	return said
}

// around is a signal's mean in the time before a change and in the time after it, over the targets that the change is of; of a counter its growth
// a second, all together.
func (s *Scene) around(signal string, c *Changed) (before, after float64, ok bool) {
	var sides [2]struct{ sum, n float64 }
	early, late := cmp.Or(c.After, c.At), c.At
	for _, r := range s.Of(signal) {
		if len(c.Targets) > 0 && !slices.Contains(c.Targets, r.Target) {
			continue
		}
		for k, side := range [2][2]int64{{early - int64(compared), early}, {late, late + int64(compared)}} {
			sum, n := stretch(r, side[0], side[1])
			sides[k].sum, sides[k].n = sides[k].sum+sum, sides[k].n+n
		}
	}
	if sides[0].n == 0 || sides[1].n == 0 {
		return 0, 0, false
	}
	kind := signals.Lookup(signal).Kind
	if kind == signals.Counter {
		return sides[0].sum, sides[1].sum, true
	}
	return sides[0].sum / sides[0].n, sides[1].sum / sides[1].n, true
}

// stretch is what of a reading lies between two moments: the sum of a gauge's values and their number, a counter's growth a second, the sum of what
// a histogram observed and the number.
func stretch(r *adapter.Reading, from, to int64) (sum, n float64) {
	part := *r
	part.Points = slices.DeleteFunc(slices.Clone(r.Points), func(p adapter.Point) bool { return p.At < from || p.At > to })
	part.Hists = slices.DeleteFunc(slices.Clone(r.Hists), func(h adapter.HistPoint) bool { return h.At < from || h.At > to })
	switch r.Signal.Kind {
	case signals.Counter:
		by, over, ok := part.Grown()
		if !ok || over == 0 {
			return 0, 0
		}
		return by / (float64(over) / 1e9), 1
	case signals.Histogram:
		if len(part.Hists) < leastSeen {
			return 0, 0
		}
		h, _ := part.Observed()
		if h.Count == 0 || math.IsNaN(h.Sum) {
			return 0, 0
		}
		return h.Sum, h.Count
	}
	for _, p := range part.Points {
		sum, n = sum+p.Value, n+1
	}
	if r.Rate {
		return 0, 0
	}
	return sum, n
}
