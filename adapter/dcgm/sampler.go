package dcgm

import (
	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// whylate is the producer of samples that whylate itself took.
const whylate = "whylate"

// Sampler understands samples of whylate's own sampler, as series: they are in the registry's units already.
var Sampler = adapter.Adapter{Producer: whylate, Owns: adapter.Prefixed("sampled_"), Who: sampled}

func sampled(t *adapter.Track, w *adapter.Who) {
	w.Device, w.Node, w.Index, w.Slice = t.Labels.Get("device"), t.Labels.Get("node"), t.Labels.Get("index"), t.Labels.Get("slice")
}

// Sampled is the name of a signal's series of samples, "" where it is not sampled.
func Sampled(s *signals.Signal) string {
	for _, n := range s.From {
		if n.Producer == whylate {
			return n.Name
		}
	}
	return ""
}

// SampledLabels are the labels of a device's series of samples, in order.
func SampledLabels(uuid, index, node, through, slice string) (ls exposition.Labels) {
	for _, l := range []exposition.Label{{Name: "device", Value: uuid}, {Name: "index", Value: index}, {Name: "node", Value: node}, {Name: "producer", Value: through}, {Name: "slice", Value: slice}} {
		if l.Value != "" {
			ls = append(ls, l)
		}
	}
	return ls
}
