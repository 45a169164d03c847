package world

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/wire"
)

// sampler reads a device as a GPU sampler does.
type sampler struct {
	device  *Device
	source  *source
	every   time.Duration
	read    time.Duration
	message wire.Sample
}

// newDevice makes a GPU, and the source that will tell what is read of it.
func (w *World) newDevice(s *Server, g GPU, index int) (*Device, error) {
	if g.Clock <= 0 {
		return nil, fmt.Errorf("world: replica %q: GPU %d: clock: %v MHz: give that of its data sheet", s.config.Name, index, g.Clock)
	}
	if g.UUID == "" {
		r := w.random
		g.UUID = fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.Uint32N(1<<16), r.Uint32N(1<<16), r.Uint32N(1<<16), r.Uint64N(1<<48))
	}
	d := newDevice(g)
	if w.config.Sampling <= 0 {
		return d, nil
	}
	about := gpu.About{Device: gpu.Device{UUID: g.UUID, Index: index, Name: g.Name, Notes: []string{"simulated"}}, Every: int64(w.config.Sampling), Body: gpu.NVML, Signals: gpu.Names}
	h := wire.Hello{Role: gpu.Role, Thread: g.UUID, PID: s.machine.process(), Capabilities: map[string]bool{}}
	text, err := json.Marshal(about)
	if err == nil {
		err = json.Unmarshal(text, &h.Settings)
	}
	if err != nil {
		return nil, err
	}
	d.sampler = &sampler{device: d, every: w.config.Sampling}
	d.sampler.source, err = w.open(s.machine, h)
	return d, err
}

// watchDevices begins to read a host's GPUs.
func (s *Server) watchDevices() {
	for _, e := range s.ranks {
		for _, d := range e.devices {
			if d.sampler != nil {
				s.world.onlook(d.sampler.sample)
			}
		}
	}
}

// onlook plans something that only looks on: when nothing else is planned any more, it ends.
func (w *World) onlook(do func() time.Duration) {
	w.onlookers++
	var again func()
	again = func() {
		if next := do(); len(w.agenda.heap) >= w.onlookers {
			w.later(next, again)
		} else {
			w.onlookers--
		}
	}
	w.agenda.add(w.now, again)
}

// signal numbers, by name.
func signal(name string) uint16 {
	i := slices.Index(gpu.Names, name)
	if i < 0 {
		panic("BUG: no sampled signal is called " + name)
	}
	return uint16(i)
}

var (
	sampledUtilization = signal("hw.gpu.utilization")
	sampledClock       = signal("gpu.clock.sm")
	sampledClockMax    = signal("gpu.clock.sm_max")
	sampledMemoryClock = signal("gpu.clock.memory")
	sampledEvents      = signal("gpu.clock_events")
	sampledHeld        = [throttlingKinds]uint16{signal("gpu.throttled.power"), signal("gpu.throttled.thermal"), signal("gpu.throttled.thermal_hardware"), signal("gpu.throttled.power_brake")}
	sampledPower       = signal("gpu.power")
	sampledPowerNow    = signal("gpu.power_instant")
	sampledPowerLimit  = signal("gpu.power_limit")
	sampledEnergy      = signal("gpu.energy")
	sampledTemperature = signal("gpu.temperature")
	sampledUsed        = signal("hw.gpu.memory.usage")
	sampledFree        = signal("gpu.memory_free")
	sampledBytes       = signal("hw.gpu.memory.limit")
)

const (
	mega     = 1e6
	reading  = 2 * time.Millisecond // that a sample takes
	reserved = 0.9                  // of a device's memory, that an engine takes at its start: vLLM's default
)

// sample reads the device, and says when the next reading is.
func (p *sampler) sample() time.Duration {
	d, w := p.device, p.source.world
	d.follow(w.now)
	window := w.now - p.read
	p.read = w.now
	busy := 0.0
	if window > 0 {
		busy = min(d.busy.Seconds()/window.Seconds(), 1)
	}
	d.busy = 0
	m := &p.message
	*m = wire.Sample{Time: p.source.machine.mono(w.now), Every: uint64(p.every), Took: uint64(reading), State: wire.DeviceAnswers, Values: m.Values[:0], XIDs: m.XIDs[:0],
		Processes: append(m.Processes[:0], wire.SampleProcess{PID: d.user, Busy: float32(busy), Used: uint64(reserved * float64(d.Bytes))})}
	for _, e := range d.errors {
		m.XIDs = append(m.XIDs, wire.SampleXID{At: p.source.machine.mono(e.at), Number: e.xid})
	}
	d.errors = d.errors[:0]
	put := func(signal uint16, value float64) {
		m.Values = append(m.Values, wire.SampleValue{Signal: signal, Value: value})
	}
	m.Values = append(m.Values, wire.SampleValue{Signal: sampledUtilization, Window: uint32(window.Microseconds()), Value: busy})
	put(sampledClock, d.clock*mega)
	put(sampledClockMax, d.Clock*mega)
	put(sampledMemoryClock, d.Memory*mega)
	events := d.reasons
	if busy == 0 {
		events |= HeldIdle
	}
	put(sampledEvents, float64(events))
	for i, held := range d.held {
		put(sampledHeld[i], held.Seconds())
	}
	put(sampledPower, d.watts)
	put(sampledPowerNow, d.watts)
	put(sampledPowerLimit, d.Limit)
	put(sampledEnergy, d.joules)
	put(sampledTemperature, float64(int(d.degree)))
	put(sampledUsed, reserved*float64(d.Bytes))
	put(sampledFree, (1-reserved)*float64(d.Bytes))
	put(sampledBytes, float64(d.Bytes))
	p.source.record(w.now, m)
	return p.every
}
