package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
	"github.com/whylate/whylate/wire"
)

// BenchmarkLive asks a server about requests that are in memory, while a hundred engines go on: between two questions each plays five
// iterations, a tenth of a second.
func BenchmarkLive(b *testing.B) {
	now := time.Unix(0, scenario.Epoch)
	st, err := embedded.Open("/data", embedded.Options{FS: vfs.NewMemory()})
	if err != nil {
		b.Fatal(err)
	}
	s := New(st, Settings{Now: func() time.Time { return now }})
	s.ready.Store(true) // it is not run: nothing seals or tells beside what is measured
	var fleet []*scenario.Steady
	for k := range 100 {
		fleet = append(fleet, scenario.NewSteady(scenario.Load{Seed: uint64(k), Replica: fmt.Sprintf("host-%d", k), Batch: 32, Output: 100, Iteration: 20 * time.Millisecond}))
	}
	var ids []string
	play := func(iterations int) {
		for _, e := range fleet {
			for range iterations {
				if err := e.Next(); err != nil {
					b.Fatal(err)
				}
			}
			var records []store.Record
			for _, src := range []*scenario.Source{e.Front, e.Engine} {
				for _, raw := range src.Frames {
					f, _, err := wire.ParseFrame(raw)
					if err != nil {
						b.Fatal(err)
					}
					if f.Type == wire.TypeReceived {
						var m wire.Received
						if err := wire.Decode(f, &m); err != nil {
							b.Fatal(err)
						}
						ids = append(ids, m.RequestID)
					}
					records = append(records, store.Record{Source: wire.Source{Name: src.Name, Hello: src.HelloJSON()}, Frame: f})
				}
				src.Frames = src.Frames[:0]
			}
			if err := s.hot.take(records); err != nil {
				b.Fatal(err)
			}
			now = time.Unix(0, scenario.Epoch+e.Now()-scenario.Boot)
		}
	}
	play(3000) // a minute
	for _, k := range []struct {
		name string
		ask  func(n int) error
	}{
		{"explain", func(n int) error {
			_, err := s.Explain(context.Background(), api.ExplainQuery{ID: ids[(n*7919)%(len(ids)/2)]})
			return err
		}},
		{"list", func(int) error {
			_, err := s.Requests(context.Background(), api.RequestsQuery{Sort: "e2e", Limit: 50})
			return err
		}},
		{"engines", func(int) error { _, err := s.Engines(context.Background()); return err }},
	} {
		b.Run(k.name, func(b *testing.B) {
			var took []time.Duration
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				play(5)
				b.StartTimer()
				began := time.Now()
				if err := k.ask(n); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e6, "p50_ms")
			b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99_ms")
		})
	}
	b.Logf("%d requests", len(ids))
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
}
