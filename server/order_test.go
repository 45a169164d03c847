package server

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/wire"
)

// What several bring of one source at once, an agent, its ring, an import, is taken up in the order of the disk: nothing is missing and
// nothing is there twice.
func TestSeveralBringOneSource(t *testing.T) {
	run, _, err := scenario.Random(3, 400, scenario.PlainCost)
	if err != nil {
		t.Fatal(err)
	}
	source := wire.Source{Name: run.Engine.Name, Hello: run.Engine.HelloJSON()}
	var frames []wire.Frame
	for _, raw := range run.Engine.Frames {
		f, _, err := wire.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
	s := start(t, vfs.NewMemory(), time.Unix(0, scenario.Epoch).Add(time.Hour))
	defer s.stop()
	ctx := context.Background()
	var wg sync.WaitGroup
	for k := range 4 {
		rng := rand.New(rand.NewPCG(uint64(k), 1))
		wg.Go(func() {
			for from := 0; from < len(frames); {
				if durable, _ := s.Durable(ctx, source); int(durable) > from { // as the server does for its rings
					from = int(durable)
				}
				to := min(from+1+rng.IntN(3), len(frames))
				if err := s.AcceptBatches(ctx, []stream.Batch{{Source: source, Frames: frames[from:to]}}); err != nil {
					t.Error(err)
					return
				}
				from = to
			}
		})
	}
	wg.Wait()
	if err := s.settle(ctx); err != nil {
		t.Fatal(err)
	}
	o, err := s.Overview(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.Sources[0]; int(got.Frames) != len(frames) || got.Lost != 0 || got.Refused != 0 || len(o.Gaps) != 0 {
		t.Errorf("%+v of %d frames, gaps %v", got, len(frames), o.Gaps)
	}
	list, err := s.Requests(ctx, api.RequestsQuery{})
	if err != nil || len(list.Requests) == 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
