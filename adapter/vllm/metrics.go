// Package vllm understands what vLLM says of itself.
package vllm

import (
	"github.com/whylate/whylate/adapter"
)

// Metrics understands vLLM's /metrics, from V0 to 0.32. An engine label is a data-parallel rank, never a replica. A series with a server and
// no engine is a router's copy of what the engine says itself.
var Metrics = adapter.Adapter{
	Producer: "vllm",
	Owns:     adapter.Prefixed("vllm:", "ray_vllm_"),
	Twin:     func(t *adapter.Track) bool { return t.Labels.Get("server") != "" && t.Labels.Get("engine") == "" },
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = t.Labels.Get("model_name")
		if w.Model == "" {
			w.Model = t.Labels.Get("model")
		}
		w.Rank = t.Labels.Get("engine")
		w.Workload = adapter.Workload(t.Labels)
		if w.Role = t.Labels.Get("dynamo_component"); w.Role == "backend" {
			w.Role = ""
		}
	},
}
