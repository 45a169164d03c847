package look

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/signals"
)

func gpuPath(s *Scene) PathState {
	ms := gauges(s, "kv.usage", func(v float64, w adapter.Who) string { return "KV cache " + share(v) })
	for _, w := range s.Engines() {
		_, told := s.last("kv.usage", w)
		if used, all, _, ok := s.pages(w); ok && !told && all > 0 {
			ms = append(ms, measure{"kv.usage", used / all, w, "KV cache " + share(used/all)})
		}
	}
	ms = s.present(append(ms, capacity(s)...))
	p := state(signals.GPU, ms, "give the DCGM exporter's metrics, or run the agent on the host")
	ds := s.devices()
	switch {
	case len(ds) > 0:
		p.State, p.Switch = Seen, ""
		p.Text = sentence(p.Text, devicesText(s, ds))
		if len(ms) > 0 {
			p.Text = worst(ms) + "; " + devicesText(s, ds)
		}
	case p.State != NotSeen:
		p.Switch = "the device itself is not seen: give the DCGM exporter's metrics"
	}
	return p
}

// devicesText are the devices' numbers from the least to the greatest, and whose they are: an average hides the one that is slow.
func devicesText(s *Scene, ds []*device) string {
	ds, others := known(ds)
	said := []string{plural(len(ds), "GPU", "GPUs")}
	if others > 0 {
		said[0] += fmt.Sprintf(" (and %d in texts without a UUID, which may be the same ones)", others)
	}
	for _, signal := range []string{"hw.gpu.utilization", "gpu.sm_active", "gpu.dram_active", "gpu.clock.sm", "gpu.power", "gpu.temperature", "hw.gpu.memory.usage", "hw.gpu.memory.utilization"} {
		if text := spreadOver(s, ds, signal); text != "" {
			said = append(said, text)
		}
	}
	slowest := ds[0]
	var dearest float64 // J per token
	var whose adapter.Who
	for _, d := range ds {
		if j, w, ok := s.perToken(d); ok && j > dearest {
			dearest, whose = j, w
		}
		if d.interval() > slowest.interval() {
			slowest = d
		}
	}
	if dearest > 0 {
		said = append(said, fmt.Sprintf("%.2f J per token (%s)", dearest, whose))
	}
	return said[0] + ": " + strings.Join(append(said[1:], slowest.sampled()), "; ")
}

// known are the devices that have an identity, and how many have none; all where none has.
func known(ds []*device) (with []*device, without int) {
	for _, d := range ds {
		if identified(d) {
			with = append(with, d)
		}
	}
	if len(with) == 0 {
		return ds, 0
	}
	return with, len(ds) - len(with)
}

// spreadOver is a signal over devices: from the least to the greatest, with the names of both, and on how many it is unknown.
func spreadOver(s *Scene, ds []*device, signal string) string {
	low, high := math.Inf(1), math.Inf(-1)
	var least, most *device
	read := 0
	for _, d := range ds {
		v, ok := d.last(s, signal, "")
		if !ok {
			continue
		}
		read++
		if v < low {
			low, least = v, d
		}
		if v > high {
			high, most = v, d
		}
	}
	if read == 0 {
		if slices.ContainsFunc(ds, func(d *device) bool { return d.doubted(s, signal) }) {
			if slices.ContainsFunc(ds, func(d *device) bool { return d.doubtedFor(s, signal, stale) }) {
				return call(signal) + " unknown by now, see below"
			}
			return call(signal) + " invalid, see below"
		}
		return ""
	}
	text := call(signal) + " " + inUnit(signal, low)
	if limit, ok := least.last(s, "gpu.clock.sm_max", ""); ok && signal == "gpu.clock.sm" {
		text += " of " + inUnit(signal, limit)
	}
	switch unknown := len(ds) - read; {
	case inUnit(signal, low) != inUnit(signal, high):
		text += fmt.Sprintf(" (%s) to %s (%s)", ofMany(ds, least), inUnit(signal, high), ofMany(ds, most))
	case unknown > 0:
		text += " (" + ofMany(ds, least) + ")"
	}
	if unknown := len(ds) - read; unknown > 0 {
		text += fmt.Sprintf(", unknown on %d", unknown)
	}
	return text
}

// doubted reports whether a device has readings of a signal that are no evidence.
func (d *device) doubted(s *Scene, signal string) bool {
	return slices.ContainsFunc(d.readings, func(r *adapter.Reading) bool { return r.Signal.Name == signal && s.invalid[r] != "" })
}

// doubtedFor reports whether some are none for that reason.
func (d *device) doubtedFor(s *Scene, signal, why string) bool {
	return slices.ContainsFunc(d.readings, func(r *adapter.Reading) bool { return r.Signal.Name == signal && s.invalid[r] == why })
}

// ofMany is a device's name among others: its index is enough on one host.
func ofMany(ds []*device, d *device) string {
	if d.who.Index == "" || slices.ContainsFunc(ds, func(o *device) bool {
		return o != d && (o.who.Node != d.who.Node || o.who.Node == "" || o.who.Index == d.who.Index)
	}) {
		return d.String()
	}
	return "GPU " + d.who.Index
}
