package overhead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
)

// fakes are servers of this process that answer at once. What they have used is what a test says.
type fakes struct {
	url     string
	fresh   bool
	started []bool // with the probe or without
	stopped int
	prompts []string

	use   func(start int, probe bool) Usage // when the load is over; nil is nothing
	begin func(start int) error             // may fail the start
}

type fake struct {
	*fakes
	number int
	probe  bool
	asked  int
}

func (f *fakes) Fresh() bool { return f.fresh }

func (f *fakes) Start(ctx context.Context, probe bool) (Server, error) {
	f.started = append(f.started, probe)
	if f.begin != nil {
		if err := f.begin(len(f.started)); err != nil {
			return nil, err
		}
	}
	return &fake{fakes: f, number: len(f.started), probe: probe}, ctx.Err()
}

func (f *fake) URL() string                                   { return f.url }
func (f *fake) Output(int64, int64) ([]byte, error)           { return nil, nil }
func (f *fake) Recorded(_, _ time.Duration) (Recorded, error) { return Recorded{}, nil }
func (f *fake) Stop() error                                   { f.stopped++; return nil }

func (f *fake) Usage() (Usage, error) {
	f.asked++
	u := Usage{}
	if f.use != nil {
		u = f.use(f.number, f.probe)
	}
	if f.asked == 1 && f.number > 1 { // before the load: nothing was used, but rings are there
		u.CPU = map[Role]time.Duration{}
		for _, r := range []Role{Engine, Frontend} {
			u.CPU[r] = 0
		}
		if f.probe {
			u.CPU[Reader] = 0
		}
		if u.Rings != nil {
			r := *u.Rings
			r.Bytes = 0
			u.Rings = &r
		}
		return u, nil
	}
	u.At = 10 * time.Second
	return u, nil
}

// newFakes serves two tokens a request; fail says which requests fail, by their number from 1.
func newFakes(t *testing.T, fail func(request int64) bool) *fakes {
	f := &fakes{fresh: true}
	var requests atomic.Int64
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		f.prompts = append(f.prompts, string(body))
		mu.Unlock()
		if n := requests.Add(1); fail != nil && fail(n) {
			http.Error(w, "the engine is dead", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 2 {
			fmt.Fprint(w, `data: {"id":"x","choices":[{"index":0,"text":"x","finish_reason":null}]}`+"\n\n")
		}
		fmt.Fprint(w, `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

// bench plays three requests one after the other in each run.
func (f *fakes) bench(pairs int) *Bench {
	b := &Bench{Servers: f, Pairs: pairs, Seed: 7, Load: Load{Workload: []experiment.Request{{PromptTokens: 3, OutputTokens: 2}, {PromptTokens: 3, OutputTokens: 2}, {PromptTokens: 3, OutputTokens: 2}}}}
	b.Replay.MaxInFlight = 1
	return b
}

// costly servers use 1 s of engine and front end without the probe; with it the engine 10 % more, and a reader 50 ms.
func costly(start int, probe bool) Usage {
	noise := time.Duration(start%3) * time.Millisecond
	u := Usage{CPU: map[Role]time.Duration{Engine: time.Second + noise, Frontend: time.Second - noise}, Rings: &Rings{}}
	if probe {
		u.CPU[Engine] += 100 * time.Millisecond
		u.CPU[Reader] = 50 * time.Millisecond
		u.Rings = &Rings{Files: 4, Bytes: 20_000, Iterations: 10}
	}
	return u
}

func find(t *testing.T, r *Report, name string) Comparison {
	t.Helper()
	i := slices.IndexFunc(r.Measures, func(c Comparison) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no measure %q", name)
	}
	return r.Measures[i]
}

func TestBenchFindsWhatTheProbeCosts(t *testing.T) {
	f := newFakes(t, nil)
	f.use = costly
	r, err := f.bench(6).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(f.started) != 13 || f.stopped != 13 || !f.started[0] {
		t.Errorf("%d started, %d stopped; want a rehearsal with the probe and 12 runs", len(f.started), f.stopped)
	}
	engine := find(t, r, "cpu_engine")
	if engine.Verdict != Costs || engine.Percent == nil || engine.Percent.Low < 9.5 || engine.Percent.High > 10.5 || engine.Pairs != 6 || *engine.SignFlip != 2./64 {
		t.Errorf("engine: %+v %+v", engine, engine.Percent)
	}
	if off := *engine.Off; off < 165 || off > 168 { // 1 s for 6 tokens
		t.Errorf("engine off: %v s for 1,000 tokens", off)
	}
	if c := find(t, r, "cpu_frontend"); c.Verdict != Unseen || !strings.Contains(c.Words, "would not fit") {
		t.Errorf("front end: %+v", c)
	}
	if c := find(t, r, "reader_core"); c.Verdict != Takes || *c.On != 0.5 || c.Off != nil || c.Percent != nil {
		t.Errorf("reader: %+v", c)
	}
	if c := find(t, r, "ring_bytes"); c.Verdict != Takes || *c.On != 2000 {
		t.Errorf("rings: %+v", c)
	}
	if c := find(t, r, "host_gap"); c.Verdict != Absent || c.On != nil {
		t.Errorf("no log was given: %+v", c)
	}
	if c := find(t, r, "throughput"); c.On == nil || *c.On <= 0 || c.Difference == nil {
		t.Errorf("throughput: %+v", c)
	}
}

// The same bytes go to the same part of every run.
func TestEveryRunIsAskedTheSame(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		f := newFakes(t, nil)
		f.fresh = fresh
		b := f.bench(3)
		if _, err := b.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := 1 + len(b.Load.Workload) // the warm-up is one request
		prompts := f.prompts
		if fresh {
			prompts = prompts[1:] // of the rehearsal
		}
		if len(prompts) != 6*n {
			t.Fatalf("%d requests", len(prompts))
		}
		for i := n; i < len(prompts); i++ {
			pair := i / (2 * n)
			same := prompts[i] == prompts[i-n]
			if want := fresh || (i-n)/(2*n) == pair; same != want {
				t.Errorf("fresh %v, request %d: same as in the run before: %v, want %v", fresh, i, same, want)
			}
		}
	}
}

func TestOrderIsDrawnAndBalanced(t *testing.T) {
	for seed := range uint64(20) {
		orders := order(8, seed)
		for i := 0; i < 8; i += 2 {
			if orders[i] == orders[i+1] {
				t.Errorf("seed %d: pairs %d and %d both begin with %s", seed, i, i+1, orders[i][0])
			}
		}
	}
	if !slices.ContainsFunc(order(12, 1), func(o [2]Arm) bool { return o[0] == On }) || slices.Equal(order(12, 1), order(12, 2)) && slices.Equal(order(12, 1), order(12, 3)) {
		t.Error("the order does not depend on the seed")
	}
	if !slices.Equal(order(9, 5), order(9, 5)) {
		t.Error("the same seed gives another order")
	}
}

func TestShamNeverHasTheProbe(t *testing.T) {
	f := newFakes(t, nil)
	f.use = costly
	b := f.bench(3)
	b.Sham = true
	r, err := b.Run(t.Context())
	if err != nil || slices.Contains(f.started, true) || !r.Sham {
		t.Fatalf("%v, started %v", err, f.started)
	}
	if c := find(t, r, "cpu_engine"); c.Verdict != Unseen {
		t.Errorf("a difference between two servers that are the same: %+v", c)
	}
	var out strings.Builder
	if err := r.Write(&out); err != nil || !strings.Contains(out.String(), "noise") || !strings.Contains(out.String(), "OFF AGAIN") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fakes, *Bench)
		fail   func(int64) bool
		says   string
		starts int
	}{
		"two pairs":        {change: func(_ *fakes, b *Bench) { b.Pairs = 2 }, says: "give 3 to 1000", starts: 0},
		"no pairs":         {change: func(_ *fakes, b *Bench) { b.Pairs = -1 }, says: "give 3 to 1000", starts: 0},
		"no load":          {change: func(_ *fakes, b *Bench) { b.Load.Workload = nil }, says: "workload is empty", starts: 0},
		"negative burst":   {change: func(_ *fakes, b *Bench) { b.Load.Burst = -1 }, says: "burst of -1", starts: 0},
		"negative warm-up": {change: func(_ *fakes, b *Bench) { b.Load.WarmUp = -1 }, says: "warm-up", starts: 0},
		"negative errors":  {change: func(_ *fakes, b *Bench) { b.MaxErrors = -1 }, says: "-1 errors", starts: 0},
		"the probe is not there": {change: func(f *fakes, _ *Bench) {
			f.use = func(int, bool) Usage { return Usage{Rings: &Rings{Files: 1, Bytes: 64}} }
		}, says: "on would be the same as off", starts: 1},
		"a hook has failed": {change: func(f *fakes, _ *Bench) {
			f.use = func(int, bool) Usage { return Usage{Rings: &Rings{Files: 1, Iterations: 5, Errors: 1}} }
		}, says: "1 errors in hooks", starts: 1},
		"the probe is everywhere": {change: func(f *fakes, b *Bench) {
			f.use = func(int, bool) Usage { return Usage{Rings: &Rings{Files: 1, Iterations: 5}} }
		}, says: "with the probe off has written 1 rings", starts: 3},
		"a server does not start": {change: func(f *fakes, _ *Bench) {
			f.begin = func(start int) error { return errors.New("out of memory") }
		}, says: "rehearsal: out of memory", starts: 1},
		"requests fail": {fail: func(n int64) bool { return n == 3 }, change: func(*fakes, *Bench) {}, says: "1 of 3 requests did not complete, allowed are 0 (--max-errors): 500 Internal Server Error", starts: 2},
		"too many fail": {fail: func(n int64) bool { return n == 3 || n == 4 }, change: func(_ *fakes, b *Bench) { b.MaxErrors = 1 }, says: "2 of 3 requests", starts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes(t, c.fail)
			b := f.bench(3)
			b.Seed = 1 // the second run is the first one without the probe
			c.change(f, b)
			r, err := b.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || r != nil {
				t.Errorf("report %v, error %v, want one that says %q", r, err, c.says)
			}
			if starts := len(f.started); starts > c.starts || c.starts == 0 && starts != 0 {
				t.Errorf("%d servers were started, want %d at most", starts, c.starts)
			}
		})
	}
}

func TestErrorsThatAreAllowed(t *testing.T) {
	b := newFakes(t, func(n int64) bool { return n%3 == 0 }).bench(3)
	b.MaxErrors = 1
	if _, err := b.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// What a workload cancels by itself is no error.
func TestPlannedCancellationsAreNoErrors(t *testing.T) {
	b := newFakes(t, nil).bench(3)
	b.Load.Workload[1].CancelChunks = 1
	if _, err := b.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestInterruptKeepsWholePairs(t *testing.T) {
	for runs, want := range map[int]int{2: 0, 6: 0, 7: 3, 8: 3, 9: 4} { // the rehearsal apart
		ctx, cancel := context.WithCancel(t.Context())
		f := newFakes(t, nil)
		f.begin = func(start int) error {
			if start == runs+1 { // the start of this run is interrupted
				cancel()
			}
			return nil
		}
		r, err := f.bench(6).Run(ctx)
		cancel()
		switch {
		case err == nil || !strings.Contains(err.Error(), "interrupted after"):
			t.Errorf("run %d: error %v", runs, err)
		case want == 0 && (r != nil || !strings.Contains(err.Error(), "nothing can be said")):
			t.Errorf("run %d: %v %v", runs, r, err)
		case want > 0 && (r == nil || r.Pairs != want || r.PairsPlanned != 6 || len(r.Runs) != 2*want):
			t.Errorf("run %d: report %+v, want %d pairs", runs, r, want)
		}
	}
}

// An interrupt in the middle of a load stops the server too.
func TestInterruptStopsTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := newFakes(t, nil)
	b := f.bench(3)
	b.Load.Workload[2].At = time.Hour
	b.Said = func(text string) {
		if strings.HasPrefix(text, "pair 1") {
			time.AfterFunc(20*time.Millisecond, cancel)
		}
	}
	if r, err := b.Run(ctx); r != nil || err == nil || len(f.started) != f.stopped {
		t.Errorf("%v %v: %d started, %d stopped", r, err, len(f.started), f.stopped)
	}
}
