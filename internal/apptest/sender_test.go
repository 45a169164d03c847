package apptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/wire"
)

// feed is one source on its way to a server, in the hands of somebody who keeps what is not acknowledged.
type feed struct {
	name   string // its requests' names begin with it
	source wire.Source
	hello  wire.Hello
	engine string
	frames [][]byte // that with sequence n is frames[n-1]
	number uint16
	open   bool
	sent   uint64 // sequence of the last frame on its way
	acked  uint64 // sequence of the last one that was acknowledged
}

// randomFeed is a random run of n iterations of an engine with this name that began at a time. Its requests are named after it, so that
// those of several engines differ.
func randomFeed(t testing.TB, name string, seed uint64, n int, began time.Time) *feed {
	t.Helper()
	run, _, err := scenario.Random(seed, n, scenario.PlainCost)
	if err != nil {
		t.Fatal(err)
	}
	s := run.Engine
	s.Hello.Engine.Replica, s.Hello.Engine.Incarnation = name, fmt.Sprintf("%016x", seed)
	s.Hello.Boot = name // a clock of its own: nobody else's first reading counts
	s.Hello.Clock[1] = began.UnixNano()
	f := &feed{name: name, hello: s.Hello, engine: "test/" + name, source: wire.Source{Name: name, Hello: s.HelloJSON(), Opened: began.UnixNano()}}
	for i, raw := range s.Frames {
		parsed, _, err := wire.ParseFrame(raw)
		if err != nil {
			t.Fatal(err)
		}
		m := wire.NewMessage(parsed.Type)
		if err := wire.Decode(parsed, m); err != nil {
			t.Fatal(err)
		}
		if q, ok := m.(*wire.Queued); ok {
			q.ID, q.External = name+"-"+q.ID, name+"-"+q.External
		}
		if raw, err = wire.Append(nil, uint64(i+1), m); err != nil {
			t.Fatal(err)
		}
		f.frames = append(f.frames, raw)
	}
	return f
}

// capture writes feeds as a file.
func capture(t testing.TB, feeds ...*feed) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := wire.NewCaptureWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range feeds {
		id, err := w.Source(f.source)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range f.frames {
			frame, _, err := wire.ParseFrame(raw)
			if err == nil {
				err = w.Frame(id, frame)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWriteCapture writes a run of the last hour to $WHYLATE_WRITE_CAPTURE, for scripts/upgrade-test.sh.
func TestWriteCapture(t *testing.T) {
	path := os.Getenv("WHYLATE_WRITE_CAPTURE")
	if path == "" {
		t.Skip("run by scripts/upgrade-test.sh")
	}
	if err := os.WriteFile(path, capture(t, randomFeed(t, "more", 1, 300, time.Now().Add(-time.Hour))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fromFile answers about feeds that were written as a file and read again.
func fromFile(t testing.TB, feeds ...*feed) *server.Local {
	t.Helper()
	path := filepath.Join(t.TempDir(), "same.wlc")
	if err := os.WriteFile(path, capture(t, feeds...), 0o600); err != nil {
		t.Fatal(err)
	}
	a := ingest.New()
	if err := a.Load([]string{path}, 0, nil); err != nil {
		t.Fatal(err)
	}
	return server.NewLocal(a.Book())
}

// sender sends feeds over one connection after the other.
type sender struct {
	t     testing.TB
	rng   *rand.Rand
	feeds []*feed
	conn  *stream.Conn
	next  uint64     // number of the next message
	way   []shipment // on their way, the oldest first
	wake  chan struct{}
	token string // that it shows; "" = none
	acked int    // frames acknowledged on this connection
	known uint64 // frames that a server was found to have, beyond what it had acknowledged
}

type shipment struct {
	feed   *feed
	number uint64
	to     uint64
	frames int
}

// mostOnTheWay is how many messages are sent before the first is acknowledged.
const mostOnTheWay = 8

func newSender(t testing.TB, seed uint64, feeds ...*feed) *sender {
	for i, f := range feeds {
		f.number = uint16(i + 1)
	}
	return &sender{t: t, rng: rand.New(rand.NewPCG(seed, 7)), feeds: feeds, wake: make(chan struct{}, 1)}
}

// connect comes to a server that is starting, and opens all feeds. It returns false if the server ended before.
func (s *sender) connect(p *process) bool {
	s.t.Helper()
	s.way, s.next, s.acked = nil, 1, 0
	d := &stream.Dialer{Target: p.target(), Agent: stream.Identity{Host: "h", Boot: "b", PID: 1, Version: "test"}, Clock: func() [3]int64 { return [3]int64{1, time.Now().UnixNano(), 2} }}
	if s.token != "" {
		d.Token = func() (string, error) { return s.token, nil }
	}
	connected := false
	await(s.t, "a connection", func() bool {
		select {
		case <-p.exited:
			return true
		default:
		}
		c, err := d.Dial(context.Background(), func() {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		})
		var refused *stream.Refusal
		if errors.As(err, &refused) {
			s.t.Fatal(err)
		}
		if err != nil {
			return false
		}
		s.conn, connected = c, true
		return true
	})
	if !connected {
		return false
	}
	for _, f := range s.feeds {
		f.open = false
		if err := s.conn.Open(f.number, f.source); err != nil {
			s.t.Fatal(err)
		}
	}
	return true
}

// hear takes what the server answered. It returns false when the connection is over.
func (s *sender) hear() bool {
	s.t.Helper()
	for _, e := range s.conn.Events() {
		switch {
		case e.Opened != nil:
			f := s.feeds[e.Opened.Source-1]
			durable := e.Opened.Sequence
			if durable < f.acked {
				s.t.Fatalf("%s was acknowledged up to frame %d; after a restart %d is durable", f.source.Name, f.acked, durable)
			}
			if durable > uint64(len(f.frames)) {
				s.t.Fatalf("%s has %d frames; %d are said to be durable", f.source.Name, len(f.frames), durable)
			}
			s.known += durable - f.acked
			f.open, f.acked = true, durable
			f.sent = durable
			if s.rng.IntN(2) == 0 { // as somebody does who does not believe it
				f.sent -= min(durable, s.rng.Uint64N(40))
			}
		case e.Acked != 0:
			for len(s.way) > 0 && s.way[0].number <= e.Acked {
				m := s.way[0]
				s.way = s.way[1:]
				m.feed.acked = max(m.feed.acked, m.to)
				s.acked += m.frames
			}
		case e.Busy != 0:
			s.t.Fatal("the server is busy with so little")
		case e.Err != nil && e.Source != 0:
			s.t.Fatalf("source %d: %v", e.Source, e.Err)
		case e.Err != nil:
			return false
		}
	}
	return true
}

// send puts the next messages on their way, at most n.
func (s *sender) send(n int) {
	for ; n > 0 && len(s.way) < mostOnTheWay; n-- {
		var ready []*feed
		for _, f := range s.feeds {
			if f.open && f.sent < uint64(len(f.frames)) {
				ready = append(ready, f)
			}
		}
		if len(ready) == 0 {
			return
		}
		f := ready[s.rng.IntN(len(ready))]
		to := min(f.sent+1+s.rng.Uint64N(8), uint64(len(f.frames)))
		s.conn.Frames(f.number, s.next, bytes.Join(f.frames[f.sent:to], nil))
		s.way = append(s.way, shipment{f, s.next, to, int(to - f.sent)})
		f.sent = to
		s.next++
	}
}

// unacknowledged is how many frames were sent and not acknowledged.
func (s *sender) unacknowledged() (n int) {
	for _, m := range s.way {
		n += m.frames
	}
	return n
}

// left is how many frames are not acknowledged, sent or not.
func (s *sender) left() (n int) {
	for _, f := range s.feeds {
		n += len(f.frames) - int(f.acked)
	}
	return n
}

// pause waits until there is something to hear, or a moment has passed.
func (s *sender) pause() {
	select {
	case <-s.wake:
	case <-time.After(time.Millisecond):
	}
}

// hangUp ends the connection.
func (s *sender) hangUp() {
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// all sends everything that is left and waits until it is acknowledged.
func (s *sender) all(p *process) {
	s.t.Helper()
	if !s.connect(p) {
		s.t.Fatal("the server ended before it was asked to")
	}
	defer s.hangUp()
	for end := time.Now().Add(patience); s.left() > 0; s.pause() {
		if !s.hear() || time.Now().After(end) {
			s.t.Fatalf("%d frames are left", s.left())
		}
		s.send(mostOnTheWay)
	}
}

// indented is v as JSON, for comparing.
func indented(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
