package export

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/query"
)

// receiver keeps what it is sent.
type receiver struct {
	mu    sync.Mutex
	err   error
	spans []*tracepb.Span
}

func (r *receiver) send(_ context.Context, batch []*tracepb.ResourceSpans) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for _, rs := range batch {
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
	return nil
}

// offer gives every request of a ledger to an exporter.
func offer(e *Exporter, l *query.Ledger) (n int) {
	for _, r := range l.Book.Requests {
		a := l.Account(r)
		if a.State == account.Finished {
			e.Offer(l, r, a.To)
			n++
		}
	}
	return n
}

// every counted request is either sent or lost, for one reason.
func balanced(t *testing.T, s Stats) {
	t.Helper()
	lost := uint64(0)
	for _, n := range s.Lost {
		lost += n
	}
	if s.Offered != s.Sent+lost {
		t.Errorf("%d offered, %d sent, %d lost: %+v", s.Offered, s.Sent, lost, s)
	}
}

// The share without bias keeps what its threshold says; every failed and every late request leaves, for certain.
func TestSampling(t *testing.T) {
	const n = 200_000
	s := Sampling{OneIn: 100, TailE2E: time.Second}
	for oneIn, want := range map[int]string{1: "0", 2: "8", 3: "aaab", 10: "e666", 100: "fd70a", 1_000_000: "ffffef39"} {
		if got := digits(Sampling{OneIn: oneIn}.threshold()); got != want {
			t.Errorf("threshold of 1 in %d: %s, want %s", oneIn, got, want)
		}
	}
	kept, weight := 0, 0.0
	for k := range n {
		l := lineage{trace: make([]byte, 16)}
		copy(l.trace, fmt.Sprintf("%016d", k))
		c, keep := s.choose(l.randomness(), &account.Account{From: 1, To: 2}, false)
		if keep {
			kept++
			weight += genai.Threshold{T: c.t, Known: true}.Weight()
		}
	}
	p := 0.01
	if sd := math.Sqrt(n * p * (1 - p)); math.Abs(float64(kept)-n*p) > 5*sd {
		t.Errorf("kept %d of %d", kept, n)
	}
	if math.Abs(weight-n) > 5*math.Sqrt(n*(1-p)/p) {
		t.Errorf("the kept stand for %.0f of %d", weight, n)
	}
	if c, keep := s.choose(0, &account.Account{From: 1, To: 2}, true); !keep || c.t != 0 || fmt.Sprint(c.reasons) != "[error]" {
		t.Errorf("a failed one: %v %v", c, keep)
	}
	if c, keep := s.choose(whole-1, &account.Account{From: 1, To: 2e9}, true); !keep || c.t != 0 || fmt.Sprint(c.reasons) != "[baseline error tail]" {
		t.Errorf("a late, failed one of the share: %v %v", c, keep)
	}
	if _, keep := (Sampling{}).choose(whole-1, &account.Account{From: 1, To: 2}, false); keep {
		t.Error("a share of none keeps one")
	}
}

// A rate limit makes the share smaller and says so: the weights of what is left still add up to all there were.
func TestRateLimitKeepsWeightsTrue(t *testing.T) {
	const n, rounds = 1000, 300
	total := 0.0
	for round := range rounds {
		items := make([]*item, n)
		for k := range items {
			l := lineage{trace: make([]byte, 16)}
			copy(l.trace, fmt.Sprintf("%08d%08d", round, k))
			items[k] = &item{trace: &Trace{Spans: make([]*tracepb.Span, 1+k%3)}, choice: choice{r: l.randomness(), t: 0}}
		}
		kept, lost, _ := thin(items, 200)
		if len(kept)+len(lost) != n || len(kept) == 0 {
			t.Fatalf("%d kept, %d lost", len(kept), len(lost))
		}
		for _, it := range kept {
			if it.choice.r < it.choice.t {
				t.Fatal("kept below its own threshold")
			}
			total += genai.Threshold{T: it.choice.t, Known: true}.Weight()
		}
	}
	if mean := total / rounds; math.Abs(mean-n) > n*0.03 {
		t.Errorf("the kept stand for %.0f of %d on average", mean, n)
	}
}

// What is sent carries th, which our own reader finds, and why; a limit in spans a second holds.
func TestExporter(t *testing.T) {
	l := ledgers(t)["demo"]
	now := time.Unix(1, 0)
	var got receiver
	e := New(Settings{Sampling: Sampling{OneIn: 1}, Options: Options{IDs: true}, Send: got.send, Batch: 20, Now: func() time.Time { return now }})
	n := offer(e, l)
	e.Flush(t.Context())
	s := e.Stats()
	balanced(t, s)
	if n == 0 || int(s.Sent) != n || int(s.SentSpans) != len(got.spans) || s.Waiting != 0 {
		t.Errorf("%d offered: %+v", n, s)
	}
	for _, span := range got.spans {
		if th := genai.ThresholdOf(span.TraceState); !th.Known || th.T != 0 {
			t.Errorf("%s has tracestate %q", span.Name, span.TraceState)
		}
	}
	limited := receiver{}
	e = New(Settings{Sampling: Sampling{OneIn: 1}, Send: limited.send, SpansPerSecond: 30, Now: func() time.Time { return now }})
	offer(e, l)
	now = now.Add(2 * time.Second)
	e.Flush(t.Context())
	s = e.Stats()
	balanced(t, s)
	if len(limited.spans) > 60 || len(limited.spans) == 0 || s.Lost[RateLimited] == 0 {
		t.Errorf("%d spans in two seconds: %+v", len(limited.spans), s)
	}
	for _, span := range limited.spans {
		if th := genai.ThresholdOf(span.TraceState); !th.Known || th.T == 0 {
			t.Errorf("%s has tracestate %q", span.Name, span.TraceState)
		}
	}
}

// A receiver that fails costs what it was sent, and nothing else; a partial success costs the spans that it names.
func TestFailuresAreCounted(t *testing.T) {
	l := ledgers(t)["demo"]
	got := receiver{err: errors.New("no")}
	e := New(Settings{Sampling: Sampling{OneIn: 1}, Send: got.send})
	n := offer(e, l)
	e.Flush(t.Context())
	s := e.Stats()
	balanced(t, s)
	if int(s.Lost[NotDelivered]) != n || s.LastFailure == nil {
		t.Errorf("%+v", s)
	}
	got.err = errors.New("OTLP partial success: too old (3 spans rejected)")
	n = offer(e, l)
	e.Flush(t.Context())
	s = e.Stats()
	if s.LostSpans[Rejected] != 3 || int(s.Sent) != n {
		t.Errorf("%+v", s)
	}
}

// A receiver that hangs holds nobody up: the queue fills to its bound, the rest is counted, and the end of the process comes in time.
func TestReceiverThatHangs(t *testing.T) {
	l := ledgers(t)["demo"]
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p, err := OpenPlace(vfs.NewMemory(), "data", 1)
		if err != nil {
			t.Fatal(err)
		}
		hang := func(ctx context.Context, _ []*tracepb.ResourceSpans) error {
			<-ctx.Done()
			return ctx.Err()
		}
		e := New(Settings{Sampling: Sampling{OneIn: 1}, Send: hang, Queue: 100, Place: p})
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { e.Run(ctx) })
		for range 15 {
			offer(e, l)
			if w := e.Stats().Waiting; w > 100 {
				t.Fatalf("%d spans wait", w)
			}
			time.Sleep(time.Second / 3)
		}
		s := e.Stats()
		if s.Lost[QueueFull] == 0 || s.Sent != 0 {
			t.Errorf("%+v", s)
		}
		if took := time.Since(began); took != 15*(time.Second/3) { // of the fake clock: only the sleeps took time
			t.Errorf("offering took %s", took-5*time.Second)
		}
		stop()
		done.Wait()
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("stopped after %s", took)
		}
		balanced(t, e.Stats())
		for _, r := range l.Book.Requests {
			if a := l.Account(r); a.State == account.Finished && a.To <= p.Through() {
				t.Fatalf("the place is behind %s, which was not delivered", r.Name())
			}
		}
	})
}

// The place moves on when what was offered is dealt with, and survives a loss of power.
func TestPlace(t *testing.T) {
	disk := vfs.NewMemory()
	p, err := OpenPlace(disk, "data", 1000)
	if err != nil || p.Through() != 1000 {
		t.Fatal(p, err)
	}
	l := ledgers(t)["demo"]
	var got receiver
	e := New(Settings{Sampling: Sampling{OneIn: 1}, Send: got.send, Place: p})
	newest := int64(0)
	for _, r := range l.Book.Requests {
		newest = max(newest, l.Account(r).To)
	}
	offer(e, l)
	if again, _ := OpenPlace(disk, "data", 1000); again.Through() != 1000 {
		t.Errorf("the place is %d before anything was sent", again.Through())
	}
	e.Flush(t.Context())
	disk = disk.Crash(rand.New(rand.NewPCG(1, 1)))
	again, err := OpenPlace(disk, "data", 1000)
	if err != nil || again.Through() != newest {
		t.Errorf("the place is %v, want %d: %v", again, newest, err)
	}
	f, _ := disk.Create("data/export.json")
	f.Write([]byte("{"))
	if _, err := OpenPlace(disk, "data", 1); err == nil || !strings.Contains(err.Error(), "export.json") {
		t.Errorf("damaged: %v", err)
	}
}
