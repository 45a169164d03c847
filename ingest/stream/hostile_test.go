package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/wire"
)

// tape is a listener whose connections keep what they read.
type tape struct {
	net.Listener
	mu   sync.Mutex
	read bytes.Buffer
}

type taped struct {
	net.Conn
	tape *tape
}

func (t *tape) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	return &taped{c, t}, err
}

func (c *taped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tape.mu.Lock()
	c.tape.read.Write(b[:n])
	c.tape.mu.Unlock()
	return n, err
}

// conversation records what an agent says when it sends two sources.
func conversation(t testing.TB) []byte {
	t.Helper()
	k := newKeeper()
	l, target := listen(t)
	record := &tape{Listener: l}
	serve(t, &Server{Accept: k.accept}, record)
	p := mustDial(t, target)
	p.open(1, "a")
	p.Frames(1, 1, framesOf(t, upTo(1, 30)...))
	p.acked(1)
	p.open(2, "b")
	p.Gap(2, 2, wire.Gap{From: 1, To: 4, Count: 4, Why: "overwritten"})
	p.Frames(2, 3, framesOf(t, 5, 6))
	p.Ping()
	p.Frames(1, 4, framesOf(t, 31))
	p.acked(4)
	p.CloseSource(2)
	p.Frames(1, 5, framesOf(t, 32))
	p.acked(5)
	record.mu.Lock()
	defer record.mu.Unlock()
	return bytes.Clone(record.read.Bytes())
}

// replies reads the messages of a server.
func replies(t testing.TB, b []byte) (ms []message) {
	t.Helper()
	r := reader{in: bufio.NewReader(bytes.NewReader(b)), conn: fixed{}}
	for {
		m, err := r.next(maxReply)
		if err != nil {
			return ms
		}
		ms = append(ms, m)
	}
}

// oneWay is a connection that reads given bytes and then ends, and keeps what is written to it.
type oneWay struct {
	in *bytes.Reader
	net.Conn
	mu  sync.Mutex
	out bytes.Buffer
}

func (o *oneWay) Read(b []byte) (int, error) { return o.in.Read(b) }
func (o *oneWay) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Write(b)
}
func (*oneWay) Close() error                     { return nil }
func (*oneWay) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "test", Net: "unix"} }
func (*oneWay) SetDeadline(time.Time) error      { return nil }
func (*oneWay) SetReadDeadline(time.Time) error  { return nil }
func (*oneWay) SetWriteDeadline(time.Time) error { return nil }

// hear gives bytes to a server as all that one connection says, and returns what it answers.
func hear(t testing.TB, s *Server, said []byte) []message {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	o := &oneWay{in: bytes.NewReader(said)}
	c := newConnection(s, o)
	s.handle(t.Context(), c, s.admit(c))
	if n := s.queued.Load(); n != 0 {
		t.Fatalf("%d bytes are still held", n)
	}
	if len(s.connections) != 0 || s.strangers != 0 || len(s.owners) != 0 {
		t.Fatalf("left behind: %d connections, %d strangers, %d owners", len(s.connections), s.strangers, len(s.owners))
	}
	return replies(t, o.out.Bytes())
}

// TestCutEverywhere cuts a recorded conversation after every byte: what came whole is kept, the rest is counted as cut.
func TestCutEverywhere(t *testing.T) {
	said := conversation(t)
	// The ends of the messages, and how many frames each of them completes.
	ends, a, b := []int{0}, []uint64{0}, []int{0}
	add := func(end int, fromA uint64, fromB int) {
		ends, a, b = append(ends, end), append(a, a[len(a)-1]+fromA), append(b, b[len(b)-1]+fromB)
	}
	add(preambleSize, 0, 0)
	for at := preambleSize; at < len(said); {
		at += headerSize + int(binary.LittleEndian.Uint32(said[at+atLength:]))
		switch len(ends) {
		case 4:
			add(at, 30, 0)
		case 7:
			add(at, 0, 2)
		case 9, 11:
			add(at, 1, 0)
		default:
			add(at, 0, 0)
		}
	}
	if last := len(ends) - 1; ends[last] != len(said) || a[last] != 32 || b[last] != 2 {
		t.Fatalf("the conversation is another one: ends %v, a %v, b %v", ends, a, b)
	}
	for n := range len(said) + 1 {
		k := newKeeper()
		s := &Server{Accept: k.accept, Durable: k.durable}
		hear(t, s, said[:n])
		whole := 0
		for whole+1 < len(ends) && ends[whole+1] <= n {
			whole++
		}
		if got := k.of("a"); !slices.Equal(got, upTo(1, a[whole])) {
			t.Fatalf("cut at %d: a has %v", n, got)
		}
		if got := k.of("b"); len(got) != b[whole] {
			t.Fatalf("cut at %d: b has %v", n, got)
		}
		cut := uint64(1)
		if ends[whole] == n {
			cut = 0
		}
		if refused := s.Stats().Refused; refused[CodeCut] != cut || len(refused) > 1 {
			t.Fatalf("cut at %d: refused %v", n, refused)
		}
	}
}

// TestSpoiltEverywhere changes every byte of a recorded conversation: nothing wrong is taken, and the server lives.
func TestSpoiltEverywhere(t *testing.T) {
	said := conversation(t)
	for i := range said {
		for _, bits := range []byte{0x01, 0x80, 0xFF} {
			spoilt := bytes.Clone(said)
			spoilt[i] ^= bits
			k := newKeeper()
			s := &Server{Accept: k.accept, Durable: k.durable}
			hear(t, s, spoilt)
			if got := k.of("a"); !slices.Equal(got, upTo(1, uint64(len(got)))) {
				t.Fatalf("byte %d ^ %#x: a has %v", i, bits, got)
			}
			if got := k.of("a"); len(s.Stats().Refused) == 0 && len(got) != 32 {
				t.Fatalf("byte %d ^ %#x: %d frames and no refusal", i, bits, len(got))
			}
		}
	}
}

// begun is what a sender says before its first source.
func begun(clock int64) []byte {
	return appendMessage(appendPreamble(nil), message{kind: kindHello, payload: toJSON(greeting{Agent: testAgent, Clock: [3]int64{1, clock, 2}})})
}

func opening(number uint16, name string) []byte {
	b, _ := json.Marshal(wire.Source{Name: name})
	return appendMessage(nil, message{kind: kindOpen, source: number, payload: b})
}

// lying makes a header with a right checksum only if its payload is as long as it says.
func lying(k kind, length, raw uint32, payload []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(payload))
	le := binary.LittleEndian
	le.PutUint32(b[atLength:], length)
	le.PutUint16(b[atMagic:], messageMagic)
	b[atKind] = byte(k)
	le.PutUint16(b[atSource:], 1)
	le.PutUint64(b[atNumber:], 1)
	le.PutUint32(b[atRaw:], raw)
	b = append(b, payload...)
	le.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

func TestHostileSenders(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p, err := newPacker()
	if err != nil {
		t.Fatal(err)
	}
	bomb := p.encoder.EncodeAll(make([]byte, 64<<20), nil)
	data := func(m message) []byte {
		m.source, m.number = 1, max(m.number, 1)
		return appendMessage(nil, m)
	}
	good := slices.Concat(begun(now.UnixNano()), opening(1, "a"))
	after := func(b ...[]byte) []byte { return slices.Concat(good, slices.Concat(b...)) }
	frame := framesOf(t, 1)
	newer := begun(now.UnixNano())
	newer[8] = 2
	tests := map[string]struct {
		said []byte
		code Code
	}{
		"a web browser":                   {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), CodeGarbage},
		"TLS to a plain server":           {[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefghijklmnop"), CodeGarbage},
		"zeros":                           {make([]byte, 4096), CodeGarbage},
		"a newer protocol":                {newer, CodeVersion},
		"no hello":                        {append(appendPreamble(nil), opening(1, "a")...), CodeProtocol},
		"a hello that is no JSON":         {append(appendPreamble(nil), appendMessage(nil, message{kind: kindHello, payload: []byte("{")})...), CodeProtocol},
		"a hello that is too long":        {append(appendPreamble(nil), lying(kindHello, maxGreeting+1, 0, nil)...), CodeLength},
		"a clock from the future":         {begun(now.Add(90 * time.Minute).UnixNano()), CodeClock},
		"a clock at the end of time":      {begun(1<<63 - 1), CodeClock},
		"two hellos":                      {after(appendMessage(nil, message{kind: kindHello})), CodeProtocol},
		"garbage in the middle":           {after([]byte(strings.Repeat("garbage ", 9))), CodeGarbage},
		"a length of 4 GiB":               {after(lying(kindFrames, 1<<32-1, 0, nil)), CodeLength},
		"a length that never comes":       {after(lying(kindFrames, MaxRaw, 0, frame)), CodeCut},
		"frames that unpack to 4 GiB":     {after(data(message{kind: kindFrames, raw: 1<<32 - 1, payload: bomb})), CodeLength},
		"a bomb":                          {after(data(message{kind: kindFrames, raw: MaxRaw, payload: bomb})), CodeDamaged},
		"a small bomb":                    {after(data(message{kind: kindFrames, raw: 64, payload: bomb})), CodeDamaged},
		"less than announced":             {after(data(message{kind: kindFrames, raw: MaxRaw, payload: p.encoder.EncodeAll(frame, nil)})), CodeDamaged},
		"packed garbage":                  {after(data(message{kind: kindFrames, raw: 100, payload: frame})), CodeDamaged},
		"half a frame":                    {after(data(message{kind: kindFrames, payload: frame[:24]})), CodeDamaged},
		"a frame with a wrong checksum":   {after(data(message{kind: kindFrames, payload: append([]byte{frame[0] ^ 1}, frame[1:]...)})), CodeDamaged},
		"a gap that is no JSON":           {after(data(message{kind: kindGap, payload: []byte("[")})), CodeDamaged},
		"data of a source never opened":   {append(begun(1), data(message{kind: kindFrames, payload: frame})...), CodeProtocol},
		"data without a number":           {after(appendMessage(nil, message{kind: kindFrames, source: 1, payload: frame})), CodeProtocol},
		"a number too far":                {after(data(message{kind: kindFrames, number: 2, payload: frame})), CodeProtocol},
		"a source opened twice":           {after(opening(1, "b")), CodeProtocol},
		"a source that is no JSON":        {append(begun(1), appendMessage(nil, message{kind: kindOpen, source: 1, payload: []byte("nonsense")})...), CodeSource},
		"a source with a novel as a name": {append(begun(1), opening(1, strings.Repeat("long ", 200))...), CodeSource},
		"a server's message":              {after(appendMessage(nil, message{kind: kindWelcome})), ""},
		"nothing at all":                  {nil, ""},
		"only a hello":                    {begun(now.UnixNano()), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := newKeeper()
			s := &Server{Accept: k.accept, Durable: k.durable, Now: func() time.Time { return now }}
			answers := hear(t, s, tt.said)
			stats := s.Stats()
			if tt.code == "" {
				if len(stats.Refused) != 0 {
					t.Fatalf("refused: %+v", stats.LastRefused)
				}
				return
			}
			if stats.Refused[tt.code] != 1 || len(stats.Refused) != 1 {
				t.Fatalf("refused %v, want one for %s: %+v", stats.Refused, tt.code, stats.LastRefused)
			}
			if i := stats.LastRefused[tt.code]; i.What == "" || i.Remedy == "" || i.Remote != "test" || i.At != now {
				t.Errorf("noted as %+v", i)
			}
			if tt.code != CodeCut {
				last := answers[len(answers)-1]
				if r, ok := errors.AsType[*Refusal](readRefusal(last)); last.kind != kindRefused || !ok || r.Code != tt.code {
					t.Errorf("the sender was told %d %s", last.kind, last.payload)
				}
			}
			if got := k.of("a"); len(got) != 0 {
				t.Errorf("taken: %v", got)
			}
		})
	}
}

// TestSlowSenders lets senders be slow: a stranger, a message that drips, a silence. Each is ended in its time, and counted.
func TestSlowSenders(t *testing.T) {
	settings := Settings{HandshakeTimeout: 50 * time.Millisecond, MessageTimeout: 50 * time.Millisecond, IdleTimeout: 100 * time.Millisecond}
	good := slices.Concat(begun(0), opening(1, "a"))
	drip := lying(kindFrames, 1000, 0, framesOf(t, 1))
	for name, tt := range map[string]struct {
		said []byte
		code Code
	}{
		"a stranger who says nothing": {nil, CodeIdle},
		"a stranger who drips":        {good[:5], CodeSlow},
		"half a hello":                {good[:preambleSize+40], CodeSlow},
		"half a message":              {append(good, drip...), CodeSlow},
		"half a header":               {append(good, drip[:7]...), CodeSlow},
		"silence":                     {good, CodeIdle},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Server{Accept: newKeeper().accept, Settings: settings}
			l, target := listen(t)
			serve(t, s, l)
			conn, err := net.Dial(target.Network, target.Address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(tt.said); err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(conn) // until the server hangs up
			if err != nil {
				t.Fatal(err)
			}
			ms := replies(t, b)
			if len(ms) == 0 || ms[len(ms)-1].kind != kindRefused {
				t.Fatalf("answered %d messages", len(ms))
			}
			if s.Stats().Refused[tt.code] != 1 {
				t.Errorf("refused %v, want %s", s.Stats().Refused, tt.code)
			}
		})
	}
}

// TestTooManyConnections refuses strangers and senders beyond their limits, and takes others when they are gone.
func TestTooManyConnections(t *testing.T) {
	s := &Server{Accept: newKeeper().accept, Settings: Settings{MaxConnections: 3, MaxHandshakes: 2}}
	l, target := listen(t)
	serve(t, s, l)
	stranger := func() net.Conn {
		c, err := net.Dial(target.Network, target.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	told := func(c net.Conn) {
		t.Helper()
		b, err := io.ReadAll(c)
		if ms := replies(t, b); err != nil || len(ms) != 1 || ms[0].kind != kindRefused {
			t.Errorf("told %d messages, %v", len(ms), err)
		}
	}
	one, two := stranger(), stranger()
	told(stranger())
	one.Close()
	for { // until the server has noticed
		p, err := dial(t, &Dialer{Target: target, Agent: testAgent})
		if err == nil {
			p.open(1, "a")
			break
		}
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != CodeConnections {
			t.Fatal(err)
		}
	}
	if _, err := two.Write(begun(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(two, make([]byte, headerSize)); err != nil { // the welcome
		t.Fatal(err)
	}
	mustDial(t, target)
	told(stranger())
	if n := s.Stats().Refused[CodeConnections]; n < 2 {
		t.Errorf("%d refusals counted", n)
	}
}

// TestDeafSender does not read its answers: it is let go, and others are not held up.
func TestDeafSender(t *testing.T) {
	s := &Server{Accept: newKeeper().accept, Settings: Settings{WriteTimeout: 50 * time.Millisecond}}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe() // which holds nothing back
	done := make(chan struct{})
	c := newConnection(s, server)
	refusal := s.admit(c)
	go func() { s.handle(context.Background(), c, refusal); close(done) }()
	if _, err := client.Write(begun(0)); err != nil {
		t.Fatal(err)
	}
	ping := appendMessage(nil, message{kind: kindPing})
	for {
		if _, err := client.Write(ping); err != nil {
			break
		}
	}
	<-done
	if s.Stats().Refused[CodeDeaf] != 1 {
		t.Errorf("refused %v", s.Stats().Refused)
	}
}

// TestClientAgainstHostileServers lets an agent connect to what is no server.
func TestClientAgainstHostileServers(t *testing.T) {
	welcome := appendMessage(nil, message{kind: kindWelcome, payload: toJSON(Welcome{IdleMS: 1000})})
	for name, said := range map[string][]byte{
		"nothing": nil, "a web server": []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
		"a length of 4 GiB": lying(kindWelcome, 1<<32-1, 0, nil), "no JSON": appendMessage(nil, message{kind: kindWelcome, payload: []byte("{")}),
		"garbage later": append(bytes.Clone(welcome), bytes.Repeat([]byte{7}, 100)...), "cut": append(bytes.Clone(welcome), welcome[:20]...),
		"a flood": append(bytes.Clone(welcome), bytes.Repeat(appendMessage(nil, message{kind: kindAck, number: 1}), maxEvents+9)...),
	} {
		t.Run(name, func(t *testing.T) {
			l, target := listen(t)
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.ReadFull(c, make([]byte, preambleSize))
				c.Write(said)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}()
			p, err := dial(t, &Dialer{Target: target, Agent: testAgent})
			for err == nil {
				e := p.next()
				err = e.Err
			}
			if err.Error() == "" {
				t.Error("no words")
			}
		})
	}
}

// FuzzServer gives any bytes to a server after a right beginning or without it: no panic, an end, nothing left behind, and frames of a source
// only ever go up.
func FuzzServer(f *testing.F) {
	said := conversation(f)
	f.Add(said, false)
	f.Add(said[preambleSize:], true)
	f.Add(said[:len(said)-11], false)
	good := begun(0)
	f.Add(said[len(good):], true)
	f.Add(lying(kindFrames, 1<<20, 1<<20, framesOf(f, 1, 2)), true)
	f.Add(append(opening(1, "a"), lying(kindGap, 2, 0, []byte("{}"))...), true)
	f.Fuzz(func(t *testing.T, b []byte, introduced bool) {
		if introduced {
			b = append(begun(0), reseal(b)...)
		}
		k := newKeeper()
		s := &Server{Accept: k.accept, Durable: k.durable}
		hear(t, s, b)
		for name, sequences := range k.frames {
			for i := 1; i < len(sequences); i++ {
				if sequences[i] <= sequences[i-1] {
					t.Fatalf("%s: %d after %d", name, sequences[i], sequences[i-1])
				}
			}
		}
	})
}

// reseal puts the right checksums on what looks like messages, so that what is wrong with them lies deeper.
func reseal(b []byte) []byte {
	b = bytes.Clone(b)
	le := binary.LittleEndian
	for at := 0; at+headerSize <= len(b); {
		le.PutUint16(b[at+atMagic:], messageMagic)
		n := headerSize + int(le.Uint32(b[at+atLength:]))
		if n > len(b)-at {
			break
		}
		le.PutUint32(b[at:], crc32.ChecksumIEEE(b[at+4:at+n]))
		at += n
	}
	return b
}

func TestIdentityIsPrinted(t *testing.T) {
	if got := fmt.Sprint(testAgent); got != "agent test of h (pid 7)" {
		t.Error(got)
	}
}
