package apptest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/wire"
)

// message is one message of docs/formats/agent.md §2, of a kind, with a number of a source and of data. length is what it says of its payload;
// -1 is the truth.
func message(kind byte, source uint16, number uint64, length int, payload []byte) []byte {
	b := make([]byte, 32, 32+len(payload))
	if length < 0 {
		length = len(payload)
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(length))
	copy(b[8:], "WM")
	b[10] = kind
	binary.LittleEndian.PutUint16(b[12:], source)
	binary.LittleEndian.PutUint64(b[16:], number)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

// Kinds of messages that the tests send.
const (
	kindHello  = 1
	kindOpen   = 2
	kindFrames = 3
)

func asJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hello is what a sender says first, when its clock shows this time.
func hello(t testing.TB, token string, clock time.Time) []byte {
	b := append([]byte("WLSTRM\r\n"), 1, 0, 0, 0, 0, 0, 0, 0)
	return append(b, message(kindHello, 0, 0, -1, asJSON(t, map[string]any{"token": token, "agent": map[string]any{"host": "hostile", "boot": "b", "pid": 1},
		"clock": []int64{1, clock.UnixNano(), 2}}))...)
}

// reach connects to where a server takes in agents, as soon as it does.
func reach(t testing.TB, p *process) (c net.Conn) {
	t.Helper()
	await(t, "a connection", func() bool {
		p.alive()
		var err error
		c, err = net.Dial("unix", p.socket)
		return err == nil
	})
	return c
}

// say gives bytes to a server as all that a connection says, and returns what it answered until it hung up. A sender that stays says nothing
// more and waits to be let go.
func say(t testing.TB, p *process, stays bool, said []byte) []byte {
	t.Helper()
	c := reach(t, p)
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(said); err != nil && !stays {
		t.Logf("the server hung up early: %v", err)
	}
	if !stays {
		c.(*net.UnixConn).CloseWrite()
	}
	answer, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("the server does not hang up: %v", err)
	}
	return answer
}

// refusedFor is how often the overview says that senders were refused for a reason.
func refusedFor(t testing.TB, srv api.Service, code stream.Code) (n uint64) {
	t.Helper()
	for _, f := range overview(t, srv).Faults {
		if f.What == "taking in senders ("+string(code)+")" {
			if f.Last == "" || f.At == 0 {
				t.Errorf("%+v", f)
			}
			n = f.Count
		}
	}
	return n
}

// TestHostileSenders lets senders of all kinds loose on a running server while a good one goes on: each is refused by its name, counted, and told
// by doctor with a remedy; nothing of the good one's is lost.
func TestHostileSenders(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, dir, append([]string{"--listen-agents-tokens", tokens}, often...)...)
	c := p.client()
	now := time.Now()
	good := randomFeed(t, "good", 41, 200, now.Add(-time.Hour))
	s := newSender(t, 3, good)
	s.token = "right"
	if !s.connect(p) {
		t.Fatal("no connection")
	}
	defer s.hangUp()
	step := func() {
		t.Helper()
		for acked := s.acked; s.acked == acked && s.left() > 0; s.pause() {
			if !s.hear() {
				t.Fatal("the good sender was let go")
			}
			s.send(1)
		}
	}
	begun := func(b ...[]byte) []byte {
		open := message(kindOpen, 1, 0, -1, asJSON(t, wire.Source{Name: "bad", Opened: now.UnixNano()}))
		return slices.Concat(append([][]byte{hello(t, "right", now), open}, b...)...)
	}
	frame := good.frames[0]
	spoilt := bytes.Clone(frame)
	spoilt[len(spoilt)-1] ^= 1
	for _, tt := range []struct {
		name  string
		said  []byte
		stays bool
		code  stream.Code
	}{
		{"no token", hello(t, "", now), true, stream.CodeToken},
		{"a wrong token", hello(t, "wrong", now), true, stream.CodeToken},
		{"another protocol", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), true, stream.CodeGarbage},
		{"a clock that is days ahead", hello(t, "right", now.Add(72*time.Hour)), true, stream.CodeClock},
		{"a hello of 4 GiB", append(hello(t, "right", now)[:16], message(kindHello, 0, 0, 1<<32-1, nil)...), true, stream.CodeLength},
		{"a message of 4 GiB", begun(message(kindFrames, 1, 1, 1<<32-1, nil)), true, stream.CodeLength},
		{"a message longer than a frame may be", begun(message(kindFrames, 1, 1, -1, make([]byte, stream.MaxRaw+1))), true, stream.CodeLength},
		{"a length that never comes", begun(message(kindFrames, 1, 1, 1000, frame)), false, stream.CodeCut},
		{"a length that hides the next message", begun(message(kindFrames, 1, 1, 8, frame)), true, stream.CodeDamaged},
		{"a frame that is not whole", begun(message(kindFrames, 1, 1, -1, frame[:24])), true, stream.CodeDamaged},
		{"a spoilt frame", begun(message(kindFrames, 1, 1, -1, spoilt)), true, stream.CodeDamaged},
		{"data of a source that is not open", slices.Concat(hello(t, "right", now), message(kindFrames, 1, 1, -1, frame)), true, stream.CodeProtocol},
		{"a source that was opened in days", slices.Concat(hello(t, "right", now), message(kindOpen, 1, 0, -1, asJSON(t, wire.Source{Name: "later", Opened: now.Add(72 * time.Hour).UnixNano()}))), false, stream.CodeClock},
	} {
		before := refusedFor(t, c, tt.code)
		answer := say(t, p, tt.stays, tt.said)
		if !bytes.Contains(answer, []byte(`"code":"`+string(tt.code)+`"`)) && tt.code != stream.CodeCut {
			t.Errorf("%s: answered %q, want %s", tt.name, answer, tt.code)
		}
		if n := refusedFor(t, c, tt.code); n != before+1 {
			t.Errorf("%s: %d refusals for %s, before %d", tt.name, n, tt.code, before)
		}
		step()
	}
	s.hangUp()
	s.all(p)
	settle(t, c, fromFile(t, good), good)
	sameAnswers(t, fromFile(t, good), c, good, true)
	for _, src := range overview(t, c).Sources {
		if src.Name == "bad" && src.Frames > 0 {
			t.Errorf("%d frames of a hostile sender were taken", src.Frames)
		}
	}

	// Doctor says each of them, and what to change.
	var out bytes.Buffer
	cmd := command(t, "doctor", "--server", c.Address(), "--ring-dir", t.TempDir())
	cmd.Stdout = &out
	if err := cmd.Run(); err == nil {
		t.Error("doctor finds all well")
	}
	for _, code := range []stream.Code{stream.CodeToken, stream.CodeGarbage, stream.CodeClock, stream.CodeLength, stream.CodeCut, stream.CodeDamaged, stream.CodeProtocol} {
		_, after, found := strings.Cut(out.String(), "taking in senders ("+string(code)+") failed ")
		_, remedy, _ := strings.Cut(after, "\n")
		if !found || !strings.HasPrefix(strings.TrimSpace(remedy), "change: ") {
			t.Errorf("doctor says nothing of %s:\n%s", code, out.String())
		}
	}
}

// TestSlowSenderHoldsNobodyUp lets a stranger say nothing and a known sender stop inside a message, for as long as the server has patience
// with them: meanwhile others are taken in and answered.
func TestSlowSenderHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, dir)
	c := p.client()
	now := time.Now()
	slow := func(said []byte) net.Conn {
		conn := reach(t, p)
		if _, err := conn.Write(said); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	stranger := slow([]byte("WLST"))
	defer stranger.Close()
	known := slow(slices.Concat(hello(t, "", now), message(kindOpen, 1, 0, -1, asJSON(t, wire.Source{Name: "slow"})), message(kindFrames, 1, 1, 1<<20, []byte("so it begins"))))
	defer known.Close()
	good := randomFeed(t, "good", 42, 100, now.Add(-time.Hour))
	newSender(t, 4, good).all(p)
	settle(t, c, fromFile(t, good), good)
	sameAnswers(t, fromFile(t, good), c, good, true)
	stranger.SetReadDeadline(time.Now().Add(patience))
	if b, err := io.ReadAll(stranger); err != nil || !bytes.Contains(b, []byte(`"code":"slow"`)) {
		t.Errorf("the stranger was told %q, %v", b, err)
	}
	if n := refusedFor(t, c, stream.CodeSlow); n != 1 {
		t.Errorf("%d slow senders were counted", n)
	}
}

// TestStreamCutAtEveryByte cuts what one sender says after every byte, on a running server, one connection after the other: only whole messages
// are taken, each frame once, and in the end a sender that goes on behind what is durable completes the run.
func TestStreamCutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, dir)
	c := p.client()
	f := randomFeed(t, "cut", 43, 60, time.Now().Add(-time.Hour))
	said := slices.Concat(hello(t, "", time.Now()), message(kindOpen, 1, 0, -1, asJSON(t, f.source)), message(kindFrames, 1, 1, -1, bytes.Join(f.frames[:3], nil)),
		message(kindFrames, 1, 2, -1, bytes.Join(f.frames[3:8], nil)))
	for n := range said {
		say(t, p, false, said[:n])
		if got := framesOf(t, c, f); got != 0 && got != 3 { // whole messages; the second is never whole
			t.Fatalf("cut at byte %d: %d frames", n, got)
		}
	}
	if n := refusedFor(t, c, stream.CodeCut); n < uint64(len(said))-8 {
		t.Errorf("%d cuts were counted, of %d", n, len(said))
	}
	newSender(t, 5, f).all(p)
	settle(t, c, fromFile(t, f), f)
	sameAnswers(t, fromFile(t, f), c, f, true)
	noGaps(t, c)
}

// TestCapturesImportedOutOfOrder imports the parts of a run in other orders than that of their time, and one of them twice: what comes late is
// passed over and said to be there already or missing, never mixed up; the parts in order make the whole.
func TestCapturesImportedOutOfOrder(t *testing.T) {
	t.Parallel()
	part := func(f *feed, from, to int) []byte {
		k := *f
		var b bytes.Buffer
		w, err := wire.NewCaptureWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		id, err := w.Source(k.source)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range f.frames[from:to] {
			frame, _, err := wire.ParseFrame(raw)
			if err == nil {
				err = w.Frame(id, frame)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	dir := t.TempDir()
	p := serve(t, dir)
	c := p.client()
	bring := func(b []byte) *api.ImportResult {
		t.Helper()
		r, err := c.Import(context.Background(), api.ImportQuery{Name: "part"}, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	inOrder, late := randomFeed(t, "inorder", 44, 200, time.Now().Add(-time.Hour)), randomFeed(t, "late", 45, 200, time.Now().Add(-2*time.Hour))
	half := len(inOrder.frames) / 2
	bring(part(inOrder, 0, half))
	if r := bring(part(late, len(late.frames)/2, len(late.frames))); r.New != r.Frames {
		t.Errorf("the second half alone: %+v", r)
	}
	if r := bring(part(inOrder, half, len(inOrder.frames))); r.New != r.Frames {
		t.Errorf("the second half after the first: %+v", r)
	}
	if r := bring(part(inOrder, 0, half)); r.New != 0 || r.Duplicate != r.Frames {
		t.Errorf("the first half again: %+v", r)
	}
	if r := bring(part(late, 0, len(late.frames)/2)); r.New != 0 || r.Duplicate != r.Frames {
		t.Errorf("the first half after the second: %+v", r)
	}
	settle(t, c, fromFile(t, inOrder), inOrder)
	sameAnswers(t, fromFile(t, inOrder), c, inOrder, true)
	if f := overview(t, c).Faults; len(f) > 0 {
		t.Errorf("%+v", f)
	}
	its := iterationsFrom(t, c, late)
	for i, it := range its {
		if i > 0 && it.Number != its[i-1].Number+1 {
			t.Fatalf("iteration %d comes after %d", it.Number, its[i-1].Number)
		}
	}
	if len(its) == 0 || its[0].Number <= 1 {
		t.Errorf("%d iterations of the half that came", len(its))
	}
}

// TestClockFromTheFuture takes in an engine whose clock is days ahead, which only its frames tell: doctor says so; it is answered about, and
// sealed when it has been here for the hot period, and so are the others, of which the retention takes what is its.
func TestClockFromTheFuture(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, dir, often...)
	c := p.client()
	future := randomFeed(t, "future", 46, 200, time.Now().Add(72*time.Hour))
	gone, recent := randomFeed(t, "gone", 48, 200, time.Now().Add(-96*time.Hour)), randomFeed(t, "recent", 49, 200, time.Now().Add(-time.Hour))
	feeds := []*feed{future, gone, recent}
	for _, f := range feeds {
		f.source.Opened = time.Now().UnixNano()
	}
	newSender(t, 6, feeds...).all(p)
	periods := func() int { return len(sealedNames(t, dir)) }
	await(t, "both to be sealed and the old to be let go", func() bool { _, let := p.said("retention"); return let && periods() == 2 })
	var told bool
	for _, f := range overview(t, c).Faults {
		told = told || strings.Contains(f.What, "clock of "+future.engine) && strings.Contains(f.Last, "ahead")
	}
	if !told {
		t.Error("nobody says that a clock is ahead")
	}
	check := func() {
		t.Helper()
		sameAnswers(t, fromFile(t, recent), c, recent, true)
		file := fromFile(t, future)
		for name, w := range requestsOf(t, file, future) {
			if g := requestsOf(t, c, future)[name]; g.E2E != w.E2E && w.State == account.Finished || g.Output != w.Output {
				t.Errorf("request %s (-file +server):\n%s", name, cmp.Diff(w, g))
			}
		}
		if got, want := len(iterationsOf(t, c, future)), len(iterationsOf(t, file, future)); got != want {
			t.Errorf("%d iterations, want %d", got, want)
		}
	}
	check()
	p.kill()
	p = serve(t, dir, often...)
	c = p.client()
	check()
	p.stop()
}

// sealedNames are the directories of the sealed periods.
func sealedNames(t testing.TB, dir string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(dir, "data", "store", "sealed"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}
