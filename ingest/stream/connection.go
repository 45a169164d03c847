package stream

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/wire"
)

// connection is one sender, as the server sees it. Three goroutines work on it: one reads and never waits for the others, one
// hands on what was read, one writes the answers.
type connection struct {
	s      *Server
	raw    net.Conn // as it was accepted, for its deadlines
	conn   net.Conn // raw, or TLS on it
	remote string
	in     reader
	agent  Identity
	token  string // that it showed
	known  bool   // the token was right; guarded by Server.mu

	failed   chan struct{} // closed when the connection is to end
	released chan struct{} // closed when it hands on nothing any more
	once     sync.Once
	refusal  *Refusal // why it ends; set before failed is closed, nil for a sender that went

	out  chan []byte   // answers
	more chan struct{} // there is work, or no more will come

	since  time.Time
	ahead  time.Duration
	last   atomic.Int64 // Unix ns of the last message
	open   atomic.Int64 // sources
	frames atomic.Uint64

	mu       sync.Mutex
	queue    []*work
	held     int64  // bytes in queue and in the hands of the worker
	expected uint64 // number of the next message with data
	rewound  bool   // the sender was told that expected is to be sent again, and has not done so yet
	ended    bool   // nothing more will be read
}

// work is one message that is to be handed on in its turn.
type work struct {
	kind   kind
	number uint64
	feed   *feed
	frames []wire.Frame
	gap    *wire.Gap
	bytes  int64 // what it occupies
}

func (w *work) data() bool { return w.kind == kindFrames || w.kind == kindGap }

// feed is one source of one connection.
type feed struct {
	number  uint16
	source  wire.Source
	durable uint64 // highest sequence that is; the worker's
	refused bool   // the worker's
}

// Limits of a connection that nobody needs to set.
const (
	maxAnswers = 1_024   // that a sender may leave unread
	groupBytes = 4 << 20 // handed on at once
	workBytes  = 1_024   // what a message occupies beside its frames
	lingerFor  = time.Second
	maxName    = 512 // bytes of a source's name
)

func newConnection(s *Server, conn net.Conn) *connection {
	c := &connection{s: s, raw: conn, conn: conn, failed: make(chan struct{}), released: make(chan struct{}), out: make(chan []byte, maxAnswers),
		more: make(chan struct{}, 1), expected: 1, since: s.Now()}
	if a := conn.RemoteAddr(); a != nil {
		c.remote = a.String()
	}
	c.last.Store(c.since.UnixNano())
	return c
}

// stats is what [Server.Stats] says of a connection, if it is known whose it is. Server.mu is held.
func (c *connection) stats() (AgentStats, bool) {
	if !c.known {
		return AgentStats{}, false
	}
	return AgentStats{Identity: c.agent, Remote: c.remote, Since: c.since, Last: time.Unix(0, c.last.Load()), Sources: int(c.open.Load()),
		Frames: c.frames.Load(), Ahead: c.ahead}, true
}

// fail ends a connection; the first reason counts. A nil one means that the sender went.
func (c *connection) fail(r *Refusal) {
	c.once.Do(func() {
		c.refusal = r
		close(c.failed)
		c.raw.SetReadDeadline(time.Unix(1, 0))
	})
}

// SetReadDeadline is the connection's, until it is to end: then nothing is waited for any more.
func (c *connection) SetReadDeadline(t time.Time) error {
	if err := c.raw.SetReadDeadline(t); err != nil {
		return err
	}
	select {
	case <-c.failed:
		return c.raw.SetReadDeadline(time.Unix(1, 0))
	default:
		return nil
	}
}

// fixed is a deadline that was set before, for all that is read.
type fixed struct{}

func (fixed) SetReadDeadline(time.Time) error { return nil }

// handshake finds out who is there, within a time that nothing the stranger does makes longer. It returns the welcome to
// send; neither that nor a refusal means that the stranger went without a word, as a health check does.
func (c *connection) handshake(ctx context.Context) (welcome []byte, refusal *Refusal) {
	limit := c.s.settings.HandshakeTimeout
	c.conn.SetDeadline(time.Now().Add(limit))
	defer c.conn.SetDeadline(time.Time{})
	if c.wantsTLS() {
		t := tls.Server(c.conn, c.s.TLS)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, &Refusal{Code: CodeTLS, What: "no agreement about TLS: " + err.Error(),
				Remedy: "this server speaks TLS only: use tls://HOST:PORT, the server's CA and, if it asks for one, a client certificate"}
		}
		c.conn = t
	}
	c.in = reader{in: bufio.NewReaderSize(c.conn, readStep), conn: fixed{}, idle: limit, whole: limit}
	major, minor, err := c.in.preamble()
	if err != nil {
		return nil, c.unreadable(err)
	}
	if major > Major {
		return nil, &Refusal{Code: CodeVersion, What: fmt.Sprintf("the sender speaks protocol %d.%d, this server up to %d.x", major, minor, Major),
			Remedy: "upgrade the server"}
	}
	m, err := c.in.next(maxGreeting)
	if err != nil {
		return nil, c.unreadable(err)
	}
	var g greeting
	if m.kind != kindHello {
		return nil, &Refusal{Code: CodeProtocol, What: fmt.Sprintf("message %d where hello belongs", m.kind), Remedy: "compare with docs/formats/agent.md"}
	}
	if err := json.Unmarshal(m.payload, &g); err != nil {
		return nil, &Refusal{Code: CodeProtocol, What: "hello: " + err.Error(), Remedy: "compare with docs/formats/agent.md"}
	}
	if refusal := c.s.checkToken(g.Token); refusal != nil {
		return nil, refusal
	}
	c.agent, c.token = g.Agent, g.Token
	c.ahead = time.Unix(0, g.Clock[1]).Sub(c.s.Now())
	if c.ahead > c.s.settings.MaxAhead {
		return nil, c.future("its clock is", c.ahead)
	}
	c.in.conn, c.in.idle, c.in.whole = c, c.s.settings.IdleTimeout, c.s.settings.MessageTimeout
	return appendMessage(nil, message{kind: kindWelcome, payload: toJSON(Welcome{Protocol: [2]uint16{Major, Minor}, Server: c.s.Version,
		Message: MaxRaw, Queue: c.s.settings.ConnectionBytes, Sources: c.s.settings.MaxSources, IdleMS: c.s.settings.IdleTimeout.Milliseconds()})}), nil
}

// wantsTLS reports whether the sender has to speak TLS.
func (c *connection) wantsTLS() bool {
	_, unix := c.raw.(*net.UnixConn)
	return c.s.TLS != nil && !unix
}

func (c *connection) future(what string, ahead time.Duration) *Refusal {
	return &Refusal{Code: CodeClock, What: fmt.Sprintf("%s %v ahead of the server's", what, ahead.Round(time.Second)),
		Remedy: fmt.Sprintf("set the clock of host %s, or the server's, which says %s", c.agent.Host, c.s.Now().UTC().Format(time.RFC3339)), RetryMS: 30_000}
}

// run is the connection's life once it is known who is there.
func (c *connection) run(ctx context.Context, welcome []byte) {
	c.reply(welcome)
	var writer, worker sync.WaitGroup
	done := make(chan struct{})
	writer.Go(func() { c.write(done) })
	worker.Go(func() { c.work(ctx) })
	c.fail(c.read())
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.signal()
	worker.Wait()
	c.s.release(c)
	close(done)
	writer.Wait()
	if c.refusal != nil {
		c.s.refuse(c, c.refusal)
		c.farewell(c.refusal)
	}
}

// farewell says why the connection ends. What is still coming in is read for a moment: closing over unread bytes would take the answer away
// from under its reader.
func (c *connection) farewell(r *Refusal) {
	c.conn.SetWriteDeadline(time.Now().Add(min(c.s.settings.WriteTimeout, 2*time.Second)))
	if _, err := c.conn.Write(appendMessage(nil, message{kind: kindRefused, payload: toJSON(r)})); err != nil {
		return
	}
	if c.s.lingers.Add(1) > int64(c.s.settings.MaxHandshakes) { // a flood of them gets no such courtesy
		c.s.lingers.Add(-1)
		return
	}
	defer c.s.lingers.Add(-1)
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		c.conn.SetReadDeadline(time.Now().Add(lingerFor))
		io.CopyN(io.Discard, c.conn, 4<<20)
	}
}

// unreadable turns what the reader found into a refusal; nil is an orderly end.
func (c *connection) unreadable(err error) *Refusal {
	const remedy = "nothing that was acknowledged is lost; the agent sends the rest again"
	refuse := func(code Code, remedy string, retry int64) *Refusal {
		return &Refusal{Code: code, What: err.Error(), Remedy: remedy, RetryMS: retry}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, errMagic):
		return refuse(CodeGarbage, "only agents of whylate may connect here; an agent with tls:// needs a server with TLS", 60_000)
	case errors.Is(err, errLength):
		return refuse(CodeLength, "compare the sender's version with docs/formats/agent.md", 60_000)
	case errors.Is(err, errSum):
		return refuse(CodeDamaged, remedy, 1_000)
	case errors.Is(err, errSlow):
		return refuse(CodeSlow, "look at the network between them; "+remedy, 1_000)
	case errors.Is(err, errIdle):
		return refuse(CodeIdle, remedy, 1_000)
	}
	return refuse(CodeCut, remedy, 1_000)
}

// read reads messages until the connection ends, and returns why, nil for a sender that went. It waits for nothing but the sender.
func (c *connection) read() *Refusal {
	feeds := map[uint16]*feed{}
	for {
		select {
		case <-c.failed:
			return nil
		default:
		}
		m, err := c.in.next(MaxRaw)
		if err != nil {
			return c.unreadable(err)
		}
		c.last.Store(c.s.Now().UnixNano())
		c.s.tally.add(func(t *Stats) { t.Bytes += uint64(headerSize + len(m.payload)) })
		var refusal *Refusal
		switch m.kind {
		case kindOpen:
			refusal = c.readOpen(feeds, m)
		case kindClose:
			if f := feeds[m.source]; f != nil {
				delete(feeds, m.source)
				c.enqueue(&work{kind: kindClose, feed: f})
			}
			c.open.Store(int64(len(feeds)))
		case kindFrames, kindGap:
			refusal = c.readData(feeds[m.source], m)
		case kindPing:
			c.reply(appendMessage(nil, message{kind: kindPong}))
		case kindHello:
			refusal = c.protocol("a second hello")
		default:
			c.s.tally.add(func(t *Stats) { t.Unknown++ })
		}
		if refusal != nil {
			return refusal
		}
	}
}

func (c *connection) protocol(what string) *Refusal {
	return &Refusal{Code: CodeProtocol, What: what, Remedy: "compare the sender with docs/formats/agent.md", RetryMS: 10_000}
}

// readOpen takes note of a source. Whether it is accepted is for the worker to say.
func (c *connection) readOpen(feeds map[uint16]*feed, m message) *Refusal {
	if m.source == 0 || feeds[m.source] != nil {
		return c.protocol(fmt.Sprintf("source %d is opened while it is open, or is 0", m.source))
	}
	if len(feeds) >= c.s.settings.MaxSources {
		c.refuseSource(m.source, &Refusal{Code: CodeSources, What: fmt.Sprintf("%d sources are open on this connection", len(feeds)),
			Remedy: "raise MaxSources of the server, or collect the rings of dead engines sooner", RetryMS: 60_000})
		return nil
	}
	f := &feed{number: m.source}
	feeds[m.source] = f
	c.open.Store(int64(len(feeds)))
	if len(m.payload) > maxGreeting*4 {
		f.refused = true
	} else if err := json.Unmarshal(m.payload, &f.source); err != nil {
		f.refused = true
	}
	if string(f.source.Hello) == "null" {
		f.source.Hello = nil
	}
	c.enqueue(&work{kind: kindOpen, feed: f})
	return nil
}

// readData takes a message with frames or a gap, or says that there is no room for it.
func (c *connection) readData(f *feed, m message) *Refusal {
	if f == nil {
		return c.protocol(fmt.Sprintf("data of source %d, which is not open", m.source))
	}
	w := &work{kind: m.kind, number: m.number, feed: f}
	size := int64(m.raw)
	if m.raw == 0 {
		size = int64(len(m.payload))
	}
	if size > MaxRaw {
		return &Refusal{Code: CodeLength, What: fmt.Sprintf("frames that unpack to %d bytes where %d are allowed", size, MaxRaw),
			Remedy: "compare the sender with docs/formats/agent.md", RetryMS: 60_000}
	}
	w.bytes = size + workBytes
	room, refusal := c.room(w)
	if !room {
		return refusal
	}
	if err := c.unpack(w, m); err != nil {
		c.mu.Lock()
		c.giveBack(w.bytes)
		c.mu.Unlock()
		return &Refusal{Code: CodeDamaged, What: fmt.Sprintf("message %d of source %s: %v", m.number, f.source.Name, err),
			Remedy: "look for a failing memory or a proxy that changes bytes; nothing of it was taken", RetryMS: 5_000}
	}
	c.enqueue(w)
	return nil
}

// unpack fills in what the message holds.
func (c *connection) unpack(w *work, m message) error {
	if w.kind == kindGap {
		w.gap = new(wire.Gap)
		return json.Unmarshal(m.payload, w.gap)
	}
	raw, err := c.s.unpacker.unpack(m.payload, m.raw)
	if err != nil {
		return err
	}
	w.frames, err = split(raw)
	c.s.tally.add(func(t *Stats) { t.RawBytes += uint64(len(raw)) })
	return err
}

// room says whether a message is the one that is due, and there is room for it: then its bytes are taken. Messages that are here already, or
// that follow one that had no room, are passed over.
func (c *connection) room(w *work) (bool, *Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case w.number == 0:
		return false, c.protocol("data without a number")
	case w.number < c.expected, w.number > c.expected && c.rewound:
		return false, nil
	case w.number > c.expected:
		return false, c.protocol(fmt.Sprintf("message %d where %d is due", w.number, c.expected))
	}
	full := c.held > 0 && c.held+w.bytes > c.s.settings.ConnectionBytes
	if !full && c.s.queued.Add(w.bytes) > c.s.settings.QueueBytes {
		c.s.queued.Add(-w.bytes)
		full = true
	}
	if full {
		c.busy()
		return false, nil
	}
	c.held += w.bytes
	return true, nil
}

// busy tells the sender to send again from the number that is expected on. c.mu is held.
func (c *connection) busy() {
	c.rewound = true
	c.s.tally.add(func(t *Stats) { t.Busy++ })
	b := toJSON(struct {
		RetryMS int64 `json:"retry_ms"`
	}{c.s.settings.RetryAfter.Milliseconds()})
	c.reply(appendMessage(nil, message{kind: kindBusy, number: c.expected, payload: b}))
}

// enqueue gives work to the worker. Data whose bytes were taken for a number that is no longer due, since the worker has asked for
// an earlier one meanwhile, is dropped.
func (c *connection) enqueue(w *work) {
	c.mu.Lock()
	if w.data() && w.number != c.expected {
		c.giveBack(w.bytes)
		c.mu.Unlock()
		return
	}
	if w.data() {
		c.expected++
		c.rewound = false
	}
	c.queue = append(c.queue, w)
	c.mu.Unlock()
	c.signal()
}

// giveBack frees bytes; c.mu is held.
func (c *connection) giveBack(n int64) {
	c.held -= n
	c.s.queued.Add(-n)
}

func (c *connection) signal() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// reply sends an answer in the background. A sender that leaves too many unread is let go.
func (c *connection) reply(b []byte) {
	select {
	case c.out <- b:
	default:
		c.fail(&Refusal{Code: CodeDeaf, What: fmt.Sprintf("%d answers were not read", maxAnswers), Remedy: "look at the sender and the network", RetryMS: 5_000})
	}
}

// write writes answers until done is closed and none is left.
func (c *connection) write(done <-chan struct{}) {
	broken := false
	put := func(b []byte) {
		if broken {
			return
		}
		c.conn.SetWriteDeadline(time.Now().Add(c.s.settings.WriteTimeout))
		if _, err := c.conn.Write(b); err != nil {
			broken = true
			r := &Refusal{Code: CodeCut, What: "write an answer: " + err.Error(), RetryMS: 1_000}
			if isTimeout(err) {
				r.Code, r.Remedy = CodeDeaf, "look at the sender and the network"
			}
			c.fail(r)
		}
	}
	for {
		select {
		case b := <-c.out:
			put(b)
			continue
		case <-done:
		}
		for {
			select {
			case b := <-c.out:
				put(b)
				continue
			default:
			}
			return
		}
	}
}
