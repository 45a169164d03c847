package cli

import (
	"os"

	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/server"
)

// observe lets the server look at what arrives.
func observe(c *config.Config, set *server.Settings, series func() *timeSeries) error {
	for _, text := range c.Identity.Aliases {
		a, err := identity.ParseAlias(text)
		if err != nil {
			return err
		}
		set.Aliases = append(set.Aliases, a)
	}
	set.Host, _ = os.Hostname()
	o := c.Objectives
	set.Promises = []look.Promise{
		{Setting: "objectives.ttft", Signal: "gen_ai.server.time_to_first_token", Within: o.TTFT},
		{Setting: "objectives.tpot", Signal: "gen_ai.server.time_per_output_token", Within: o.TPOT},
		{Setting: "objectives.e2e", Signal: "gen_ai.server.request.duration", Within: o.E2E},
	}
	set.Series = func() *metrics.DB {
		if s := series(); s != nil {
			return s.db
		}
		return nil
	}
	return nil
}
