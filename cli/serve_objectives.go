package cli

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/objective"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/server"
)

// meter counts requests that end from now on, and holds them against the objectives. What ended while no server ran and came out of the log at
// the start is not counted: counters begin at zero with each start, and would count it a second time.
func meter(c *config.Config, now time.Time) (*server.Outlet, prometheus.Gatherer) {
	m := objective.NewMeter(objective.Objectives(c.Objectives))
	figures := prometheus.NewRegistry()
	m.Register(figures)
	return &server.Outlet{After: now.UnixNano(), Offer: func(l *query.Ledger, r *ledger.Request, _ int64) {
		a := l.Account(r)
		var deployment string
		var prompt uint32
		if len(r.Sequences) > 0 {
			deployment, prompt = r.Sequences[0].Engine.ID.Deployment, r.Sequences[0].Prompt
		}
		m.Count(deployment, prompt, a)
	}}, figures
}
