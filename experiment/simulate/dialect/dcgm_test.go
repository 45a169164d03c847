package dialect

import (
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/wire"
)

// began is when the tests' runs begin, in Unix ns; its monotonic clock reads boot then.
const (
	began = 1_800_000_000_000_000_000
	boot  = 1_000_000_000_000
)

// hello is that of a source of one host.
func hello(role, thread string, pid uint32, settings map[string]any) *wire.Hello {
	return &wire.Hello{Protocol: [2]uint16{wire.Major, wire.Minor}, Producer: wire.Producer{Name: "test", Version: "1"}, Role: role, Thread: thread, PID: pid, Start: 100, Boot: "boot-1",
		Host: "node-a", Clock: [3]int64{boot - 100, began, boot + 100}, Depth: 1, Settings: settings,
		Engine: wire.Engine{Name: "vllm", Version: "0.32.0", Deployment: "chat", Replica: "vllm-0", Incarnation: "abc"}}
}

func gpuHello(index int) *wire.Hello {
	names := []any{}
	for _, n := range gpu.Names {
		names = append(names, n)
	}
	h := hello(gpu.Role, "GPU-"+string(rune('a'+index)), 9, map[string]any{"uuid": "GPU-" + string(rune('a'+index)), "index": index, "name": "NVIDIA H100 80GB HBM3",
		"pci": "00000000:1B:00.0", "driver": "570.86.15", "every_ns": 1000000000, "through": "nvml", "signals": names})
	h.Engine = wire.Engine{}
	return h
}

// reading is a sample at a second, of signals by name.
func reading(second int, values map[string]float64) *wire.Sample {
	m := &wire.Sample{Time: boot + int64(second)*1e9, Every: 1e9, State: wire.DeviceAnswers}
	for i, name := range gpu.Names {
		if v, ok := values[name]; ok {
			m.Values = append(m.Values, wire.SampleValue{Signal: uint16(i), Value: v})
		}
	}
	return m
}

// TestExporterIsStale samples two devices every second and scrapes their exporter every ten: it collects every thirty, and says the same in
// between, whatever happens. The units are its own; a device that is lost has no series.
func TestExporterIsStale(t *testing.T) {
	dir := t.TempDir() + "/run"
	b, err := Create(dir, Options{ScrapeEvery: 10 * time.Second, Keep: Scrapes})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := b.Source(gpuHello(i)); err != nil {
			t.Fatal(err)
		}
	}
	for second := 1; second <= 100; second++ {
		for i := range 2 {
			m := reading(second, map[string]float64{"gpu.clock.sm": float64(1980-second) * 1e6, "hw.gpu.utilization": 0.97, "gpu.power": 650.5, "gpu.energy": 1000 + 650*float64(second),
				"gpu.clock_events": 4, "gpu.throttled.power": 0.25 * float64(second), "gpu.temperature": 61})
			if i == 1 && second == 40 {
				m.XIDs = []wire.SampleXID{{At: m.Time, Number: 79}}
			}
			if i == 1 && second >= 70 {
				m = &wire.Sample{Time: m.Time, Every: 1e9, State: wire.DeviceLost, Why: "fell off the bus"}
			}
			if err := b.Record(i, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	files := readDir(t, dir)
	var out strings.Builder
	for second := 0; second <= 110; second += 10 {
		name := bundle.ScrapePath("dcgm-node-a", (began+int64(second)*1e9)/1e6)
		page, ok := files[name]
		if !ok {
			out.WriteString("-- " + time.Duration(second*1e9).String() + ": no page --\n")
			continue
		}
		parses(t, name, page)
		before := files[bundle.ScrapePath("dcgm-node-a", (began+int64(second-10)*1e9)/1e6)]
		if string(page) == string(before) {
			out.WriteString("-- " + time.Duration(second*1e9).String() + ": as before --\n")
			continue
		}
		out.WriteString("-- " + time.Duration(second*1e9).String() + " --\n")
		out.Write(page)
	}
	golden(t, "testdata/dcgm.txtar", out.String())
}
