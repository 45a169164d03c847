// Package sglang understands what SGLang says of itself.
package sglang

import "github.com/whylate/whylate/adapter"

// Metrics understands SGLang's /metrics. Each tensor-parallel rank may export its own series: the first one speaks for its
// data-parallel rank, which need not be rank 0. A series of one priority is a part of the one without.
var Metrics = adapter.Adapter{
	Producer: "sglang",
	Owns:     adapter.Prefixed("sglang:", "sglang_", "ray_sglang_"),
	Workers:  []string{"pp_rank", "tp_rank", "moe_ep_rank"},
	Twin:     func(t *adapter.Track) bool { return t.Labels.Get("priority") != "" },
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = t.Labels.Get("model_name")
		w.Rank = t.Labels.Get("dp_rank")
		if w.Role = t.Labels.Get("engine_type"); w.Role == "unified" {
			w.Role = ""
		}
		w.Workload = adapter.Workload(t.Labels)
	},
}
