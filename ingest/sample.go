package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/signals"
	"github.com/whylate/whylate/wire"
)

// sampled is what a source of samples says of itself, and the device that it is about.
type sampled struct {
	about   gpu.About
	device  *ledger.Device
	signals []*signals.Signal // by number; nil = this version does not know it
}

// keepErrors is how many errors of a device are kept.
const keepErrors = 64

// sampledOf is the device that a source speaks of, met on first use.
func (a *Assembler) sampledOf(s *source) (*sampled, error) {
	if s.sampled != nil {
		return s.sampled, nil
	}
	if s.hello.Role != gpu.Role {
		return nil, fmt.Errorf("field role: %q, and samples come from %q", s.hello.Role, gpu.Role)
	}
	about, err := gpu.ParseAbout(s.hello)
	if err != nil {
		return nil, err
	}
	x := &sampled{about: about}
	for _, name := range about.Signals {
		x.signals = append(x.signals, signals.Lookup(name))
	}
	id := ledger.DeviceID{Host: s.hello.Host, UUID: about.UUID}
	x.device = a.devices[id]
	if x.device == nil {
		x.device = &ledger.Device{ID: id, Signals: map[string]*ledger.DeviceSignal{}}
		a.devices[id] = x.device
	}
	s.sampled = x
	return x, nil
}

// sample takes what was read of a device.
func (a *Assembler) sample(s *source, m *wire.Sample) error {
	x, err := a.sampledOf(s)
	if err != nil {
		return err
	}
	for _, v := range m.Values {
		if int(v.Signal) >= len(x.signals) {
			return fmt.Errorf("field values.signal: %d, and the source's hello names %d", v.Signal, len(x.signals))
		}
	}
	d, at := x.device, s.clock.at(m.Time)
	if at <= d.At { // another sampler's, or one that comes late
		return nil
	}
	before := d.State
	x.describe(s)
	d.Every = time.Duration(min(m.Every, math.MaxInt64))
	d.First = cmp.Or(d.First, at)
	d.At = at
	d.Samples++
	d.Why = m.Why
	if d.State = ledger.DeviceState(m.State); d.State != before {
		d.Since = at
		if m.Since != 0 {
			d.Since = s.clock.at(m.Since)
		}
	}
	for _, e := range m.XIDs {
		d.Errors = append(d.Errors, ledger.DeviceError{XID: e.Number, At: s.clock.at(e.At)})
	}
	if n := len(d.Errors) - keepErrors; n > 0 {
		d.Errors, d.Forgotten = slices.Delete(d.Errors, 0, n), d.Forgotten+n
	}
	if m.State == wire.DeviceAnswers || m.State == wire.DeviceLost {
		x.values(m, at)
		processes(d, m)
	}
	if a.Samples != nil {
		a.Samples(Sample{Device: d, At: at, Signals: x.signals, Sample: m})
	}
	return nil
}

// Sample is what was read of a device at a time, as [Assembler.Samples] is told it. It is valid during the call.
type Sample struct {
	Device  *ledger.Device
	At      int64             // Unix ns
	Signals []*signals.Signal // by the sample's numbers; nil = this version does not know it
	*wire.Sample
}

// describe takes up who a device is.
func (x *sampled) describe(s *source) {
	d, b := x.device, &x.about
	d.Name, d.Index, d.PCI, d.Driver, d.Through, d.Notes, d.Producer = b.Name, b.Index, b.PCI, b.Driver, b.Body, b.Notes, s.Producer
	d.Boot = s.hello.Boot
	d.Divided, d.Parent, d.Profile, d.Instance = b.Divided, b.Parent, b.Profile, b.Instance
}

var absences = map[wire.AbsentReason]string{
	wire.AbsentNotSupported: "not supported by the device", wire.AbsentNotPermitted: "not permitted", wire.AbsentOldDriver: "the driver is too old to tell",
	wire.AbsentReadError: "read error", wire.AbsentBlank: "blank: a number that means none", wire.AbsentCorrupt: "corrupt: outside of what can be",
	wire.AbsentShared: "not measured of a divided GPU, nor of its instances",
}

// absence is why a signal has no value.
func absence(a wire.SampleAbsent) string {
	why := cmp.Or(absences[a.Why], fmt.Sprintf("reason %d", a.Why))
	if a.Code != 0 && a.Why == wire.AbsentReadError {
		why += fmt.Sprintf(" (%d)", a.Code)
	}
	return why
}

func (x *sampled) values(m *wire.Sample, at int64) {
	d := x.device
	signal := func(n uint16) *ledger.DeviceSignal {
		if int(n) >= len(x.signals) || x.signals[n] == nil {
			return nil
		}
		v := d.Signals[x.signals[n].Name]
		if v == nil {
			v = &ledger.DeviceSignal{}
			d.Signals[x.signals[n].Name] = v
		}
		return v
	}
	for _, v := range m.Values {
		g := signal(v.Signal)
		if g == nil {
			continue
		}
		if limits := x.signals[v.Signal].Range; math.IsNaN(v.Value) || math.IsInf(v.Value, 0) || limits != nil && (v.Value < limits.Least || v.Value > limits.Most) {
			g.Absent = absences[wire.AbsentCorrupt]
			continue
		}
		if g.Count == 0 {
			g.Least, g.Most = v.Value, v.Value
		}
		g.At, g.Value, g.Over, g.Absent = at, v.Value, time.Duration(v.Window)*time.Microsecond, ""
		g.Least, g.Most, g.Sum, g.Count = min(g.Least, v.Value), max(g.Most, v.Value), g.Sum+v.Value, g.Count+1
		if x.signals[v.Signal].Name == "gpu.clock_events" {
			hold(d, uint64(v.Value), at)
		}
	}
	for _, v := range m.Absent {
		if g := signal(v.Signal); g != nil {
			g.Absent = absence(v)
		}
	}
}

// hold notes which reasons hold a device's clocks down. Between two samples nobody knows.
func hold(d *ledger.Device, mask uint64, at int64) {
	for i := range d.Held {
		if h := &d.Held[i]; mask&h.Bit == 0 {
			h.Since = 0
		}
	}
	for ; mask != 0; mask &= mask - 1 {
		bit := uint64(1) << bits.TrailingZeros64(mask)
		i := slices.IndexFunc(d.Held, func(h ledger.DeviceHold) bool { return h.Bit == bit })
		if i < 0 {
			i = len(d.Held)
			d.Held = append(d.Held, ledger.DeviceHold{Bit: bit})
		}
		h := &d.Held[i]
		h.Since = cmp.Or(h.Since, at)
		h.Samples++
		h.Last = at
	}
}

func processes(d *ledger.Device, m *wire.Sample) {
	d.Processes = d.Processes[:0:0] // who was asked before still holds the old ones
	for _, p := range m.Processes {
		d.Processes = append(d.Processes, ledger.DeviceProcess{PID: p.PID, Busy: p.Busy, Used: p.Used, Known: p.Used != math.MaxUint64, Instance: int(p.Instance) - 1})
	}
}

// listDevices are the devices in the order of their hosts and indices, instances behind their GPU.
func (a *Assembler) listDevices() []*ledger.Device {
	return slices.SortedFunc(maps.Values(a.devices), func(x, y *ledger.Device) int {
		return cmp.Or(cmp.Compare(x.ID.Host, y.ID.Host), cmp.Compare(x.Index, y.Index), cmp.Compare(x.Parent, y.Parent), cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.ID.UUID, y.ID.UUID))
	})
}
