// Package triton understands what Triton Inference Server says of itself; what a backend passes on under an engine's names stays the engine's.
package triton

import "github.com/whylate/whylate/adapter"

// Metrics understands /metrics of Triton: counters of microseconds, and its view of GPUs, which are known by their UUID.
var Metrics = adapter.Adapter{
	Producer: "triton",
	Owns:     adapter.Prefixed("nv_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = t.Labels.Get("model")
		w.Device = t.Labels.Get("gpu_uuid")
		w.Workload = adapter.Workload(t.Labels)
	},
}
