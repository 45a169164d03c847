package look

import (
	"slices"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/amd"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/adapter/dynamo"
	"github.com/whylate/whylate/adapter/envoy"
	"github.com/whylate/whylate/adapter/epp"
	"github.com/whylate/whylate/adapter/litellm"
	"github.com/whylate/whylate/adapter/llamacpp"
	"github.com/whylate/whylate/adapter/lmdeploy"
	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/tgi"
	"github.com/whylate/whylate/adapter/triton"
	"github.com/whylate/whylate/adapter/trtllm"
	"github.com/whylate/whylate/adapter/vllm"
)

// adapters are asked in this order whose a family is. TensorRT-LLM comes last: its older servers use names without a prefix.
var adapters = []adapter.Adapter{
	vllm.Metrics, sglang.Metrics, tgi.Metrics, llamacpp.Metrics, lmdeploy.Metrics, triton.Metrics,
	dynamo.Metrics, epp.Metrics, litellm.Metrics, envoy.Metrics,
	dcgm.Exporter, dcgm.SMI, amd.Exporter,
	trtllm.Metrics,
}

// adapterOf is the one whose a family is, nil where it is nobody's.
func adapterOf(family string) *adapter.Adapter {
	for i := range adapters {
		if adapters[i].Owns(family) {
			return &adapters[i]
		}
	}
	return nil
}

// isGateway reports whether somebody stands before engines.
func isGateway(w adapter.Who) bool {
	i := slices.IndexFunc(adapters, func(a adapter.Adapter) bool { return a.Producer == w.Producer })
	return i >= 0 && adapters[i].Gateway
}
