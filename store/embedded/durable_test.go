package embedded

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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/storetest"
)

var ctx = context.Background()

// childDir is set for the process that [TestKilled] starts and kills.
const childDir = "WHYLATE_STORE_CHILD_DIR"

// TestChild is not a test: it is what the killed process runs.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("run by TestKilled")
	}
	s, err := Open(dir, Options{SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		wg.Go(func() {
			for n := s.Kept(storetest.Notice(name, 1).Source); ; {
				batch := []store.Record{storetest.Notice(name, n+1), storetest.Notice(name, n+2)}
				if _, err := s.Append(ctx, batch); err != nil {
					say("failed %v", err)
					return
				}
				n += 2
				say("kept %s %d", name, n)
			}
		})
	}
	wg.Go(func() {
		b := storetest.Random(t, 1, 40)
		for n := 0; ; n++ {
			e := *b.Engines[0]
			e.ID.Incarnation = fmt.Sprintf("%d-%d", os.Getpid(), n)
			p := store.Cut(&e, nil, nil, 0, 40, storetest.Over(40))
			info, err := s.Seal(ctx, p)
			if err != nil {
				say("failed %v", err)
				return
			}
			say("sealed %s", info.ID)
			if n%4 == 3 { // two neighbours, to be merged
				for _, cut := range [][2]uint64{{0, 20}, {20, 40}} {
					e.ID.Incarnation = fmt.Sprintf("%d-%d-pair", os.Getpid(), n)
					if _, err := s.Seal(ctx, store.Cut(&e, nil, nil, cut[0], cut[1], storetest.Over(cut[1]))); err != nil {
						say("failed %v", err)
						return
					}
				}
				say("pair %s", e.ID.Incarnation)
				if _, err := s.Compact(ctx, 40, 2); err != nil {
					say("failed %v", err)
					return
				}
			}
		}
	})
	wg.Wait()
}

// TestKilled kills a process that appends and seals at fifty moments: nothing that it said it kept is lost, nothing is there twice.
func TestKilled(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 5
	}
	dir := filepath.Join(t.TempDir(), "data")
	rng := rand.New(rand.NewPCG(4, 2))
	kept := map[string]uint64{}
	var sealed, pairs []string
	for range kills {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestChild$")
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := 1 + rng.IntN(120)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f := strings.Fields(lines.Text())
			switch {
			case len(f) == 3 && f[0] == "kept":
				n, err := strconv.ParseUint(f[2], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				kept[f[1]] = n
			case len(f) == 2 && f[0] == "sealed":
				sealed = append(sealed, f[1])
			case len(f) == 2 && f[0] == "pair":
				pairs = append(pairs, f[1])
			default:
				t.Fatalf("the child says %q", lines.Text())
			}
			if left--; left == 0 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			} // what it said until it died counts too
		}
		_ = cmd.Wait()
		s, err := Open(dir, Options{SegmentBytes: 4 << 10})
		if err != nil {
			t.Fatal(err)
		}
		checkLog(t, s, kept)
		ps, err := s.Verify(ctx)
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		first := map[string]bool{}
		for _, p := range ps {
			there[p.ID] = true
			if first[fmt.Sprint(p.Engine.Incarnation, p.First)] {
				t.Fatalf("%+v is there twice", p)
			}
			first[fmt.Sprint(p.Engine.Incarnation, p.First)] = true
			if p.Damaged != "" {
				t.Fatalf("%s", p.Damaged)
			}
		}
		for _, id := range sealed {
			if !there[id] {
				t.Fatalf("period %s is lost", id)
			}
		}
		for _, incarnation := range pairs {
			id := ledger.EngineID{Deployment: "test", Replica: "test", Incarnation: incarnation}
			if got, err := s.Slice(ctx, id, 1, 40); err != nil || len(got.Engine.Iterations) != 40 {
				t.Fatalf("a merged pair: %v", err)
			}
		}
		s.Close()
	}
	t.Logf("%d kills, %v frames and %d periods acknowledged", kills, kept, len(sealed)+2*len(pairs))
}

// checkLog holds a log against what was acknowledged of sources that count their frames from 1: all of that is there, in order, once.
func checkLog(t testing.TB, s store.Store, kept map[string]uint64) {
	t.Helper()
	got, _ := storetest.Replayed(t, s, store.Position{})
	last := map[string]uint64{}
	for _, line := range got {
		var name string
		var n uint64
		if _, err := fmt.Sscanf(line, "%s %d", &name, &n); err != nil {
			if strings.HasPrefix(line, "log gap") {
				continue
			}
			t.Fatalf("%q: %v", line, err)
		}
		if n != last[name]+1 {
			t.Fatalf("frame %d of %s comes after %d", n, name, last[name])
		}
		last[name] = n
	}
	for name, n := range kept {
		if last[name] < n {
			t.Fatalf("frames %d to %d of %s were acknowledged and are lost", last[name]+1, n, name)
		}
		if k := s.Kept(storetest.Notice(name, 1).Source); k != last[name] {
			t.Fatalf("%s: kept up to %d, says %d", name, last[name], k)
		}
	}
}

// story is a life of a store, step by step; each step says what was acknowledged by it.
type story struct {
	t      *testing.T
	b      *ledger.Book
	kept   map[string]uint64
	sealed map[string]bool // "first-last"
	gone   bool            // a retention has begun
}

func newStory(t *testing.T, b *ledger.Book) *story {
	return &story{t: t, b: b, kept: map[string]uint64{}, sealed: map[string]bool{}}
}

// steps are what the store is asked to do. Each may be asked again after it failed.
func (k *story) steps() []func(s *Store) error {
	appendTo := func(name string) func(*Store) error {
		return func(s *Store) error {
			n := k.kept[name] // a sender sends again what was not acknowledged
			if _, err := s.Append(ctx, []store.Record{storetest.Notice(name, n+1), storetest.Notice(name, n+2), storetest.Notice(name, n+3)}); err != nil {
				return err
			}
			k.kept[name] = n + 3
			return nil
		}
	}
	seal := func(after, through uint64) func(*Store) error {
		return func(s *Store) error {
			_, err := s.Seal(ctx, store.Cut(k.b.Engines[0], k.b.Requests, nil, after, through, storetest.Over(through)))
			if err == nil {
				k.sealed[fmt.Sprintf("%d-%d", after+1, through)] = true
			}
			return err
		}
	}
	return []func(*Store) error{
		appendTo("a"), appendTo("b"), appendTo("a"), seal(0, 20), appendTo("a"), seal(20, 40), appendTo("b"),
		func(s *Store) error {
			_, err := s.Compact(ctx, 100, 2)
			if err == nil {
				k.sealed = map[string]bool{"1-40": true}
			}
			return err
		},
		appendTo("a"),
		func(s *Store) error {
			k.gone = true
			_, err := s.Retain(ctx, store.Policy{Detail: time.Hour}, time.Unix(0, k.b.Now).Add(2*time.Hour))
			return err
		},
		func(s *Store) error { return s.Forget(ctx, s.LogInfo().Last) },
		appendTo("b"),
	}
}

// check holds a store that was opened again against what was acknowledged.
func (k *story) check(s *Store) {
	k.t.Helper()
	// What was forgotten is not replayed; sequences go on all the same, and none comes twice.
	got, _ := storetest.Replayed(k.t, s, store.Position{})
	last := map[string]uint64{}
	for _, line := range got {
		var name string
		var n uint64
		if _, err := fmt.Sscanf(line, "%s %d", &name, &n); err != nil {
			continue
		}
		if last[name] != 0 && n != last[name]+1 {
			k.t.Fatalf("frame %d of %s comes after %d", n, name, last[name])
		}
		last[name] = n
	}
	for name, n := range k.kept {
		if have := s.Kept(storetest.Notice(name, 1).Source); have < n {
			k.t.Fatalf("%s was acknowledged up to %d, and is there up to %d", name, n, have)
		}
	}
	ps, err := s.Verify(ctx)
	if err != nil {
		k.t.Fatal(err)
	}
	var next uint64 = 1
	for _, p := range ps {
		if p.Damaged != "" {
			k.t.Fatalf("damaged: %s", p.Damaged)
		}
		if p.First != next {
			k.t.Fatalf("iterations %d to %d come after %d", p.First, p.Last, next-1)
		}
		next = p.Last + 1
	}
	var end uint64
	for span := range k.sealed {
		var a, b uint64
		if _, err := fmt.Sscanf(span, "%d-%d", &a, &b); err != nil {
			k.t.Fatal(err)
		}
		end = max(end, b)
	}
	if next <= end {
		k.t.Fatalf("sealed up to %d, there up to %d", end, next-1)
	}
	if end > 0 && !k.gone {
		if got, err := s.Slice(ctx, k.b.Engines[0].ID, 1, end); err != nil || uint64(len(got.Engine.Iterations)) != end {
			k.t.Fatalf("slice: %v", err)
		}
	}
	list, err := s.fs.ReadDir(s.sealed())
	if err != nil {
		k.t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name, ".") {
			k.t.Fatalf("%s is left lying about", e.Name)
		}
	}
}

func open(t testing.TB, f vfs.FS) *Store {
	t.Helper()
	s, err := Open("/x/data", Options{FS: f, SegmentBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// calls is how many calls to the file layer a whole story takes.
func calls(t *testing.T, b *ledger.Book) int64 {
	f := &vfs.Faulty{FS: vfs.NewMemory()}
	k := newStory(t, b)
	s := open(t, f)
	for _, step := range k.steps() {
		if err := step(s); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	k.check(open(t, f))
	return f.Calls()
}

var errPower = errors.New("the power is gone")

// sparse spaces out the moments at which something fails: 1 tries what the tests say. The race detector makes all of it fifteen times as slow.
var sparse int64 = 1

// TestPowerLoss takes the power away at moments throughout a store's life; what was not synced is there in parts or not at all.
func TestPowerLoss(t *testing.T) {
	b := storetest.Random(t, 1, 40)
	total := calls(t, b)
	rng := rand.New(rand.NewPCG(1, 1))
	for at := 1 + rng.Int64N(4); at <= total; at += sparse * (1 + rng.Int64N(7)) {
		memory := vfs.NewMemory()
		f := &vfs.Faulty{FS: memory, Fault: func(op vfs.Op) error {
			if op.N >= at {
				return errPower
			}
			return nil
		}}
		k := newStory(t, b)
		if s, err := Open("/x/data", Options{FS: f, SegmentBytes: 300}); err == nil {
			for _, step := range k.steps() {
				if step(s) != nil {
					break
				}
			}
			s.Close()
		}
		for range 3 { // the same moment, other remains
			s := open(t, memory.Crash(rng))
			k.check(s)
			if _, err := s.Append(ctx, []store.Record{storetest.Notice("z", 1)}); err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
	}
}

// TestDiskFaults fails calls throughout a store's life, one once, and once for good until the end of the step, with a full and with a broken
// disk: the error says so, what was acknowledged stays, and the step succeeds when the disk is well again.
func TestDiskFaults(t *testing.T) {
	b := storetest.Random(t, 1, 40)
	total := calls(t, b)
	rng := rand.New(rand.NewPCG(2, 2))
	for _, disk := range []struct {
		err  error
		want error
	}{{syscall.ENOSPC, store.ErrFull}, {syscall.EIO, store.ErrCorrupt}} {
		for _, lasting := range []bool{false, true} {
			for at := 8 + rng.Int64N(6); at <= total; at += sparse * (1 + rng.Int64N(12)) {
				f := &vfs.Faulty{FS: vfs.NewMemory()}
				k := newStory(t, b)
				s := open(t, f)
				f.Fault = func(op vfs.Op) error {
					if op.N == at || lasting && op.N > at {
						return disk.err
					}
					return nil
				}
				for i, step := range k.steps() {
					err := step(s)
					if err == nil {
						continue
					}
					if !errors.Is(err, disk.want) || !errors.Is(err, disk.err) {
						t.Fatalf("call %d, step %d: %v", at, i, err)
					}
					f.Fault = nil
					if _, err := s.Verify(ctx); err != nil { // periods that could not be read for a moment are well again
						t.Fatal(err)
					}
					if err := step(s); err != nil {
						t.Fatalf("call %d, step %d, when the disk is well again: %v", at, i, err)
					}
				}
				f.Fault = nil
				s.Close()
				s = open(t, f)
				k.check(s)
				s.Close()
			}
		}
	}
}

// TestLogCutEverywhere cuts a log after every byte: the whole blocks before stay, the rest is told as a gap, and appending goes on.
func TestLogCutEverywhere(t *testing.T) {
	memory := vfs.NewMemory()
	s, err := Open("/x/data", Options{FS: memory})
	if err != nil {
		t.Fatal(err)
	}
	ends := map[int64]uint64{}
	for n := uint64(1); n <= 5; n++ {
		at, err := s.Append(ctx, []store.Record{storetest.Notice("a", n)})
		if err != nil {
			t.Fatal(err)
		}
		ends[at.Offset] = n
	}
	path := s.log.path(1)
	s.Close()
	whole, err := vfs.ReadFile(memory, path)
	if err != nil {
		t.Fatal(err)
	}
	sorted := slices.Sorted(maps.Keys(ends))
	for cut := range len(whole) + 1 {
		m := vfs.NewMemory()
		if err := m.Mkdir("/x/data/log"); err != nil {
			t.Fatal(err)
		}
		out, err := m.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(whole[:cut]); err != nil {
			t.Fatal(err)
		}
		var want uint64
		rest := int64(cut)
		if cut >= captureHeader {
			rest -= captureHeader
		}
		for _, end := range sorted {
			if end <= int64(cut) {
				want, rest = ends[end], int64(cut)-end
			}
		}
		s, err := Open("/x/data", Options{FS: m})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		got, _ := storetest.Replayed(t, s, store.Position{})
		told := len(got) > 0 && strings.HasPrefix(got[len(got)-1], "log gap")
		if told {
			got = got[:len(got)-1]
		}
		if uint64(len(got)) != want || told != (rest > 0) || s.LogInfo().Cut != rest {
			t.Fatalf("cut at %d: want %d frames and %d bytes cut, got %v, %d, told %v", cut, want, rest, got, s.LogInfo().Cut, told)
		}
		if _, err := s.Append(ctx, []store.Record{storetest.Notice("a", want), storetest.Notice("a", want+1)}); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = open(t, m)
		again, _ := storetest.Replayed(t, s, store.Position{})
		again = slices.DeleteFunc(again, func(l string) bool { return strings.HasPrefix(l, "log gap") })
		if uint64(len(again)) != want+1 {
			t.Fatalf("cut at %d, then appended: %v", cut, again)
		}
		s.Close()
	}
}

// TestLogDamageInTheMiddle spoils a byte of the first block: what comes after is still there, and the damage is told.
func TestLogDamageInTheMiddle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= 3; n++ {
		if _, err := s.Append(ctx, []store.Record{storetest.Notice("a", n)}); err != nil {
			t.Fatal(err)
		}
	}
	path := s.log.path(1)
	s.Close()
	spoil(t, path, captureHeader+20)
	s, err = Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, _ := storetest.Replayed(t, s, store.Position{})
	if len(got) != 3 || !strings.Contains(got[0], "damaged") || got[1] != "a 2" || got[2] != "a 3" {
		t.Errorf("%v", got)
	}
}

func spoil(t testing.TB, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x55
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGroupCommit holds one sync up until many callers wait: they all share the next one.
func TestGroupCommit(t *testing.T) {
	const callers = 40
	syncs := 0
	begun, gate := make(chan struct{}), make(chan struct{})
	f := &vfs.Faulty{FS: vfs.NewMemory()}
	s := open(t, f)
	defer s.Close()
	f.Fault = func(op vfs.Op) error {
		if op.Kind == "sync" {
			if syncs++; syncs == 1 {
				close(begun)
				<-gate
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	call := func(k int) {
		wg.Go(func() {
			if _, err := s.Append(ctx, []store.Record{storetest.Notice(fmt.Sprintf("s%d", k), 1)}); err != nil {
				t.Error(err)
			}
		})
	}
	call(0)
	<-begun
	for k := 1; k < callers; k++ {
		call(k)
	}
	for n := 0; n < callers-1; runtime.Gosched() {
		s.log.mu.Lock()
		n = len(s.log.pending)
		s.log.mu.Unlock()
	}
	close(gate)
	wg.Wait()
	if syncs != 2 {
		t.Errorf("%d syncs for %d callers", syncs, callers)
	}
}

// TestDamagedPeriodIsIsolated spoils each file of a period: it is named, and the rest answers.
func TestDamagedPeriodIsIsolated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := storetest.Random(t, 2, 300)
	m, sealed := storetest.SealAll(t, s, b, 100, 200, 300)
	ps, err := s.Periods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	bad := ps[1]
	refs := map[*ledger.Request]store.RequestRef{}
	var rest []*ledger.Request
	for _, r := range sealed {
		refs[r] = storetest.Ref(t, s, r)
		if last := r.Sequences[0].Leave; last < 100 && last > 0 {
			rest = append(rest, r)
		}
	}
	s.Close()
	for name, size := range bad.Bytes {
		if bad.Rows[name] == 0 {
			continue
		}
		path := filepath.Join(dir, sealedDir, bad.ID, name+".parquet")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{size / 3, size - 5} {
			spoil(t, path, at)
			s, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			storetest.CheckAccounts(t, s, m, rest[:3], b.Now)
			for _, r := range sealed { // never a wrong answer, at most none
				got, err := s.Load(ctx, refs[r])
				if err != nil && !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("%s spoilt at %d: %v", name, at, err)
				}
				if err == nil && len(got.Missing) == 0 && got.Request.Name() != r.Name() {
					t.Fatalf("%s spoilt at %d: asked %s, got %s", name, at, r.Name(), got.Request.Name())
				}
				if r == sealed[5] {
					break
				}
			}
			now, err := s.Verify(ctx)
			if err != nil || now[0].Damaged != "" || now[2].Damaged != "" || !strings.Contains(now[1].Damaged, name+".parquet") {
				t.Fatalf("%s spoilt at %d: %+v, %v", name, at, now, err)
			}
			if _, err := s.List(ctx, store.Filter{}); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
			if now, err := s.Verify(ctx); err != nil || now[1].Damaged != "" {
				t.Fatalf("restored: %+v, %v", now, err)
			}
			s.Close()
		}
	}
	spoil(t, filepath.Join(dir, sealedDir, bad.ID, manifestFile), 100)
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now, err := s.Periods(ctx)
	if err != nil || len(now) != 3 {
		t.Fatalf("%+v, %v", now, err)
	}
	named := 0
	for _, p := range now {
		if p.ID == bad.ID && strings.Contains(p.Damaged, "manifest.json") {
			named++
		}
	}
	if named != 1 {
		t.Errorf("%+v", now)
	}
}

// TestNewerIsRefused opens stores that a newer whylate wrote.
func TestNewerIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	storetest.SealAll(t, s, storetest.Random(t, 1, 50), 50)
	if _, err := s.Append(ctx, []store.Record{storetest.Notice("a", 1)}); err != nil {
		t.Fatal(err)
	}
	ps, err := s.Periods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	logFile := s.log.path(1)
	s.Close()

	path := filepath.Join(dir, sealedDir, ps[0].ID, manifestFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"format": 7, "writer": "whylate 9.0", "news": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, Options{})
	if !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "format 7") || !strings.Contains(err.Error(), fmt.Sprintf("up to %d", format)) || !strings.Contains(err.Error(), "whylate 9.0") {
		t.Errorf("a newer period: %v", err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(logFile)
	if err != nil {
		t.Fatal(err)
	}
	b[8] = 2
	if err := os.WriteFile(logFile, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(dir, Options{}); !errors.Is(err, store.ErrNewer) {
		t.Errorf("a newer log: %v", err)
	}
	b[8] = 1
	if err := os.WriteFile(logFile, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, Options{})
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d ", os.Getpid())) {
		t.Errorf("opened twice: %v", err)
	}
	s.Close()
}
