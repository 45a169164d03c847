// Package trtllm understands what TensorRT-LLM's server says of itself: text on /prometheus/metrics, iteration statistics as JSON on /metrics.
package trtllm

import (
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/signals"
)

// Metrics understands both. Older servers have no prefix, which others use too, but always labels of their own; a model called "undefined" is one that the server does not know.
var Metrics = adapter.Adapter{
	Producer: "trtllm",
	Owns: func(family string) bool {
		return strings.HasPrefix(family, "trtllm_") || strings.HasPrefix(family, "trtllm:") || len(signals.Named("trtllm", family)) > 0
	},
	Twin: func(t *adapter.Track) bool {
		return !strings.HasPrefix(t.Family, "trtllm") && strings.Contains(t.Family, "_") && t.Labels.Get("model_name") == "" && t.Labels.Get("engine_type") == ""
	},
	Who: func(t *adapter.Track, w *adapter.Who) {
		if w.Model = t.Labels.Get("model_name"); w.Model == "undefined" {
			w.Model = ""
		}
		w.Rank = t.Labels.Get("attentionDpRank")
		w.Workload = adapter.Workload(t.Labels)
	},
}
