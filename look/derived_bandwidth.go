package look

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// peakBandwidth is the memory bandwidth of GPU models in bytes a second, by the name that the driver gives them: NVIDIA's data sheets of the H100,
// H200, A100, L40S, L4 and A10. A name that is not there is not guessed at: one model may come with different memories.
var peakBandwidth = map[string]float64{
	"NVIDIA H200": 4.8e12, "NVIDIA H100 80GB HBM3": 3.35e12, "NVIDIA H100 PCIe": 2.0e12,
	"NVIDIA A100-SXM4-80GB": 2.039e12, "NVIDIA A100-SXM4-40GB": 1.555e12, "NVIDIA A100 80GB PCIe": 1.935e12, "NVIDIA A100-PCIE-40GB": 1.555e12,
	"NVIDIA L40S": 0.864e12, "NVIDIA L4": 0.3e12, "NVIDIA A10": 0.6e12,
}

// memoryBandwidth is at most what the engine's GPUs read and wrote: a cycle in which the memory's interface was active may have moved less than it
// could. Nothing is said where one of the GPUs cannot be spoken for.
func memoryBandwidth(s *Scene, w adapter.Who) (Derived, bool) {
	most, peak, n := 0.0, 0.0, 0
	alone := s.workers() == 1
	for _, d := range s.devices() {
		if !alone {
			if of, _, ok := s.engineOf(d.owner()); !ok || of != w {
				continue
			}
		}
		by, of, why := d.bandwidth(s)
		if why != "" {
			return Derived{}, false
		}
		most, peak, n = most+by, peak+of, n+1
	}
	if n == 0 || len(s.about("tokens.generated", w)) == 0 {
		return Derived{}, false
	}
	return Derived{Low: 0, High: most, worse: most / peak, Text: fmt.Sprintf("memory moved at most %.3g GB/s of %.3g GB/s in %s (%s of cycles active × the data sheet's peak)", most/1e9, peak/1e9, plural(n, "GPU", "GPUs"), share(most/peak))}, true
}

// bandwidth is at most what a device's memory moved, its peak, and why that cannot be said.
func (d *device) bandwidth(s *Scene) (most, peak float64, why string) {
	ps := d.series(s, "gpu.dram_active", "")
	switch {
	case len(d.instances) > 0:
		return 0, 0, "it is partitioned (MIG): how its slices share the peak is not told"
	case len(ps) == 0 && len(d.of(s, "hw.gpu.memory.utilization", "")) > 0:
		return 0, 0, "its memory utilisation is how much is allocated or how often it was touched, not a bandwidth: DRAM active is not read"
	case len(ps) == 0:
		return 0, 0, "DRAM active is not read"
	}
	model := d.model()
	if peak = peakBandwidth[model]; peak == 0 {
		if model == "" {
			return 0, 0, "its model is not told"
		}
		return 0, 0, "no peak bandwidth is known of " + exposition.Printable(model, 60)
	}
	return mean(ps) * peak, peak, ""
}

// model is what the driver calls a device, "" where that is not told.
func (d *device) model() string {
	for _, r := range d.readings {
		if m := strings.TrimSpace(r.Labels.Get("modelName")); m != "" {
			return m
		}
	}
	return ""
}

// notDerived says of which devices a bandwidth cannot be said, and why.
func notDerived(s *Scene) (said []string) {
	for _, d := range s.devices() {
		if _, _, why := d.bandwidth(s); why != "" {
			said = append(said, "gpu.memory_bandwidth of "+d.String()+": "+why)
		}
	}
	return said
}
