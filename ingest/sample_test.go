package ingest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

const base = int64(1_700_000_000_000_000_000)

// gpuHost feeds an assembler with readings as a recorder of one host writes them; monotonic time 0 is base.
type gpuHost struct {
	t   *testing.T
	a   *Assembler
	rec gpu.Recorder
}

func newGPUHost(t *testing.T) *gpuHost {
	return &gpuHost{t: t, a: New(), rec: gpu.Recorder{Clock: func() [3]int64 { return [3]int64{1e9, base + 1e9, 1e9} },
		Hello: wire.Hello{Producer: wire.Producer{Name: "whylate-agent", Version: "1"}, PID: 9, Start: 8, Boot: "8d1f0c2a", Host: "node-a"}}}
}

func (h *gpuHost) reads(r gpu.Reading) {
	h.t.Helper()
	w, _, raw, err := h.rec.Frame(r, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	id, err := h.a.Source(w)
	if err != nil {
		h.t.Fatal(err)
	}
	f, _, err := wire.ParseFrame(raw)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.a.Frame(id, f); err != nil {
		h.t.Fatal(err)
	}
}

func reading(at int64, write func(*gpu.Draft)) gpu.Reading {
	d := gpu.NewDraft(gpu.NVML, at, time.Second)
	write(d)
	return gpu.Reading{Device: gpu.Device{UUID: "GPU-a", Index: 1, Name: "NVIDIA H100", Driver: "580"}, Body: gpu.NVML, Sample: d.Sample}
}

func TestSamplesBecomeADevice(t *testing.T) {
	h := newGPUHost(t)
	told := 0
	h.a.Samples = func(Sample) { told++ }
	h.reads(reading(2e9, func(d *gpu.Draft) {
		d.Put("utilization.gpu", 90, 166*time.Millisecond)
		d.Put("clocks_event_reasons", 0x24, 0)
		d.None("field.82", wire.AbsentNotSupported, 3)
		d.Processes = []wire.SampleProcess{{PID: 7, Busy: 0.5, Used: 1 << 30}, {PID: 8, Busy: -1, Used: 1<<64 - 1}}
	}))
	h.reads(reading(3e9, func(d *gpu.Draft) {
		d.Put("utilization.gpu", 75, 166*time.Millisecond)
		d.Put("clocks_event_reasons", 0x4, 0)
		d.XIDs = []wire.SampleXID{{At: 25e8, Number: 79}}
	}))
	h.reads(gpu.Reading{Device: reading(0, func(*gpu.Draft) {}).Device, Body: gpu.NVML, Sample: wire.Sample{Time: 9e9, Every: 1e9, State: wire.DeviceSilent, Since: 3e9, Why: "it hangs"}})
	b := h.a.Book()
	if len(b.Devices) != 1 || told != 3 {
		t.Fatalf("%d devices, told %d times", len(b.Devices), told)
	}
	d := b.Devices[0]
	if d.ID != (ledger.DeviceID{Host: "node-a", UUID: "GPU-a"}) || d.Samples != 3 || d.Every != time.Second || d.First != base+2e9 || d.At != base+9e9 || d.Index != 1 || d.Boot != "8d1f0c2a" {
		t.Errorf("%+v", d)
	}
	if d.State != ledger.DeviceSilent || d.Since != base+3e9 || d.Why != "it hangs" {
		t.Errorf("%v since %d: %s", d.State, d.Since, d.Why)
	}
	u := d.Signals["hw.gpu.utilization"]
	if u.Value != 0.75 || u.At != base+3e9 || u.Least != 0.75 || u.Most != 0.9 || u.Count != 2 || u.Over != 166*time.Millisecond {
		t.Errorf("%+v", u)
	}
	if m := d.Signals["gpu.memory_temperature"]; m.Absent != "not supported by the device" || m.Count != 0 {
		t.Errorf("%+v", m)
	}
	if len(d.Held) != 2 || d.Held[0] != (ledger.DeviceHold{Bit: 4, Since: base + 2e9, Samples: 2, Last: base + 3e9}) || d.Held[1] != (ledger.DeviceHold{Bit: 0x20, Samples: 1, Last: base + 2e9}) {
		t.Errorf("%+v", d.Held)
	}
	if len(d.Errors) != 1 || d.Errors[0] != (ledger.DeviceError{XID: 79, At: base + 25e8}) {
		t.Errorf("%+v", d.Errors)
	}
	if len(b.Gaps) != 0 {
		t.Errorf("%v", b.Gaps)
	}
}

// A source that numbers signals which it did not name, comes from no sampler, or sends what cannot be, is refused and seen; nothing else is lost.
func TestSamplesThatCannotBe(t *testing.T) {
	h := newGPUHost(t)
	h.reads(reading(2e9, func(d *gpu.Draft) { d.Values = []wire.SampleValue{{Signal: 60_000, Value: 1}} }))
	h.reads(reading(3e9, func(d *gpu.Draft) { d.Values = []wire.SampleValue{{Signal: 0, Value: 97}} })) // a share of 97
	hello, _ := json.Marshal(wire.Hello{Role: "engine", Boot: "b"})
	id, _ := h.a.Source(wire.Source{Name: "x", Hello: hello})
	raw, _ := wire.Append(nil, 1, &wire.Sample{Time: 5})
	f, _, _ := wire.ParseFrame(raw)
	h.a.Frame(id, f)
	b := h.a.Book()
	var why []string
	for _, g := range b.Gaps {
		why = append(why, g.Why)
	}
	if all := strings.Join(why, "\n"); !strings.Contains(all, "60000") || !strings.Contains(all, `field role: "engine"`) || len(b.Gaps) != 2 {
		t.Errorf("%s", all)
	}
	for _, g := range b.Devices[0].Signals {
		if g.Count != 0 || !strings.Contains(g.Absent, "corrupt") {
			t.Errorf("%+v", g)
		}
	}
}

func TestErrorsOfADeviceAreBounded(t *testing.T) {
	h := newGPUHost(t)
	for i := range int64(200) {
		h.reads(reading((i+2)*1e9, func(d *gpu.Draft) { d.XIDs = []wire.SampleXID{{At: i, Number: uint32(i)}} }))
	}
	if d := h.a.Book().Devices[0]; len(d.Errors) != keepErrors || d.Forgotten != 200-keepErrors || d.Errors[keepErrors-1].XID != 199 {
		t.Errorf("%d kept, %d forgotten", len(d.Errors), d.Forgotten)
	}
}
