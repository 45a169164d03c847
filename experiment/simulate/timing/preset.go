package timing

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/ledger"
)

// Accelerator is a kind of GPU as its maker's data sheet has it.
type Accelerator struct {
	Name      string
	Memory    float64 // bytes
	Bandwidth float64 // of the memory, bytes/s
	Compute   float64 // dense BF16, FLOP/s
	Source    string
}

// Transformer is a dense decoder as its published configuration has it.
type Transformer struct {
	Name       string
	Parameters float64
	Bytes      float64 // of one parameter, and of one number in the KV cache
	Layers     int
	Hidden     int
	KVHeads    int
	HeadSize   int
	Source     string
}

// KVBytes is what one token of context takes in the KV cache, in bytes: a key and a value in each layer.
func (t *Transformer) KVBytes() float64 {
	return 2 * float64(t.Layers*t.KVHeads*t.HeadSize) * t.Bytes
}

// Preset is a model on accelerators that share it evenly (tensor parallel).
type Preset struct {
	Name        string
	Accelerator Accelerator
	Count       int
	Transformer Transformer
}

// h100 is the SXM5 version. The data sheet gives 1,979 TFLOPS for BF16 with sparsity, which is twice the dense figure.
var h100 = Accelerator{"H100 SXM", 80e9, 3.35e12, 989.5e12, "NVIDIA H100 Tensor Core GPU data sheet: 80 GB, 3.35 TB/s, 1,979 TFLOPS BF16 with sparsity"}

// Presets are what there is without a measurement. Each answers in [Ratio].
var Presets = []Preset{
	{"h100-8b", h100, 1, Transformer{"Llama-3.1-8B", 8.03e9, 2, 32, 4096, 8, 128, "Llama-3.1-8B: config.json and model card"}},
	{"h100-70b-tp4", h100, 4, Transformer{"Llama-3.1-70B", 70.6e9, 2, 80, 8192, 8, 128, "Llama-3.1-70B: config.json and model card"}},
}

// PresetNamed finds a preset, or says which there are.
func PresetNamed(name string) (Preset, error) {
	var names []string
	for _, p := range Presets {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Preset{}, fmt.Errorf("timing: preset %.60q: there is none: use %s, or a calibration", name, strings.Join(names, " or "))
}

// usable is the share of its memory that an engine takes: the default of vLLM 0.32's gpu_memory_utilization.
const usable = 0.92

// Fits checks that the weights and a KV pool of blocks of blockSize tokens fit in the memory that an engine may use.
func (p *Preset) Fits(blocks, blockSize int) error {
	n := float64(p.Count)
	weights := p.Transformer.Parameters * p.Transformer.Bytes / n
	pool := float64(blocks) * float64(blockSize) * p.Transformer.KVBytes() / n
	room := usable * p.Accelerator.Memory
	if weights+pool <= room {
		return nil
	}
	most := max(0, int((room-weights)*n/(float64(blockSize)*p.Transformer.KVBytes())))
	return fmt.Errorf("timing: preset %s: on each %s %.1f GB of weights and %.1f GB for %d KV blocks of %d tokens do not fit in %.1f GB (%.0f %% of %.0f GB): use at most %d blocks",
		p.Name, p.Accelerator.Name, weights/1e9, pool/1e9, blocks, blockSize, room/1e9, 100*usable, p.Accelerator.Memory/1e9, most)
}

// reckon is the time of one iteration in seconds, by the roofline (Williams, Waterman and Patterson, 2009): what waits for memory,
// and what computes. rows is how many tokens go through the layers, padding included.
//
//   - The layers read their weights once and compute 2 FLOP per parameter and token: the longer of the two.
//   - Attention of prefill computes 4 FLOP per pair of tokens, layer and hidden dimension.
//   - Attention of decode reads the KV cache of its context.
//
// Collectives, launches and sampling are not in it, nor is the output layer's share of tokens that are not sampled.
func (p *Preset) reckon(s *Shape, rows int) (memory, compute float64) {
	if rows == 0 {
		return 0, 0
	}
	t := &p.Transformer
	bandwidth, flops := p.Accelerator.Bandwidth*float64(p.Count), p.Accelerator.Compute*float64(p.Count)
	read, multiply := t.Parameters*t.Bytes/bandwidth, 2*t.Parameters*float64(rows)/flops
	if read >= multiply {
		memory = read
	} else {
		compute = multiply
	}
	memory += s.Work[ledger.WorkDecodeContext] * t.KVBytes() / bandwidth
	compute += 4 * float64(t.Layers*t.Hidden) * s.Work[ledger.WorkPrefillContext] / flops
	return memory, compute
}
