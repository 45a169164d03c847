// Package tgi understands what Text Generation Inference says of itself.
package tgi

import "github.com/whylate/whylate/adapter"

// Metrics understands the router's /metrics. It names no model.
var Metrics = adapter.Adapter{
	Producer: "tgi",
	Owns:     adapter.Prefixed("tgi_"),
	Who:      func(t *adapter.Track, w *adapter.Who) { w.Workload = adapter.Workload(t.Labels) },
}
