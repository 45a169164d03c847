package look

import (
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/logline"
)

// starts are the starts that a log tells of, one after the other: several lines make up one.
type starts struct {
	list []start
	work bool // the engine has worked since: the next line of a start begins another
}

// start is one of them.
type start struct {
	began logline.Mark
	told  started
}

// mostStarts bounds what is kept of an engine that starts again and again.
const mostStarts = 200

func (s *starts) take(e *entry) {
	switch e.Kind {
	case "start":
		if len(s.list) == 0 || s.work && len(s.list) < mostStarts {
			s.list, s.work = append(s.list, start{began: e.Mark}), false
		}
		s.list[len(s.list)-1].told.take(e)
	case "other", "access":
	default:
		s.work = len(s.list) > 0
	}
}

// passing are settings that are another at every start, or say where and not how an engine runs.
var passing = []string{"host", "port", "nccl_port", "dist_init_addr", "random_seed", "seed", "instance_id", "master_addr", "master_port", "node_rank"}

// changes are the restarts in a log, and what differs after each.
func (l *Log) changes() (out []ledger.Change) {
	for i := 1; i < len(l.starts.list); i++ {
		before, now := &l.starts.list[i-1].told, &l.starts.list[i].told
		mark := l.starts.list[i].began
		put := func(kind ledger.ChangeKind, subject, from, to, text string) {
			c := ledger.Change{Kind: kind, Engine: l.Target, Subject: subject, From: from, To: to, Source: "its log, line " + at(mark, false), Text: text}
			if mark.Time.Date != logline.NoTime && mark.Time.Date != logline.DateUnknown && mark.Time.Date != logline.YearUnknown && mark.Time.Zone != logline.ZoneUnknown {
				c.At = mark.Time.At.UnixNano()
			}
			c.ID = c.Key()
			out = append(out, c)
		}
		differ := func(kind ledger.ChangeKind, subject, from, to string) {
			if from != to && from != "" && to != "" {
				put(kind, subject, from, to, worded(subject, from, to))
			}
		}
		put(ledger.ChangeRestart, l.Target, "", "", "started again")
		differ(ledger.ChangeVersion, l.Producer, before.version, now.version)
		differ(ledger.ChangeModel, "model", before.model, now.model)
		if len(before.settings) > 0 && len(now.settings) > 0 { // both have printed what they were given
			names := map[string]bool{}
			for _, s := range []*started{before, now} {
				for name := range s.settings {
					names[name] = true
				}
			}
			for _, name := range slices.Sorted(maps.Keys(names)) {
				from, to := before.settings[name], now.settings[name]
				if from != to && !slices.Contains(passing, name) && kindOfLabel(name) != ledger.ChangeModel {
					put(kindOfLabel(name), name, exposition.Printable(from, 200), exposition.Printable(to, 200), worded(name, from, to))
				}
			}
		}
		whole := func(o logline.Opt[int]) string {
			if !o.Known {
				return ""
			}
			return fmt.Sprint(o.Value)
		}
		differ(ledger.ChangeSetting, "KV blocks", whole(before.blocks), whole(now.blocks))
		differ(ledger.ChangeSetting, "room for tokens", whole(before.kvTokens), whole(now.kvTokens))
	}
	return out
}
