package cli

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/rollup"
	"github.com/whylate/whylate/signals"
	"github.com/whylate/whylate/wire"
)

// What is read of a GPU can be asked in PromQL, with the interval beside it; what comes again from the log changes nothing.
func TestSamplesBecomeSeries(t *testing.T) {
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d := &deviceSeries{to: db.Appendable("gpu"), log: slog.New(slog.DiscardHandler)}
	now := time.Now().Truncate(time.Second)
	all := []*signals.Signal{signals.Lookup("hw.gpu.utilization"), nil, signals.Lookup("gpu.energy")}
	take := func(at time.Time, v float64) {
		d.take(ingest.Sample{Device: &ledger.Device{ID: ledger.DeviceID{Host: "node-a", UUID: "GPU-11111111-2222-3333-4444-555555555555"}, Index: 3, Through: "nvml", Every: time.Second}, At: at.UnixNano(), Signals: all,
			Sample: &wire.Sample{Values: []wire.SampleValue{{Signal: 0, Value: v}, {Signal: 1, Value: 1}, {Signal: 2, Value: 7}, {Signal: 9, Value: 1}}}})
	}
	for range 2 { // as after a restart
		take(now.Add(-2*time.Second), 0.5)
		take(now.Add(-time.Second), 0.75)
		if err := d.write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.take(ingest.Sample{Device: &ledger.Device{ID: ledger.DeviceID{Host: "node-a"}}, Sample: &wire.Sample{}}) // no GPU: no series
	if len(d.pending) != 0 {
		t.Errorf("%+v", d.pending)
	}
	if n, err := rollup.Minute(t.Context(), db.Detail(), db.Signals("rollup"), now.Add(-time.Minute), now); err != nil || n != 2 {
		t.Errorf("%d signals are made of the minute: %v", n, err)
	}
	for query, want := range map[string]float64{
		`sampled_hw_gpu_utilization_ratio{device="GPU-11111111-2222-3333-4444-555555555555",node="node-a",index="3",producer="nvml"}`: 0.75,
		`count_over_time(sampled_hw_gpu_utilization_ratio[1m])`:                                                                       2,
		`sampled_gpu_energy_joules_total`: 7,
		`whylate_gpu_energy_joules_total{device="GPU-11111111-2222-3333-4444-555555555555"}`: 7, // as any other producer's
		`sampled_gpu_interval_seconds`: 1,
	} {
		q, err := db.Engine().NewInstantQuery(t.Context(), db.Queryable(), nil, query, now)
		if err != nil {
			t.Fatal(query, err)
		}
		v, err := q.Exec(t.Context()).Vector()
		if err != nil || len(v) != 1 || math.Abs(v[0].F-want) > 1e-9 {
			t.Errorf("%s: %v %v", query, v, err)
		}
		q.Close()
	}
}
