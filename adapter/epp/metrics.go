// Package epp understands what an endpoint picker says: that of the Gateway API Inference Extension, and llm-d's after it.
package epp

import (
	"cmp"

	"github.com/whylate/whylate/adapter"
)

// Metrics understands the picker's /metrics under all its names. Newer pickers send old names beside the new ones: one of them counts.
var Metrics = adapter.Adapter{
	Producer: "epp",
	Gateway:  true,
	Owns:     adapter.Prefixed("llm_d_epp_", "llm_d_router_epp_", "inference_objective_", "inference_model_", "inference_pool_", "inference_extension_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = cmp.Or(t.Labels.Get("model_name"), t.Labels.Get("target_model_name"))
		w.Workload = adapter.Workload(t.Labels)
	},
}
