package genai

import (
	"cmp"

	"github.com/whylate/whylate/adapter"
)

// Metrics understands the metrics of OpenTelemetry's GenAI conventions under the names that they have in Prometheus, whoever sends them.
var Metrics = adapter.Adapter{
	Producer: "genai",
	Owns:     adapter.Prefixed("gen_ai_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		w.Model = cmp.Or(t.Labels.Get("gen_ai_response_model"), t.Labels.Get("gen_ai_request_model"), t.Labels.Get("gen_ai_original_model"))
		w.Workload = adapter.Workload(t.Labels)
	},
}
