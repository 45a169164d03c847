// Package litellm understands what the LiteLLM proxy says.
package litellm

import "github.com/whylate/whylate/adapter"

// Metrics understands the proxy's /metrics. "None" is how it writes that something is not known.
var Metrics = adapter.Adapter{
	Producer: "litellm",
	Owns:     adapter.Prefixed("litellm_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		if w.Model = t.Labels.Get("requested_model"); w.Model == "None" {
			w.Model = ""
		}
	},
}
