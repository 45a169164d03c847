// Package llamacpp understands what llama.cpp's server says of itself.
package llamacpp

import (
	"math"

	"github.com/whylate/whylate/adapter"
)

// Metrics understands the server's /metrics. It names no model.
var Metrics = adapter.Adapter{
	Producer: "llamacpp",
	Owns:     adapter.Prefixed("llamacpp:"),
	Who:      func(t *adapter.Track, w *adapter.Who) { w.Workload = adapter.Workload(t.Labels) },
}

// digits that the server prints of any number: its values pass through a stream of default precision.
const digits = 6

// Step is the distance between two values that the server can print near v: what it prints is off by up to half of it.
func Step(v float64) float64 {
	if v == 0 {
		return 0
	}
	return max(math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-digits+1), 0)
}
