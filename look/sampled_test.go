package look

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/adapter"
	sampler "github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/signals"
	"github.com/whylate/whylate/wire"
)

// A capture's samples of a GPU are looked at like an exporter's: errors of the driver, what holds the clocks down, how often it was read.
func TestSamplesOfACapture(t *testing.T) {
	const unix = int64(1_773_223_200_000_000_000)
	rec := sampler.Recorder{Clock: func() [3]int64 { return [3]int64{1e9, unix, 1e9} }, Hello: wire.Hello{Producer: wire.Producer{Name: "whylate-agent", Version: "1"}, PID: 9, Start: 8, Boot: "8d1f0c2a", Host: "node-a"}}
	var file bytes.Buffer
	w, err := wire.NewCaptureWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(20) {
		d := sampler.NewDraft(sampler.NVML, (i+1)*1e9, time.Second)
		d.Put("utilization.gpu", 97, 0)
		d.Put("clocks_event_reasons", 0x40, 0)
		d.Put("temperature.gpu", 91, 0)
		d.Put("xid", map[bool]float64{true: 79}[i > 10], 0)
		source, _, raw, err := rec.Frame(sampler.Reading{Device: sampler.Device{UUID: "GPU-a", Index: 3}, Body: sampler.NVML, Sample: d.Sample}, unix)
		if err != nil {
			t.Fatal(err)
		}
		id, err := w.Source(source)
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := wire.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Frame(id, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Read(context.Background(), []Input{{Name: "run.wlc", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file.Bytes())), nil }}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, f := range driverErrors(s) {
		said = append(said, f.Text)
	}
	if all := strings.Join(said, "\n"); len(said) != 1 || !strings.Contains(all, "GPU 3 of node-a: XID 79 (the GPU has fallen off the bus)") || !strings.Contains(all, "a sample every 1.00 s") {
		t.Errorf("%q", said)
	}
	if v, ok := s.devices()[0].last(s, "gpu.clock_events", ""); !ok || v != 0x40 {
		t.Errorf("clocks are held by %v, %v", v, ok)
	}
}

// A counter that two producers tell, one of them half a minute late, is no counter that falls: the one that was heard more often speaks.
func TestCounterOfTwoProducers(t *testing.T) {
	reading := func(producer string, points ...adapter.Point) *adapter.Reading {
		return &adapter.Reading{Track: adapter.Track{Points: points}, Signal: signals.Lookup("gpu.energy"), Native: &signals.Native{Producer: producer}, Who: adapter.Who{Producer: producer}}
	}
	d := &device{readings: []*adapter.Reading{
		reading("dcgm", adapter.Point{At: 2e9, Value: 100}, adapter.Point{At: 4e9, Value: 100}),
		reading("whylate", adapter.Point{At: 1e9, Value: 150}, adapter.Point{At: 3e9, Value: 170}, adapter.Point{At: 5e9, Value: 190}),
	}}
	c := d.counter(&Scene{}, "gpu.energy")
	if spans, bad := c.Spans(); len(bad) != 0 || len(spans) != 1 || len(c.Points) != 3 {
		t.Errorf("%v: spans %v, bad reads %v", c.Points, spans, bad)
	}
}
