package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
	"github.com/whylate/whylate/store/storetest"
)

// spanServer is a server that does nothing by itself, on a disk; its time is *now.
func spanServer(disk vfs.FS, now *time.Time, set Settings) (*Server, func() error, error) {
	st, err := embedded.Open("/data", embedded.Options{FS: disk, SegmentBytes: 2 << 10})
	if err != nil {
		return nil, nil, err
	}
	set.Now = func() time.Time { return *now }
	s := New(st, set)
	ctx := context.Background()
	if err := errors.Join(s.recover(ctx), s.recoverSpans(ctx)); err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	s.ready.Store(true)
	return s, st.Close, nil
}

func mustSpanServer(t testing.TB, disk vfs.FS, now *time.Time, set Settings) (*Server, func()) {
	t.Helper()
	s, stop, err := spanServer(disk, now, set)
	if err != nil {
		t.Fatal(err)
	}
	return s, func() {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func text(t testing.TB, c *genai.Call) string {
	t.Helper()
	var b strings.Builder
	if err := c.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// mapped is the text of each call that spans tell of, sorted.
func mapped(t testing.TB, spans []genai.Span) (out []string) {
	t.Helper()
	for _, c := range genai.Calls(spans).Calls {
		out = append(out, text(t, c))
	}
	slices.Sort(out)
	return out
}

// sealedCalls is the text of each call that is listed as sealed, sorted.
func sealedCalls(t testing.TB, s *Server) (out []string) {
	t.Helper()
	ctx := context.Background()
	for page := ""; ; {
		rows, err := s.store.List(ctx, store.Filter{Limit: 500, Page: page})
		if err != nil || len(rows.Missing) > 0 {
			t.Fatal(rows.Missing, err)
		}
		for _, r := range rows.Rows {
			got, err := s.store.Load(ctx, r.Ref)
			if err != nil || len(got.Calls) != 1 {
				t.Fatalf("%+v: %d calls, %v", r.Ref, len(got.Calls), err)
			}
			out = append(out, text(t, got.Calls[0]))
		}
		if page = rows.Next; page == "" {
			slices.Sort(out)
			return out
		}
	}
}

// stray are spans of an engine that lost its caller's context: each in a trace of its own, and its caller's in another.
func stray(first, n int) (out []genai.Span) {
	for i, s := range storetest.Spans(first, n) {
		if s.Name == "llm_request" && i%2 == 0 {
			s.Parent = genai.SpanID{}
			s.Trace[0] ^= 0xff
		} else if id := strings.TrimPrefix(s.Text(genai.ResponseID), "resp-"); id != "" {
			_ = s.SetText(genai.Named("gen_ai.request.id"), "req-"+id)
		}
		out = append(out, s)
	}
	return out
}

// The calls that are kept of spans in any order, cut in any way and sent again and again, are those of all of them at once.
func TestKeptCallsAreThoseOfAllSpansAtOnce(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7))
		spans := append(storetest.Spans(0, 60), stray(1000, 20)...)
		want := mapped(t, spans)
		rng.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		now := time.Unix(1_800_000_100, 0)
		disk := vfs.NewMemory()
		s, stop := mustSpanServer(t, disk, &now, Settings{})
		for rest := spans; len(rest) > 0; {
			n := min(1+rng.IntN(30), len(rest))
			if err := s.AcceptSpans(ctx, rest[:n]); err != nil {
				t.Fatal(err)
			}
			if again := rng.IntN(len(spans)); rng.IntN(3) == 0 { // a resend of some, which may be new to the server too
				if err := s.AcceptSpans(ctx, slices.Clone(spans[again:min(again+9, len(spans))])); err != nil {
					t.Fatal(err)
				}
			}
			rest = rest[n:]
			now = now.Add(time.Duration(rng.IntN(200)) * time.Millisecond)
			if rng.IntN(4) == 0 {
				s.sealSpans(ctx) // nothing is quiet yet
			}
			if rng.IntN(6) == 0 { // and a restart
				stop()
				s, stop = mustSpanServer(t, disk, &now, Settings{})
			}
		}
		now = now.Add(time.Minute)
		s.sealSpans(ctx)
		if diff := cmp.Diff(want, sealedCalls(t, s)); diff != "" {
			t.Fatalf("seed %d, -at once +kept:\n%s", seed, diff)
		}
		if n := s.spans.traces.size(); n != 0 {
			t.Errorf("%d spans are left in memory", n)
		}
		if err := s.AcceptSpans(ctx, spans); err != nil { // all of it once more
			t.Fatal(err)
		}
		stop()
		s, stop = mustSpanServer(t, disk, &now, Settings{})
		now = now.Add(time.Hour)
		s.sealSpans(ctx)
		if diff := cmp.Diff(want, sealedCalls(t, s)); diff != "" {
			t.Fatalf("seed %d, sent again after a restart, -at once +kept:\n%s", seed, diff)
		}
		stop()
	}
}

// Each trace's calls are sealed once, whenever it is quiet; what is in memory is bounded, and the log is let go.
func TestSpansAreLetGo(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	disk := vfs.NewMemory()
	set := Settings{HotSpans: 300}
	s, stop := mustSpanServer(t, disk, &now, set)
	var all []genai.Span
	most := 0
	for k := range 60 {
		spans := storetest.Spans(k*20, 20)
		all = append(all, spans...)
		if err := s.AcceptSpans(ctx, spans); err != nil {
			t.Fatal(err)
		}
		most = max(most, s.spans.traces.size())
		if s.spans.traces.size() > set.HotSpans {
			s.sealSpans(ctx)
		}
		now = now.Add(100 * time.Millisecond)
	}
	if most > 2*set.HotSpans {
		t.Errorf("%d spans in memory", most)
	}
	if log := s.spans.log.LogInfo(); log.First.Segment == 1 || log.Files > 12 {
		t.Errorf("the log is not let go: %+v", log)
	}
	now = now.Add(time.Minute)
	s.sealSpans(ctx)
	if diff := cmp.Diff(len(mapped(t, all)), len(sealedCalls(t, s))); diff != "" {
		t.Errorf("calls, -at once +kept:\n%s", diff)
	}
	stop()
}

// More than may wait is refused so that it is sent again, and nothing that was acknowledged is touched by it.
func TestSpansAreTurnedAway(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	s, stop := mustSpanServer(t, vfs.NewMemory(), &now, Settings{HotSpans: 50})
	defer stop()
	var err error
	k := 0
	for ; err == nil && k < 20; k++ {
		err = s.AcceptSpans(ctx, storetest.Spans(k*10, 10))
	}
	if !errors.Is(err, stream.ErrOverloaded) || s.spans.refused.Load() == 0 {
		t.Fatalf("after %d: %v", k, err)
	}
	s.sealSpans(ctx)
	if err := s.AcceptSpans(ctx, storetest.Spans((k-1)*10, 10)); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
}

// Spans that come after their call was sealed amend it and are counted; a later call of the same trace is a call.
func TestLateSpans(t *testing.T) {
	ctx := context.Background()
	now := time.Unix(1_800_000_100, 0)
	s, stop := mustSpanServer(t, vfs.NewMemory(), &now, Settings{})
	defer stop()
	var early, late []genai.Span
	for _, sp := range storetest.Spans(0, 5) {
		if sp.Name == "llm_request" {
			late = append(late, sp)
		} else {
			early = append(early, sp)
		}
	}
	other := storetest.Spans(50, 1)
	for i := range other {
		other[i].Trace = early[0].Trace
		other[i].ID[1]++
		if other[i].Parent != (genai.SpanID{}) {
			other[i].Parent[1]++
		}
	}
	for _, list := range [][]genai.Span{early, append(late, other...)} {
		if err := s.AcceptSpans(ctx, list); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		s.sealSpans(ctx)
	}
	if n := len(sealedCalls(t, s)); n != 6 {
		t.Errorf("%d calls are listed, 6 were made", n)
	}
	if got := storetest.Told(t, s.store, late[1].Trace.String()); len(got) != 2 {
		t.Errorf("the call and what came late of it: %d", len(got))
	}
	if a, l := s.spans.amended.Load(), s.spans.traces.late; a != 5 || l != uint64(len(late)+len(other)) {
		t.Errorf("%d amendments, %d late spans", a, l)
	}
}

// errSpanPower is a disk whose power is gone.
var errSpanPower = errors.New("the power is gone")

// spanStory sends and seals spans until something fails, and returns which calls were acknowledged.
func spanStory(s *Server, now *time.Time) (acknowledged map[int]bool) {
	ctx := context.Background()
	acknowledged = map[int]bool{}
	for k := range 24 {
		if s.AcceptSpans(ctx, storetest.Spans(k*3, 3)) != nil {
			return acknowledged
		}
		for i := range 3 {
			acknowledged[k*3+i] = true
		}
		if *now = now.Add(11 * time.Second); k%4 == 3 {
			s.sealSpans(ctx)
		}
		if k%10 == 9 {
			if _, err := s.store.Compact(ctx, 10_000, 2); err != nil {
				return acknowledged
			}
		}
	}
	return acknowledged
}

// holdsOnce seals everything and holds what is there against what was acknowledged.
func holdsOnce(t *testing.T, s *Server, now *time.Time, acknowledged map[int]bool) {
	t.Helper()
	*now = now.Add(time.Hour)
	s.sealSpans(context.Background())
	rows, err := s.store.List(context.Background(), store.Filter{Limit: 10_000})
	if err != nil || len(rows.Missing) > 0 {
		t.Fatal(rows.Missing, err)
	}
	there := map[string]int{}
	for _, r := range rows.Rows {
		there[r.Row.TraceID]++
	}
	for trace, n := range there {
		if n != 1 {
			t.Fatalf("trace %s is there %d times", trace, n)
		}
	}
	for k := range acknowledged {
		if id := storetest.Spans(k, 1)[0].Trace.String(); there[id] != 1 {
			t.Fatalf("call %d of %d was acknowledged and is lost", k, len(acknowledged))
		}
	}
}

// TestSpansSurvivePowerLoss takes the power away at moments throughout: what was acknowledged is there, once.
func TestSpansSurvivePowerLoss(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	whole := &vfs.Faulty{FS: vfs.NewMemory()}
	now := begin
	s, stop := mustSpanServer(t, whole, &now, Settings{})
	if n := len(spanStory(s, &now)); n != 72 {
		t.Fatalf("%d calls", n)
	}
	stop()
	total := whole.Calls()
	rng := rand.New(rand.NewPCG(3, 1))
	tried, apart := 0, total/60
	if testing.Short() {
		apart = total / 12
	}
	for at := 1 + rng.Int64N(4); at <= total; at += 1 + rng.Int64N(apart) {
		memory := vfs.NewMemory()
		f := &vfs.Faulty{FS: memory, Fault: func(op vfs.Op) error {
			if op.N >= at {
				return errSpanPower
			}
			return nil
		}}
		now := begin
		acknowledged := map[int]bool{}
		if s, stop, err := spanServer(f, &now, Settings{}); err == nil {
			acknowledged = spanStory(s, &now)
			_ = stop()
		}
		for range 2 { // the same moment, other remains
			s, stop := mustSpanServer(t, memory.Crash(rng), &now, Settings{})
			holdsOnce(t, s, &now, acknowledged)
			stop()
		}
		tried++
	}
	t.Logf("%d moments of %d calls to the disk", tried, total)
}

// TestSpansSurviveAFullDisk fails calls once or for a while: what is refused for want of room is asked for again, and nothing is lost or doubled.
func TestSpansSurviveAFullDisk(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	rng := rand.New(rand.NewPCG(5, 1))
	for _, lasting := range []int64{1, 12} {
		for at := int64(30); at < 900; at += 1 + rng.Int64N(60) {
			f := &vfs.Faulty{FS: vfs.NewMemory()}
			now := begin
			s, stop := mustSpanServer(t, f, &now, Settings{})
			f.Fault = func(op vfs.Op) error {
				if op.N >= at && op.N < at+lasting {
					return syscall.ENOSPC
				}
				return nil
			}
			acknowledged := map[int]bool{}
			for k := range 20 {
				err := s.AcceptSpans(context.Background(), storetest.Spans(k*3, 3))
				for try := 0; errors.Is(err, stream.ErrOverloaded) && try < 20; try++ {
					err = s.AcceptSpans(context.Background(), storetest.Spans(k*3, 3))
				}
				if err != nil {
					t.Fatalf("call %d: %v", at, err)
				}
				acknowledged[k*3], acknowledged[k*3+1], acknowledged[k*3+2] = true, true, true
				if now = now.Add(11 * time.Second); k%4 == 3 {
					s.sealSpans(context.Background())
				}
			}
			f.Fault = nil
			stop()
			s, stop = mustSpanServer(t, f, &now, Settings{})
			holdsOnce(t, s, &now, acknowledged)
			stop()
		}
	}
}

const spanChildDir = "WHYLATE_SPAN_CHILD_DIR"

// TestSpanChild is not a test: it is what the killed process runs.
func TestSpanChild(t *testing.T) {
	dir := os.Getenv(spanChildDir)
	if dir == "" {
		t.Skip("run by TestSpansSurviveKills")
	}
	st, err := embedded.Open(dir, embedded.Options{SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s := New(st, Settings{SpanQuiet: 20 * time.Millisecond, SealEvery: 30 * time.Millisecond})
	go func() {
		if err := s.Run(context.Background()); err != nil {
			panic(err)
		}
	}()
	for s.Ready(context.Background()) != nil {
		time.Sleep(time.Millisecond)
	}
	var first int
	if _, err := fmt.Sscan(os.Getenv(spanChildDir+"_FIRST"), &first); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	next := func() (k int) {
		mu.Lock()
		defer mu.Unlock()
		first++
		return first - 1
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				k := next()
				spans := storetest.Spans(k*3, 3)
				for _, half := range [][]genai.Span{spans[:4], spans[2:]} { // a trace in two exports, some of it twice
					if err := s.AcceptSpans(context.Background(), half); err != nil {
						panic(err)
					}
				}
				mu.Lock()
				fmt.Printf("kept %d\n", k)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// TestSpansSurviveKills kills a process that takes in and seals spans at many moments: all that was acknowledged is there, once.
func TestSpansSurviveKills(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 3
	}
	dir := filepath.Join(t.TempDir(), "data")
	rng := rand.New(rand.NewPCG(4, 3))
	acknowledged := map[int]bool{}
	for n := range kills {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSpanChild$")
		cmd.Env = append(os.Environ(), spanChildDir+"="+dir, fmt.Sprintf("%s_FIRST=%d", spanChildDir, n*1000))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 1 + rng.IntN(60)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var k int
			if _, err := fmt.Sscanf(lines.Text(), "kept %d", &k); err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			for i := range 3 {
				acknowledged[k*3+i] = true
			}
			if left--; left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
	}
	st, err := embedded.Open(dir, embedded.Options{SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	now := time.Now()
	s := New(st, Settings{Now: func() time.Time { return now }})
	ctx := context.Background()
	if err := errors.Join(s.recover(ctx), s.recoverSpans(ctx)); err != nil {
		t.Fatal(err)
	}
	s.ready.Store(true)
	holdsOnceOrAmended(t, s, &now, acknowledged)
	t.Logf("%d kills, %d calls acknowledged", kills, len(acknowledged))
}

// holdsOnceOrAmended is holdsOnce where a call's spans may have come so far apart that a part of it was sealed before.
func holdsOnceOrAmended(t *testing.T, s *Server, now *time.Time, acknowledged map[int]bool) {
	t.Helper()
	*now = now.Add(time.Hour)
	s.sealSpans(context.Background())
	spans := map[string]map[string]int{}
	for _, k := range slices.Sorted(maps.Keys(acknowledged)) {
		want := storetest.Spans(k, 1)
		id := want[0].Trace.String()
		refs, err := s.store.Find(context.Background(), id, 10)
		if err != nil {
			t.Fatal(err)
		}
		spans[id] = map[string]int{}
		for _, ref := range refs {
			got, err := s.store.Load(context.Background(), ref)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range got.Calls {
				for _, l := range c.Layers {
					spans[id][l.Span.ID.String()]++
				}
			}
		}
		for _, sp := range want {
			if n := spans[id][sp.ID.String()]; n > 1 || n == 0 && sp.Name == "llm_request" {
				t.Fatalf("span %s (%s) of call %d is there %d times", sp.ID, sp.Name, k, n)
			}
		}
	}
}

// A file of traces is imported like a capture; once more it changes nothing, and what is no trace is refused by name.
func TestImportTraces(t *testing.T) {
	ctx := context.Background()
	paths, err := filepath.Glob("../testdata/cases/*.otlp.json*")
	if err != nil || len(paths) == 0 {
		t.Fatal("no traces to import", err)
	}
	now := time.Unix(1_900_000_000, 0)
	s, stop := mustSpanServer(t, vfs.NewMemory(), &now, Settings{})
	defer stop()
	for _, path := range paths {
		for again := range 2 {
			in, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Import(ctx, api.ImportQuery{Name: path}, in)
			in.Close()
			if err != nil || r.Spans == 0 || r.New+r.Duplicate != r.Spans || again == 1 && r.New != 0 {
				t.Errorf("%s: %+v, %v", path, r, err)
			}
		}
	}
	var bad *api.InvalidArgument
	if _, err := s.Import(ctx, api.ImportQuery{Name: "x"}, strings.NewReader("{\"x\": [")); !errors.As(err, &bad) {
		t.Errorf("no traces: %v", err)
	}
}
