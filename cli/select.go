package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
)

// selector is the flags that choose requests by what they suffered.
type selector struct {
	at                   string
	over                 time.Duration
	class, tenant, route string
}

func (s *selector) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.at, "at", "", "only requests that were there at this time: 14:05, 14:05:09.250 (local, of the recording's last day), or RFC 3339; a Z at the end means UTC")
	cmd.Flags().DurationVar(&s.over, "over", 0, "only requests that took longer than this, such as 2s")
	cmd.Flags().StringVar(&s.class, "class", "", "only requests of this class: as their client named it, or the first digits (8 or more) of its label")
	cmd.Flags().StringVar(&s.tenant, "tenant", "", "only requests of this tenant: the first digits (8 or more) of its label, as 'requests --labels' shows them")
	cmd.Flags().StringVar(&s.route, "route", "", "only requests of this route: the first digits (8 or more) of its label")
}

// query makes the API's query; last is the newest time of what was read (Unix ns), which says which day a time of day means.
func (s *selector) query(sort string, limit int, last int64) (api.RequestsQuery, error) {
	q := api.RequestsQuery{Sort: sort, Over: s.over, Class: s.class, Tenant: s.tenant, Route: s.route, Limit: limit}
	if s.at == "" {
		return q, nil
	}
	t, err := timeOf(s.at, time.Unix(0, last))
	q.At = t
	return q, err
}

// timeOf reads a time of day on the day of last, or a whole time.
func timeOf(s string, last time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	zone := time.Local
	day := s
	if z, ok := strings.CutSuffix(s, "Z"); ok {
		zone, day = time.UTC, z
	}
	for _, layout := range []string{"15:04", "15:04:05"} { // a fraction of a second is read with either
		if t, err := time.ParseInLocation(layout, day, zone); err == nil {
			d := last.In(zone)
			at := time.Date(d.Year(), d.Month(), d.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), zone)
			if at.After(last.Add(time.Minute)) { // not later than the recording: it was the day before
				at = at.AddDate(0, 0, -1)
			}
			return at, nil
		}
	}
	return time.Time{}, usageError{fmt.Errorf("--at %q: give a time of day such as 14:05 or 14:05:09.250, or a time such as 2026-11-29T14:05:00Z", s)}
}

// iterationNumber reads an iteration's number.
func iterationNumber(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, usageError{fmt.Errorf("iteration %q: give a number from 1", s)}
	}
	return n, nil
}
