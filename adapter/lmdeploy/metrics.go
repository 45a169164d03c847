// Package lmdeploy understands what LMDeploy says of itself.
package lmdeploy

import "github.com/whylate/whylate/adapter"

// Metrics understands the API server's /metrics. An engine label is a data-parallel rank.
var Metrics = adapter.Adapter{
	Producer: "lmdeploy",
	Owns:     adapter.Prefixed("lmdeploy:"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = t.Labels.Get("model_name")
		w.Rank = t.Labels.Get("engine")
		w.Workload = adapter.Workload(t.Labels)
	},
}
