package look

import (
	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/vllm"
)

// adapters are asked in this order whose a family is.
var adapters = []adapter.Adapter{
	vllm.Metrics,
}

// title is how a producer is called.
var title = map[string]string{"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "tgi": "TGI", "llamacpp": "llama.cpp", "dynamo": "Dynamo", "litellm": "LiteLLM", "epp": "llm-d endpoint picker", "dcgm": "DCGM exporter"}
