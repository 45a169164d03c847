// Package dialects knows all adapters: it says whose a family is, puts series together as tracks, and has each track read by its adapter.
package dialects

import (
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/amd"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/adapter/dynamo"
	"github.com/whylate/whylate/adapter/envoy"
	"github.com/whylate/whylate/adapter/epp"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/adapter/litellm"
	"github.com/whylate/whylate/adapter/llamacpp"
	"github.com/whylate/whylate/adapter/lmdeploy"
	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/tgi"
	"github.com/whylate/whylate/adapter/triton"
	"github.com/whylate/whylate/adapter/trtllm"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// All are asked in this order whose a family is. TensorRT-LLM comes last: its older servers use names without a prefix.
var All = []adapter.Adapter{
	vllm.Metrics, sglang.Metrics, tgi.Metrics, llamacpp.Metrics, lmdeploy.Metrics, triton.Metrics,
	dynamo.Metrics, epp.Metrics, litellm.Metrics, envoy.Metrics, genai.Metrics,
	dcgm.Exporter, dcgm.SMI, dcgm.Sampler, amd.Exporter,
	trtllm.Metrics,
}

// Of is the adapter of a family, nil where nobody owns it.
func Of(family string) *adapter.Adapter {
	for i := range All {
		if All[i].Owns(family) {
			return &All[i]
		}
	}
	return nil
}

// coloned are the producers that set their names apart with a colon.
var coloned = []string{"vllm", "sglang", "llamacpp", "lmdeploy"}

// Spelt is a family's name as its producer writes it: whoever passes metrics on may write vllm_x for vllm:x.
func Spelt(family string) string {
	for _, p := range coloned {
		if rest, ok := strings.CutPrefix(family, p+"_"); ok {
			base, _ := exposition.Split(p + ":" + rest)
			if len(signals.Named(p, p+":"+rest)) > 0 || len(signals.Named(p, base)) > 0 {
				return p + ":" + rest
			}
		}
	}
	return family
}

// IsGateway reports whether somebody stands before engines.
func IsGateway(w adapter.Who) bool {
	i := slices.IndexFunc(All, func(a adapter.Adapter) bool { return a.Producer == w.Producer })
	return i >= 0 && All[i].Gateway
}

// Read lets the adapters read what is theirs, once where workers of one engine repeat each other.
func Read(tracks []*adapter.Track) (rs []*adapter.Reading) {
	repeats := map[*adapter.Track]bool{}
	for i := range All {
		if a := &All[i]; a.Workers != nil {
			maps.Copy(repeats, a.Repeats(tracks))
		}
	}
	for _, t := range tracks {
		if a := Of(t.Family); a != nil && !repeats[t] {
			rs = append(rs, a.Read(t)...)
		}
	}
	return rs
}

// IsHistogram reports whether a family is known as one, whoever sends it.
func IsHistogram(family string) bool {
	for i := range All {
		for _, m := range signals.Named(All[i].Producer, family) {
			if m.Signal.Kind == signals.Histogram {
				return true
			}
		}
	}
	return false
}
