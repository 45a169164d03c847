package logline

import (
	"bufio"
	"bytes"
	"time"
)

// clock gives times the year or the date that they come without: the one that is nearest to the time before. So time goes on at New Year,
// and a line that is late by minutes does not go back a year.
type clock struct {
	zone  *time.Location
	near  time.Time
	first int // the year of the first time without one, if what follows tells it; else 0

	begun bool
	last  time.Time // the last one with day and month, as it was written
	date  Date      // what is known of a year that comes from it

	started bool
	daily   time.Time // the last one that was only a time of day
}

// time is that of a line: of its wrapper where that tells the date, else its own.
func (c *clock) time(wrapper, own stamp) Time {
	s := wrapper
	if s.date != DateTold && own.date != NoTime {
		s = own
	}
	t := Time{At: s.at, Date: s.date, Zone: s.zone}
	switch s.date {
	case NoTime:
		return Time{}
	case DateTold:
		c.begun, c.last, c.date = true, s.at, YearGuessed
	case YearUnknown:
		if !c.begun {
			c.begin(s.at)
		}
		c.last = nearestYear(s.at, c.last)
		t.At, t.Date = c.last, c.date
	case DateUnknown:
		if c.started {
			days := c.daily.Sub(s.at).Round(24 * time.Hour)
			s.at = s.at.Add(days)
		}
		c.started, c.daily, t.At = true, s.at, s.at
	}
	if t.Zone == ZoneUnknown && c.zone != nil {
		y, m, d := t.At.Date()
		t.At = time.Date(y, m, d, t.At.Hour(), t.At.Minute(), t.At.Second(), t.At.Nanosecond(), c.zone)
		t.Zone = ZoneGiven
	}
	return t
}

// slack is how far a time may be beyond that of its file: the file's has another zone.
const slack = 36 * time.Hour

// begin decides on the year of the first time that has none.
func (c *clock) begin(at time.Time) {
	c.begun, c.date = true, YearGuessed
	switch {
	case c.first != 0:
		c.last = inYear(at, c.first)
	case !c.near.IsZero():
		y := c.near.Year() + 1
		for ; !valid(at, y) || inYear(at, y).After(c.near.Add(slack)); y-- {
		}
		c.last = inYear(at, y)
	default:
		c.last, c.date = at, YearUnknown
	}
}

// nearestYear is a time put into the year in which it is nearest to another.
func nearestYear(at, to time.Time) time.Time {
	if same := inYear(at, to.Year()); valid(at, to.Year()) && same.Sub(to).Abs() < 180*24*time.Hour {
		return same // nearly always
	}
	best := time.Time{}
	for y, found := to.Year()-4, false; y <= to.Year()+4; y++ { // 29 February is not in every year
		if t := inYear(at, y); valid(at, y) && (!found || t.Sub(to).Abs() < best.Sub(to).Abs()) {
			best, found = t, true
		}
	}
	return best
}

func inYear(at time.Time, year int) time.Time {
	return time.Date(year, at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC)
}

// valid says whether a year has a time's day.
func valid(at time.Time, year int) bool {
	return at.Day() != 29 || at.Month() != time.February || inYear(at, year).Day() == 29
}

// yearOf is the year of the first time of a log's beginning that has none, by the first wrapper's time that follows; else 0.
func yearOf(ahead []byte) int {
	year, before := 0, time.Time{}
	read(bufio.NewReader(bytes.NewReader(ahead)), &clock{}, func(l Line, _ error) bool {
		switch l.Time.Date {
		case YearUnknown:
			before = l.Time.At
		case DateTold:
			if !before.IsZero() {
				year = nearestYear(before, l.Time.At).Year() - before.Year()
			}
			return false
		}
		return true
	})
	return year
}
