// Package envoy understands what an Envoy says, and its AI gateway.
package envoy

import (
	"cmp"

	"github.com/whylate/whylate/adapter"
)

// Metrics understands /stats/prometheus of Envoy, whose times are milliseconds, and the gen_ai_ series of the AI gateway, which are seconds.
// What it names a model is what was asked for; of clusters it is the cluster.
var Metrics = adapter.Adapter{
	Producer: "envoy",
	Gateway:  true,
	Owns:     adapter.Prefixed("envoy_", "gen_ai_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		ls := t.Labels
		w.Model = cmp.Or(ls.Get("gen_ai_request_model"), ls.Get("gen_ai_original_model"), ls.Get("envoy_cluster_name"))
		w.Workload = adapter.Workload(ls)
	},
}
