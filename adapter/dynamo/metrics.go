// Package dynamo understands what Dynamo's front end and workers say.
package dynamo

import "github.com/whylate/whylate/adapter"

// Metrics understands Dynamo's own series; those of the engine in a worker stay the engine's.
var Metrics = adapter.Adapter{
	Producer: "dynamo",
	Gateway:  true,
	Owns:     adapter.Prefixed("dynamo_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = t.Labels.Get("model")
		w.Role = t.Labels.Get("dynamo_component")
		w.Workload = adapter.Workload(t.Labels)
	},
}
