package cli

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics/native"
	"github.com/whylate/whylate/signals"
)

// Changes are looked for in so much time of series, and told where they came in the newest part of it: what surrounds one says what it is. A change
// is looked for several times, since samples may come late and a target is missed for a while before it is gone; it is told once.
const (
	changesEvery  = time.Minute
	changesWithin = 15 * time.Minute
	changesTold   = 5 * time.Minute
	changesMost   = 200 // of one look: more at once are no changes of engines but a label that never stays
)

// changesNeed matches the series that changes are seen in: what things are, when processes began, what engines count, one gauge of each engine
// and one of each GPU.
var changesNeed = func() *labels.Matcher {
	want := []string{".*_info", "process_start_time_seconds"}
	for i := range signals.All() {
		s := &signals.All()[i]
		if s.Kind == signals.Counter && s.Scope != signals.OfDevice || s.Name == "request.running" || s.Name == "hw.gpu.utilization" {
			for _, n := range s.From {
				want = append(want, regexp.QuoteMeta(n.Name))
			}
		}
	}
	slices.Sort(want)
	return labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, strings.Join(slices.Compact(want), "|"))
}()

// notOurs leaves out what the server says of itself.
var notOurs = labels.MustNewMatcher(labels.MatchNotEqual, "job", "whylate")

// changesSeen are the changes that series tell of the time before till.
func changesSeen(ctx context.Context, from storage.Queryable, till time.Time) (found []ledger.Change, err error) {
	tracks, err := native.Matching(ctx, from, till.Add(-changesWithin), till, changesNeed, notOurs)
	if err != nil {
		return nil, err
	}
	for _, c := range look.ChangesOf(tracks) {
		if c.At <= till.Add(-changesTold).UnixNano() {
			continue
		}
		if c.Kind == ledger.ChangeDeployment && c.Engine == c.Subject {
			settle(&c)
		}
		found = append(found, c)
	}
	return found, nil
}

// settle gives a coming or going an id that the next look gives too. When a target should have spoken next is reckoned from all looks, so only its
// own samples count; and of a stretch of time nobody can say that something was never there before.
func settle(c *ledger.Change) {
	at := c.At
	if c.From != "" { // it went: its last sample stays where it is
		c.At = c.After
	} else {
		c.Text = fmt.Sprintf("speaks, and did not in the %d minutes before", int((changesWithin-changesTold)/time.Minute))
	}
	c.ID = c.Key()
	c.At = at
}

// keepChanges hands the changes that series tell to seen, once a minute until ctx ends.
func keepChanges(ctx context.Context, from storage.Queryable, seen func([]ledger.Change) int, log *slog.Logger) error {
	tell := once{log: log}
	t := time.NewTicker(changesEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			found, err := changesSeen(ctx, from, now)
			if n := len(found); n > changesMost && err == nil {
				err = fmt.Errorf("%d changes in %s: the first %d are told", n, changesTold, changesMost)
				found = found[:changesMost]
			}
			tell.of("changes", err)
			seen(found)
		}
	}
}
