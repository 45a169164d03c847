package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
	"github.com/whylate/whylate/wire"
)

// An engine whose clock is days ahead is sealed when the hot period has passed since it came, and until then the log that holds it is kept,
// though the others' is let go.
func TestClockAhead(t *testing.T) {
	for _, hot := range []time.Duration{time.Minute, time.Hour} {
		t.Run(fmt.Sprint(hot), func(t *testing.T) {
			began := time.Unix(0, scenario.Epoch)
			var now atomic.Int64
			now.Store(began.UnixNano())
			disk := vfs.NewMemory()
			ctx := context.Background()
			open := func() (*Server, func()) {
				st, err := embedded.Open("/data", embedded.Options{FS: disk, SegmentBytes: 1 << 10})
				if err != nil {
					t.Fatal(err)
				}
				s := New(st, Settings{Now: func() time.Time { return time.Unix(0, now.Load()) }, SealEvery: time.Hour, HotPeriod: hot, Retention: store.Policy{Detail: 24 * time.Hour, Requests: 24 * time.Hour}})
				ctx, cancel := context.WithCancel(ctx)
				done := make(chan error, 1)
				go func() { done <- s.Run(ctx) }()
				for !s.ready.Load() {
				}
				return s, func() { cancel(); <-done; st.Close() }
			}
			send := func(s *Server, name string, clock time.Time) {
				run, err := scenario.Parse(fmt.Sprintf(`engine vllm depth=1 max_num_seqs=2
0ms  queue %[1]s prompt=4
1..5ms iter %[1]s:4
6ms  x40 2ms iter %[1]s end=%[1]s:length`, name))
				if err != nil {
					t.Fatal(err)
				}
				run.Engine.Hello.Engine.Incarnation, run.Engine.Hello.Boot, run.Engine.Hello.Clock[1] = name, name, clock.UnixNano()
				source := wire.Source{Name: name, Hello: run.Engine.HelloJSON()}
				frames, err := split(bytes.Join(run.Engine.Frames, nil))
				if err != nil {
					t.Fatal(err)
				}
				if err := s.AcceptBatches(ctx, []stream.Batch{{Source: source, Frames: frames}}); err != nil {
					t.Fatal(err)
				}
				if err := s.settle(ctx); err != nil {
					t.Fatal(err)
				}
			}
			count := func(s *Server) int {
				l, err := s.Requests(ctx, api.RequestsQuery{})
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, r := range l.Requests {
					if time.Unix(0, r.Received).After(began.Add(24 * time.Hour)) {
						n++
					}
				}
				return n
			}
			s, stop := open()
			send(s, "ahead", began.Add(72*time.Hour))
			want := count(s)
			for k := range 10 { // others come and go
				now.Add(int64(2 * time.Minute))
				send(s, fmt.Sprint("usual", k), time.Unix(0, now.Load()).Add(-2*hot))
				s.seal(ctx)
			}
			if f := s.faults.list(); len(f) != 1 || !strings.Contains(f[0].What, "clock of test/0@ahead") || !strings.Contains(f[0].Last, "records are 71h") {
				t.Errorf("%+v", f)
			}
			periods, err := s.store.Periods(ctx)
			if err != nil {
				t.Fatal(err)
			}
			sealed, others := false, 0
			for _, p := range periods {
				if p.Engine.Incarnation == "ahead" {
					sealed = true
				} else {
					others++
				}
			}
			if sealed != (hot == time.Minute) || others != 10 {
				t.Errorf("sealed: %v, and %d others", sealed, others)
			}
			if got := count(s); got != want {
				t.Errorf("%d requests, want %d", got, want)
			}
			first := s.store.LogInfo().First
			stop()
			s, stop = open()
			defer stop()
			if got := count(s); got != want {
				t.Errorf("after a restart %d requests, want %d; the log begins at %v", got, want, first)
			}
			if hot == time.Minute && first.Segment < 3 {
				t.Errorf("the log begins at %v: nothing was let go", first)
			}
		})
	}
}

// split gives the frames that lie one behind the other in b.
func split(b []byte) (frames []wire.Frame, err error) {
	for len(b) > 0 {
		f, n, err := wire.ParseFrame(b)
		if err != nil {
			return nil, err
		}
		frames, b = append(frames, f), b[n:]
	}
	return frames, nil
}
