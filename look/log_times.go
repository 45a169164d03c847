package look

import (
	"fmt"
	"strings"
	"time"

	"github.com/whylate/whylate/logline"
)

// times are what a log's times are worth.
type times struct {
	wrapped  bool // a wrapper near its beginning tells the year
	known    span // lines with a time
	guessed  span // whose year is inferred
	yearless span
	dateless span
	zoneless span
	newYear  span // first lines of a year that came without one
	before   logline.Time
}

// begin decides where years come from: a wrapper's time near the log's beginning is better than its file's.
func (t *times) begin(lines []string, o *logline.Options) {
	for l, err := range logline.Read(strings.NewReader(strings.Join(lines, "\n")), logline.Options{}) {
		if err != nil {
			return
		}
		if l.Time.Date == logline.DateTold && l.Time.Zone == logline.ZoneTold { // Python's loggers tell no zone: it is a wrapper's
			t.wrapped, o.Near = true, time.Time{}
			return
		}
	}
}

func (t *times) take(e *entry) {
	now := e.Time
	switch now.Date {
	case logline.NoTime:
		return
	case logline.YearGuessed:
		t.guessed.add(e.Mark)
		if t.before.Date == logline.YearGuessed && now.At.Year() == t.before.At.Year()+1 {
			t.newYear.add(e.Mark)
		}
	case logline.YearUnknown:
		t.yearless.add(e.Mark)
	case logline.DateUnknown:
		t.dateless.add(e.Mark)
	}
	if now.Zone == logline.ZoneUnknown {
		t.zoneless.add(e.Mark)
	}
	t.known.add(e.Mark)
	t.before = now
}

// text says when a log was written, and what of that is not told.
func (t *times) text() string {
	if t.known.n == 0 {
		return "No line has a time: only their order is known."
	}
	first, last := t.known.first.Time, t.known.last.Time
	said := []string{"Times " + when(first, true) + " to " + when(last, true)}
	if t.guessed.n > 0 {
		from := "the file's time"
		if t.wrapped {
			from = "the container runtime's times"
		}
		said = append(said, fmt.Sprintf("no year in the timestamps of %s: inferred from %s", several(t.guessed.n, "line", "lines"), from))
	}
	if t.newYear.n > 0 {
		said = append(said, "New Year before line "+at(t.newYear.first, false))
	}
	if t.yearless.n > 0 {
		said = append(said, "no year is known")
	}
	if t.dateless.n > 0 {
		said = append(said, "no date is known, only times of day")
	}
	switch {
	case t.zoneless.n == t.known.n:
		said = append(said, "times carry no zone: give it with --zone")
	case t.zoneless.n > 0:
		said = append(said, fmt.Sprintf("no zone in %s: give it with --zone", several(t.zoneless.n, "line", "lines")))
	}
	return strings.Join(said, "; ") + "."
}

// order is how lines and records lie to one another.
type order struct {
	joined, shared, cut, skipped span
	before                       logline.Mark
}

func (o *order) take(e *entry) {
	if e.Last > e.First {
		o.joined.add(e.Mark)
	}
	if e.First == o.before.First && e.Last == o.before.Last && (o.shared.n == 0 || o.shared.last.First != e.First) {
		o.shared.add(e.Mark)
	}
	if e.Cut {
		o.cut.add(e.Mark)
	}
	if e.Skipped > 0 {
		o.skipped.add(e.Mark)
	}
	o.before = e.Mark
}

func (o *order) text() (said []string) {
	if n := o.joined.n; n == 1 {
		said = append(said, fmt.Sprintf("lines %d to %d are one that its runtime had cut, joined", o.joined.first.First, o.joined.first.Last))
	} else if n > 1 {
		said = append(said, fmt.Sprintf("%d records were joined that their runtime had cut, the first in lines %d to %d", n, o.joined.first.First, o.joined.first.Last))
	}
	for _, part := range []struct {
		span
		one, more string
	}{
		{o.shared, "line %s holds several records, all kept", "%d lines hold several records, all kept, the first is line %s"},
		{o.cut, "the rest of line %s never came", "the rest of %d lines never came, the first is line %s"},
		{o.skipped, "a part of line %s is not read", "parts of %d lines are not read, the first is line %s"},
	} {
		if part.n == 1 {
			said = append(said, fmt.Sprintf(part.one, at(part.first, false)))
		} else if part.n > 1 {
			said = append(said, fmt.Sprintf(part.more, part.n, at(part.first, false)))
		}
	}
	return said
}
