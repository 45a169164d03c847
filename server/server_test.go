package server

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
	"github.com/whylate/whylate/store/storetest"
)

// demo is the recorded run of a real engine, as a book and as a capture.
func demo(t testing.TB) (*ledger.Book, []byte) {
	t.Helper()
	raw, err := os.ReadFile("../cli/demo.wlc")
	if err != nil {
		t.Fatal(err)
	}
	a := ingest.New()
	if err := ingest.ReadCapture(bytes.NewReader(raw), "demo", a); err != nil {
		t.Fatal(err)
	}
	return a.Book(), raw
}

// running is a server on a disk in memory, whose clock stands still at the end of the demo.
type running struct {
	*Server
	stop func()
}

func start(t *testing.T, disk vfs.FS, now time.Time) *running {
	t.Helper()
	return startWith(t, disk, Settings{Now: func() time.Time { return now }, HotPeriod: time.Second})
}

// startWith is start with other settings. It seals when it is told to, never by itself.
func startWith(t *testing.T, disk vfs.FS, set Settings) *running {
	t.Helper()
	st, err := embedded.Open("/data", embedded.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	set.SealEvery, set.FullEvery = time.Hour, time.Hour
	s := New(st, set)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for !s.ready.Load() {
		select {
		case err := <-done:
			t.Fatal(err)
		default:
			runtime.Gosched()
		}
	}
	return &running{s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}}
}

func explain(t *testing.T, s api.Service, id string) string {
	t.Helper()
	x, err := s.Explain(context.Background(), api.ExplainQuery{ID: id})
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	x.Basis.Coverage, x.Basis.Gaps = 0, nil // of the whole book, which a slice does not know
	b, err := json.MarshalIndent(struct {
		X *diagnose.Explanation
	}{x}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// iteration is an iteration's detail. The gaps of the whole book are not those of a slice.
func iteration(t *testing.T, s api.Service, n uint64) string {
	t.Helper()
	d, err := s.Iteration(context.Background(), api.IterationQuery{Number: n})
	if err != nil {
		t.Fatalf("iteration %d: %v", n, err)
	}
	d.Gaps = nil
	b, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What was imported is answered like the file itself; so it is after it was sealed, and after a restart.
func TestSameAnswersFileHotSealedRestarted(t *testing.T) {
	book, raw := demo(t)
	sameAnswers(t, book, raw, []string{"fan-0", "short-8", "steady-1", "waiter-9", "grow-13", "hangup-1", "alone-2"}, 1, 205, 2000)
}

// The same of a run in which every kind of record occurs: drafts, executions, evictions and labels among them.
func TestSameAnswersOfEveryKindOfRecord(t *testing.T) {
	run, err := scenario.Parse(storetest.Everything)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := run.Capture()
	if err != nil {
		t.Fatal(err)
	}
	book, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	file := NewLocal(book)
	x, err := file.Explain(context.Background(), api.ExplainQuery{ID: "one"})
	if err != nil || x.Request.Speculation == nil || x.Request.Labels.Tenant != 0x5f0c1a2b3c4d5e6f {
		t.Fatalf("%+v, %v", x.Request, err)
	}
	for n, has := range map[uint64]func(*api.IterationDetail) bool{
		1: func(d *api.IterationDetail) bool { return d.Execution != nil },
		2: func(d *api.IterationDetail) bool { return d.Members[0].Drafts == 3 && d.Members[0].Rejected == 2 },
		4: func(d *api.IterationDetail) bool { return len(d.Evictions) == 2 && d.Row.Evicted == 3 },
	} {
		if d, err := file.Iteration(context.Background(), api.IterationQuery{Number: n}); err != nil || !has(d) {
			t.Fatalf("iteration %d: %+v, %v", n, d, err)
		}
	}
	sameAnswers(t, book, raw, []string{"one", "two", "three"}, 1, 2, 3, 4, 7, 8)
}

// sameAnswers holds what is said of requests and iterations against the book that raw was read into.
func sameAnswers(t *testing.T, book *ledger.Book, raw []byte, ids []string, iterations ...uint64) {
	file := NewLocal(book)
	disk := vfs.NewMemory()
	now := time.Unix(0, book.Now).Add(time.Minute)
	s := start(t, disk, now)
	result, err := s.Import(context.Background(), api.ImportQuery{Name: "demo"}, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if result.New == 0 || result.Duplicate != 0 {
		t.Errorf("import: %+v", result)
	}
	again, err := s.Import(context.Background(), api.ImportQuery{Name: "demo"}, bytes.NewReader(raw))
	if err != nil || again.New != 0 || again.Duplicate != result.New {
		t.Errorf("import again: %+v %v", again, err)
	}
	compare := func(where string, s api.Service) {
		t.Helper()
		for _, id := range ids {
			if d := cmp.Diff(explain(t, file, id), explain(t, s, id)); d != "" {
				t.Errorf("%s, %s (-file +server):\n%s", where, id, d)
			}
		}
		for _, n := range iterations {
			if d := cmp.Diff(iteration(t, file, n), iteration(t, s, n)); d != "" {
				t.Errorf("%s, iteration %d (-file +server):\n%s", where, n, d)
			}
		}
		for _, q := range []api.RequestsQuery{{Tenant: "5f0c1a2b"}, {Class: "a1b2c3d4e5f60718"}, {Route: "ffffffff"}} {
			got, err := s.Requests(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if want, err := file.Requests(context.Background(), q); err != nil || got.Matched != want.Matched || len(got.Requests) != len(want.Requests) {
				t.Errorf("%s: %+v matches %d requests, want %d, %v", where, q, got.Matched, want.Matched, err)
			}
		}
		list, err := s.Requests(context.Background(), api.RequestsQuery{Sort: "ttft", Limit: 20})
		if err != nil {
			t.Fatal(err)
		}
		want, err := file.Requests(context.Background(), api.RequestsQuery{Sort: "ttft", Limit: 20})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range want.Requests {
			if got := list.Requests[i]; got.Name != r.Name || got.E2E != r.E2E || got.TTFT != r.TTFT || got.Largest != r.Largest || got.Reason != r.Reason || got.Labels != r.Labels {
				t.Errorf("%s: request %d is %+v, want %+v", where, i, got, r)
			}
		}
	}
	compare("hot", s)
	s.seal(context.Background())
	if f := s.faults.list(); len(f) > 0 {
		t.Fatalf("faults: %+v", f)
	}
	if n := len(s.hot.engines()[0].Iterations); n > 10 {
		t.Errorf("%d iterations are still in memory", n)
	}
	compare("sealed", s)
	s.stop()
	s = start(t, disk, now)
	compare("restarted", s)
	periods, err := s.store.Periods(context.Background())
	if err != nil || len(periods) != 1 || periods[0].Requests != int64(len(book.Requests)) {
		t.Errorf("%v periods: %+v", err, periods)
	}
	s.seal(context.Background()) // nothing is left to seal, and nothing is sealed twice
	if again, _ := s.store.Periods(context.Background()); len(again) != 1 {
		t.Errorf("%d periods after a second seal", len(again))
	}
	s.stop()
}

// Too much in memory is sealed before its time, and lists go on to be in order across what is sealed and what is not.
func TestSealsBeforeItsTimeWhenMemoryIsFull(t *testing.T) {
	book, raw := demo(t)
	file := NewLocal(book)
	s := startWith(t, vfs.NewMemory(), Settings{Now: func() time.Time { return time.Unix(0, book.Now) }, HotPeriod: time.Hour, HotIterations: 2500})
	if _, err := s.Import(context.Background(), api.ImportQuery{Name: "demo"}, bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	before := s.unsealed()
	told := map[string]string{}
	for _, r := range book.Requests {
		told[r.Name()] = explain(t, s, r.Name())
	}
	s.seal(context.Background())
	after := s.unsealed()
	beside := 0 // of the requests still in memory, those that lived beside sealed ones
	for _, r := range s.hot.l.Book.Requests {
		if d := cmp.Diff(told[r.Name()], explain(t, s, r.Name())); d != "" {
			t.Errorf("%s is told otherwise now that its neighbours are sealed (-before +after):\n%s", r.Name(), d)
		}
		if q := r.Sequences; len(q) > 0 && q[0].Join != 0 && q[0].Join <= s.sealed[s.hot.engines()[0].ID] {
			beside++
		}
	}
	if beside == 0 {
		t.Error("nobody in memory has sealed neighbours")
	}
	if before < 5000 || after > 2500 || after < 2000 {
		t.Errorf("%d iterations were not sealed before, %d are not now; 2500 are allowed", before, after)
	}
	if f := s.faults.list(); len(f) > 0 {
		t.Fatalf("faults: %+v", f)
	}
	for _, by := range query.Keys() {
		q := api.RequestsQuery{Sort: by, Limit: 50}
		got, err := s.Requests(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		want, err := file.Requests(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Requests {
			if got.Requests[i].Sorted != want.Requests[i].Sorted {
				t.Errorf("by %s: request %d is %s with %d ns, want %s with %d ns", by, i, got.Requests[i].Name, got.Requests[i].Sorted, want.Requests[i].Name, want.Requests[i].Sorted)
			}
		}
	}
	s.stop()
}

var _ store.Store = (*embedded.Store)(nil)
