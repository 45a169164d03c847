// Package envoy understands what an Envoy says. The gen_ai_ series of its AI gateway are those of adapter/genai.
package envoy

import (
	"github.com/whylate/whylate/adapter"
)

// Metrics understands /stats/prometheus of Envoy, whose times are milliseconds. What it names a model is the cluster.
var Metrics = adapter.Adapter{
	Producer: "envoy",
	Gateway:  true,
	Owns:     adapter.Prefixed("envoy_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		ls := t.Labels
		w.Model = ls.Get("envoy_cluster_name")
		w.Workload = adapter.Workload(ls)
	},
}
