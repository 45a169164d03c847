// Package dynamo understands what Dynamo's front end and workers say: series, and forward-pass metrics, a record an iteration.
package dynamo

import (
	"strings"

	"github.com/whylate/whylate/adapter"
)

// Metrics understands Dynamo's own series, and those of forward-pass metrics (Passes); those of the engine in a worker stay the engine's.
var Metrics = adapter.Adapter{
	Producer: "dynamo",
	Gateway:  true,
	Owns:     adapter.Prefixed("dynamo_", passPrefix),
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = t.Labels.Get("model")
		w.Role = t.Labels.Get("dynamo_component")
		if strings.HasPrefix(t.Family, passPrefix) { // what the router says of a rank is its own account
			w.Rank = t.Labels.Get("dp_rank")
		}
		w.Workload = adapter.Workload(t.Labels)
	},
}
