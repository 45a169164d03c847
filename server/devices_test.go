package server

import (
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ledger"
)

func aDevice() *ledger.Device {
	return &ledger.Device{ID: ledger.DeviceID{Host: "node-a", UUID: "GPU-a"}, Boot: "b", Index: 3, Every: time.Second, First: 100, At: 1000, Samples: 4, State: ledger.DeviceAnswers,
		Signals:   map[string]*ledger.DeviceSignal{"hw.gpu.utilization": {At: 1000, Value: 0.9, Least: 0.5, Most: 0.9, Sum: 1.4, Count: 2}, "gpu.clock_events": {At: 1000, Value: 4, Count: 4}},
		Held:      []ledger.DeviceHold{{Bit: 0x40, Samples: 1, Last: 500}, {Bit: 4, Since: 100, Samples: 4, Last: 1000}},
		Errors:    []ledger.DeviceError{{XID: 13, At: 200}, {XID: 79, At: 900}},
		Processes: []ledger.DeviceProcess{{PID: 7, Busy: 0.5, Used: 5, Known: true}, {PID: 8, Busy: -1}}}
}

func TestDevices(t *testing.T) {
	id := ledger.EngineID{Deployment: "chat", Incarnation: "5f0c"}
	l, err := NewLocal(&ledger.Book{Now: 3000, Devices: []*ledger.Device{aDevice()}, Processes: map[ledger.ProcessID]ledger.EngineID{{Boot: "b", PID: 7}: id, {Boot: "another", PID: 8}: id}}).Devices(t.Context())
	if err != nil || len(l.Devices) != 1 {
		t.Fatal(l, err)
	}
	d := l.Devices[0]
	if d.Age != 2000 || d.Every != 1e9 || d.Unheld {
		t.Errorf("%+v", d)
	}
	if u := d.Readings[1]; u.Signal != "hw.gpu.utilization" || u.Unit != "1" || u.Mean != 0.7 {
		t.Errorf("%+v", u)
	}
	if len(d.Holds) != 2 || d.Holds[0].Fault || d.Holds[0].Share != 1 || !d.Holds[1].Fault || d.Holds[1].Since != 0 || d.Holds[1].Share != 0.25 || !strings.Contains(d.Holds[1].Do, "cooling") {
		t.Errorf("%+v", d.Holds)
	}
	if len(d.Errors) != 2 || d.Errors[0].XID != 79 || d.Errors[0].Severity != "broken" || d.Errors[1].Severity != "application" {
		t.Errorf("%+v", d.Errors)
	}
	if d.Processes[0].Engine != id.String() || d.Processes[0].Used != 5 || d.Processes[1].Engine != "" || d.Processes[1].Used != -1 {
		t.Errorf("a pid of another host is nobody's here: %+v", d.Processes)
	}
	if !strings.Contains(strings.Join(d.Notes, "\n"), "2 processes share it") {
		t.Errorf("%q", d.Notes)
	}
}

// What holds a device down is not known where the driver does not tell: that is not the same as nothing.
func TestUnknownHoldsAreNotNone(t *testing.T) {
	d := aDevice()
	d.Signals["gpu.clock_events"] = &ledger.DeviceSignal{Absent: "not supported by the device"}
	d.Held = nil
	if _, unknown := holdsOf(d); !unknown {
		t.Error("it is said that nothing holds it down")
	}
}

func TestDeviceEvents(t *testing.T) {
	w := &watcher{}
	d := aDevice()
	b := &ledger.Book{Devices: []*ledger.Device{d}}
	texts := func() (out []string) {
		for _, e := range w.devicesOf(b) {
			if e.Kind != api.EventDevice || e.Device != "GPU-a" || !strings.Contains(e.Text, "a sample every 1s") {
				t.Errorf("%+v", e)
			}
			out = append(out, e.Text)
		}
		return out
	}
	if got := texts(); len(got) != 2 || !strings.Contains(got[0], "XID 13") || !strings.Contains(got[1], "XID 79") {
		t.Fatalf("%q", got)
	}
	if got := texts(); len(got) != 0 {
		t.Fatalf("told twice: %q", got)
	}
	d.State, d.Since, d.Why = ledger.DeviceSilent, 2000, "the driver hangs"
	d.Held[0].Since = 2000
	if got := texts(); len(got) != 2 || !strings.Contains(got[0], "does not answer: the driver hangs") || !strings.Contains(got[1], "thermal slowdown by hardware holds its clocks down") {
		t.Fatalf("%q", got)
	}
	d.State, d.Why = ledger.DeviceAnswers, ""
	d.Held[0].Since = 0
	if got := texts(); len(got) != 2 || !strings.HasSuffix(got[0], ": answers") || !strings.Contains(got[1], "no longer") {
		t.Fatalf("%q", got)
	}
}
