package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// played are the frames of a steady engine's next iterations as records for a log.
func played(t testing.TB, e *scenario.Steady, iterations int) (records []store.Record) {
	t.Helper()
	for range iterations {
		if err := e.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for _, src := range []*scenario.Source{e.Front, e.Engine} {
		for _, raw := range src.Frames {
			records = append(records, record(t, src, raw))
		}
		src.Frames = nil
	}
	return records
}

func record(t testing.TB, src *scenario.Source, raw []byte) store.Record {
	t.Helper()
	f, _, err := wire.ParseFrame(raw)
	if err != nil {
		t.Fatal(err)
	}
	return store.Record{Source: wire.Source{Name: src.Name, Hello: src.HelloJSON()}, Frame: f}
}

// Engines that die in the middle of their work, and requests that no engine took up, are sealed like everything else: neither memory nor the
// log holds on to them, and a restart finds each of them once.
func TestWhatNeverEndsIsSealedAllTheSame(t *testing.T) {
	ctx := context.Background()
	disk := vfs.NewMemory()
	var clock atomic.Int64
	clock.Store(scenario.Epoch)
	now := func() time.Time { return time.Unix(0, clock.Load()) }
	begin := func() *running { return startWith(t, disk, Settings{Now: now, HotPeriod: time.Second}) }
	s := begin()
	refused := 0
	for life := range 6 { // an engine is started, dies in the middle of its work, and another takes its place
		e := scenario.NewSteady(scenario.Load{Seed: uint64(life), Replica: "host", Batch: 8, Output: 50, Iteration: 10 * time.Millisecond,
			Start: scenario.Boot + now().UnixNano() - scenario.Epoch, Unix: now().UnixNano()})
		e.Engine.Name, e.Front.Name = fmt.Sprintf("engine-%d", life), fmt.Sprintf("front-%d", life) // a process's rings are its own
		records := played(t, e, 400)
		for n := range 300 {
			refused++
			at := e.Now() + int64(n)*1_000_000
			id := uint32(100_000 + n)
			for i, m := range []wire.Message{&wire.Received{Time: at, HTTP: id, RequestID: fmt.Sprintf("refused-%d", refused), Path: "/v1/chat/completions"},
				&wire.LastByte{Time: at + 500_000, HTTP: id, Status: 400, End: wire.EndComplete, Chunks: 1, Bytes: 90}} {
				raw, err := wire.Append(nil, 1_000_000+uint64(2*n+i), m)
				if err != nil {
					t.Fatal(err)
				}
				records = append(records, record(t, e.Front, raw))
			}
		}
		raw, err := wire.Append(nil, 2_000_000, &wire.Received{Time: e.Now() + int64(time.Second), HTTP: 200_000, RequestID: fmt.Sprintf("hanging-%d", life), Path: "/v1/completions"})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record(t, e.Front, raw))
		if err := s.accept(ctx, records); err != nil {
			t.Fatal(err)
		}
		if err := s.settle(ctx); err != nil {
			t.Fatal(err)
		}
		clock.Add(int64(time.Hour))
		s.stop()
		s = begin()
		s.seal(ctx)
		clock.Add(int64(20 * time.Minute)) // nothing more comes of it
		s.seal(ctx)
	}
	if f := s.faults.list(); len(f) > 0 {
		t.Fatalf("faults: %+v", f)
	}
	s.stop()
	s = begin()
	s.seal(ctx)
	if n := len(s.hot.l.Book.Requests); n != 0 {
		t.Errorf("%d requests are still in memory", n)
	}
	if n := s.unsealed(); n != 0 {
		t.Errorf("%d iterations are not sealed", n)
	}
	list, err := s.Requests(ctx, api.RequestsQuery{Limit: 5000})
	if err != nil {
		t.Fatal(err)
	}
	seen, lost := map[string]int{}, 0
	for _, r := range list.Requests {
		seen[r.Name]++
		if r.Reason == ledger.FinishLost {
			lost++
		}
	}
	for n := 1; n <= refused; n++ {
		if k := seen[fmt.Sprintf("refused-%d", n)]; k != 1 {
			t.Fatalf("refused-%d is listed %d times", n, k)
		}
	}
	for life := range 6 {
		if n := seen[fmt.Sprintf("hanging-%d", life)]; n != 1 {
			t.Errorf("hanging-%d is listed %d times", life, n)
		}
	}
	if lost < 6*6 {
		t.Errorf("%d requests of dead engines", lost)
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
	for _, r := range list.Requests {
		if r.Reason == ledger.FinishLost {
			x, err := s.Explain(ctx, api.ExplainQuery{ID: r.Name})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(x.Notes, " "), "never told") {
				t.Errorf("%s: %q", r.Name, x.Notes)
			}
			break
		}
	}
	clock.Add(int64(5 * time.Minute))
	s.seal(ctx)
	if info := s.store.LogInfo(); info.Files > 1 {
		t.Errorf("the log still has %d files: %+v", info.Files, info)
	}
	s.stop()
}
