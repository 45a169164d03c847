package cli

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/ingest"
)

// gpuSettings say how a server samples its own host's GPUs; nil where it does not.
func gpuSettings(c *config.Config, log *slog.Logger) *gpu.Settings {
	if !c.GPU.Sample {
		return nil
	}
	return &gpu.Settings{Every: c.GPU.Every, Helper: c.GPU.Helper, SMI: c.GPU.SMI, Log: log}
}

// deviceSeries takes what was read of GPUs into the time series: a series for each signal and device, and one for the interval, without which
// the others say less than they seem to. What is read from the log at the start comes again, and changes nothing.
type deviceSeries struct {
	to  storage.AppendableV2
	log *slog.Logger

	mu      sync.Mutex
	pending []devicePoint
	dropped uint64
}

type devicePoint struct {
	name   string
	labels labels.Labels
	at     int64 // ms
	value  float64
}

const (
	// intervalName is the series of the time between two samples of a device.
	intervalName = "sampled_gpu_interval_seconds"
	// mostPending is how many points wait at most: ten seconds of a thousand GPUs.
	mostPending = 400_000
	// deviceSeriesEvery is how often they are written.
	deviceSeriesEvery = time.Second
)

// take is an [ingest.Assembler]'s Samples: it only notes, for the assembler waits.
func (d *deviceSeries) take(s ingest.Sample) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending)+len(s.Values) >= mostPending {
		d.dropped += uint64(len(s.Values))
		return
	}
	b := labels.NewScratchBuilder(7)
	who := dcgm.SampledLabels(s.Device.ID.UUID, strconv.Itoa(s.Device.Index), s.Device.ID.Host, s.Device.Through, s.Device.Profile)
	add := func(name string, v float64) {
		b.Reset()
		b.Add(model.MetricNameLabel, name)
		b.Add("instance", s.Device.ID.Host)
		for _, l := range who {
			b.Add(l.Name, l.Value)
		}
		b.Sort()
		d.pending = append(d.pending, devicePoint{name, b.Labels(), s.At / 1e6, v})
	}
	if s.Device.ID.UUID == "" {
		return
	}
	for _, v := range s.Values {
		if int(v.Signal) < len(s.Signals) && s.Signals[v.Signal] != nil && !math.IsNaN(v.Value) {
			add(dcgm.Sampled(s.Signals[v.Signal]), v.Value)
		}
	}
	add(intervalName, s.Device.Every.Seconds())
}

// run writes what was taken, until ctx ends.
func (d *deviceSeries) run(ctx context.Context) error {
	t := time.NewTicker(deviceSeriesEvery)
	defer t.Stop()
	for tell := (once{log: d.log}); ; {
		select {
		case <-ctx.Done():
			d.write(context.WithoutCancel(ctx))
			return nil
		case <-t.C:
			tell.of("samples of GPUs", d.write(ctx))
		}
	}
}

// write appends what was taken. A point that the store has, or has newer ones than, is passed over: it comes from the log.
func (d *deviceSeries) write(ctx context.Context) error {
	d.mu.Lock()
	points, dropped := d.pending, d.dropped
	d.pending, d.dropped = nil, 0
	d.mu.Unlock()
	if len(points) == 0 {
		return nil
	}
	app := d.to.AppenderV2(ctx)
	for _, p := range points {
		o := storage.AppendV2Options{}
		if p.name == intervalName { // it is no signal: nobody else says what it is
			o = storage.AppendV2Options{MetricFamilyName: p.name, Metadata: metadata.Metadata{Type: model.MetricTypeGauge, Unit: "seconds", Help: "Time between two samples of a GPU."}}
		}
		app.Append(0, p.labels, 0, p.at, p.value, nil, nil, o) // out of order: see above
	}
	if err := app.Commit(); err != nil {
		return err
	}
	if dropped > 0 {
		return fmt.Errorf("%d points were dropped: the store is slower than the samples are; read the GPUs less often (gpu.every)", dropped)
	}
	return nil
}
