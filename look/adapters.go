package look

import (
	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/adapter/dynamo"
	"github.com/whylate/whylate/adapter/litellm"
	"github.com/whylate/whylate/adapter/llamacpp"
	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/tgi"
	"github.com/whylate/whylate/adapter/trtllm"
	"github.com/whylate/whylate/adapter/vllm"
)

// adapters are asked in this order whose a family is. TensorRT-LLM comes last: its older servers use names without a prefix.
var adapters = []adapter.Adapter{
	vllm.Metrics, sglang.Metrics, tgi.Metrics, llamacpp.Metrics, dynamo.Metrics, litellm.Metrics, dcgm.Exporter, dcgm.SMI, trtllm.Metrics,
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
