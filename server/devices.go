package server

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/signals"
)

// Devices implements [api.Service]: as of the newest time of the book.
func (s *Local) Devices(context.Context) (*api.DeviceList, error) {
	defer s.lock()()
	b := s.l.Book
	out := &api.DeviceList{Now: b.Now, Devices: []api.DeviceState{}}
	for _, d := range b.Devices {
		out.Devices = append(out.Devices, deviceState(b, d))
	}
	return out, nil
}

func deviceState(b *ledger.Book, d *ledger.Device) api.DeviceState {
	s := api.DeviceState{UUID: d.ID.UUID, Host: d.ID.Host, Index: d.Index, Name: d.Name, PCI: d.PCI, Driver: d.Driver, Through: d.Through, Divided: d.Divided, Parent: d.Parent,
		Profile: d.Profile, Instance: d.Instance, State: d.State, Since: d.Since, Why: d.Why, At: d.At, Age: max(b.Now-d.At, 0), Every: int64(d.Every), First: d.First, Samples: d.Samples,
		Readings: []api.DeviceReading{}, Notes: slices.Clone(d.Notes)}
	for _, name := range slices.Sorted(maps.Keys(d.Signals)) {
		g := d.Signals[name]
		r := api.DeviceReading{Signal: name, Unit: signals.Lookup(name).Unit, Value: g.Value, At: g.At, Over: int64(g.Over), Absent: g.Absent, Least: g.Least, Most: g.Most, Count: g.Count}
		if g.Count > 0 {
			r.Mean = g.Sum / float64(g.Count)
		}
		s.Readings = append(s.Readings, r)
	}
	s.Holds, s.Unheld = holdsOf(d)
	for _, e := range slices.Backward(d.Errors) {
		n := int(e.XID)
		s.Errors = append(s.Errors, api.DeviceError{XID: e.XID, At: e.At, Means: dcgm.XID(n), Severity: dcgm.Severity(n), Do: dcgm.Remedy(n)})
	}
	for _, p := range d.Processes {
		row := api.DeviceProcess{PID: p.PID, Busy: float64(p.Busy), Used: -1}
		if id, known := b.Processes[ledger.ProcessID{Boot: d.Boot, PID: p.PID}]; known {
			row.Engine = id.String()
		}
		if p.Known {
			row.Used = int64(p.Used)
		}
		s.Processes = append(s.Processes, row)
	}
	s.Notes = append(s.Notes, caveats(d)...)
	return s
}

// holdsOf are the reasons that held a device's clocks down, and whether they are not known.
func holdsOf(d *ledger.Device) (out []api.DeviceHold, unknown bool) {
	g := d.Signals["gpu.clock_events"]
	if g == nil || g.Count == 0 {
		return nil, d.Parent == "" && d.ID.UUID != ""
	}
	for _, h := range d.Held {
		why := dcgm.Holds(h.Bit)[0]
		out = append(out, api.DeviceHold{Reason: why.Name, Mask: h.Bit, Fault: why.Ask != "", Do: why.Ask, Since: h.Since, Last: h.Last, Samples: h.Samples, Share: float64(h.Samples) / float64(g.Count)})
	}
	slices.SortFunc(out, func(a, b api.DeviceHold) int { return int(min(max(int64(a.Mask)-int64(b.Mask), -1), 1)) })
	return out, g.Absent != ""
}

// caveats say what a device's figures do not mean.
func caveats(d *ledger.Device) (out []string) {
	if n := len(d.Processes); n > 1 && d.Parent == "" {
		out = append(out, fmt.Sprintf("%d processes share it: its utilisation, power and clocks are of all of them together, and of no single engine", n))
	}
	if d.Divided {
		out = append(out, "it is divided (MIG): it has no utilisation as a whole, and what of it is measured (power, clocks, heat) is of all its instances together")
	}
	if g := d.Signals["hw.gpu.utilization"]; g != nil && g.Count > 0 {
		out = append(out, "utilisation is the share of the time in which any kernel was resident: a GPU that waits for another, or for memory, is at 100 % too")
	}
	return out
}

// Devices implements [api.Service].
func (s *Server) Devices(ctx context.Context) (*api.DeviceList, error) { return s.hot.Devices(ctx) }
