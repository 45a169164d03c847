// Package litellm understands what the LiteLLM proxy says.
package litellm

import "github.com/whylate/whylate/adapter"

// Metrics understands the proxy's /metrics. "None" is how it writes that something is not known.
var Metrics = adapter.Adapter{
	Producer: "litellm",
	Gateway:  true,
	Owns:     adapter.Prefixed("litellm_"),
	Who: func(t *adapter.Track, w *adapter.Who) {
		for _, name := range []string{"requested_model", "model", "litellm_model_name"} {
			if w.Model = t.Labels.Get(name); w.Model == "None" {
				w.Model = ""
			}
			if w.Model != "" {
				return
			}
		}
	},
}
