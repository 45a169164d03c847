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
	"slices"
	"sync"
	"time"

	"github.com/whylate/whylate/wire"
)

// Dialer is how an agent comes to its server.
type Dialer struct {
	Target Target
	TLS    func() *tls.Config     // for a target with TLS; nil means the system's CAs; asked anew for each connection
	Token  func() (string, error) // nil means none; asked anew for each connection
	Agent  Identity
	Clock  func() [3]int64 // a pair of readings: monotonic before, Unix, monotonic after, in ns
}

// Event is what a server has answered. One of its parts is set; none for the answer to a ping.
type Event struct {
	Opened *Mark         // this source is open; what is durable of it need not be sent
	Acked  uint64        // the data up to this number are durable …
	Marks  []Mark        // … and so their sources are up to here
	Busy   uint64        // the data from this number on were not taken; send them again …
	Retry  time.Duration // … after so long
	Source uint16        // the source that Err refuses; 0 = the connection has ended
	Err    error         // mostly a [Refusal]
}

// Conn is an agent's connection to a server. Its methods return at once; what they are given goes out in the background. They may be
// called from one goroutine at a time.
type Conn struct {
	Welcome Welcome

	conn   net.Conn
	in     reader
	packer *packer
	wake   func()

	mu     sync.Mutex
	out    []outgoing
	events []Event
	ended  bool
	closed chan struct{}
	more   chan struct{}
	done   sync.WaitGroup
	bytes  uint64 // written
}

// outgoing is a message that waits to be written. Frames are packed only then.
type outgoing struct {
	message
	pack bool
}

const (
	dialTimeout  = 15 * time.Second
	writeTimeout = 30 * time.Second
	maxEvents    = 1 << 14 // that a server may send before they are fetched
)

// Dial connects and introduces the agent. The error is a [Refusal] if the server does not want it. wake is called, from another
// goroutine, whenever there are events to fetch.
func (d *Dialer) Dial(ctx context.Context, wake func()) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newPacker()
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &Conn{conn: conn, packer: p, wake: wake, closed: make(chan struct{}), more: make(chan struct{}, 1)}
	c.in = reader{in: bufio.NewReaderSize(conn, 4<<10), conn: fixed{}, idle: dialTimeout, whole: dialTimeout}
	if err := c.introduce(ctx, d); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", d.Target, err)
	}
	c.in.conn = conn
	c.in.idle = 2*time.Duration(c.Welcome.IdleMS)*time.Millisecond + writeTimeout // the agent's pings notice a dead server before
	c.in.whole = writeTimeout
	c.done.Go(c.write)
	c.done.Go(c.read)
	return c, nil
}

func (d *Dialer) connect(ctx context.Context) (net.Conn, error) {
	var plain net.Dialer
	conn, err := plain.DialContext(ctx, d.Target.Network, d.Target.Address)
	if err != nil || !d.Target.TLS {
		return conn, err // it names the address
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.TLS != nil {
		config = d.TLS().Clone()
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(d.Target.Address)
	}
	t := tls.Client(conn, config)
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: TLS: %w; give the server's CA with --tls-ca, or use tcp:// if it speaks no TLS", d.Target, err)
	}
	return t, nil
}

// introduce says who the agent is, and waits for the welcome.
func (c *Conn) introduce(ctx context.Context, d *Dialer) error {
	deadline, _ := ctx.Deadline()
	c.conn.SetDeadline(deadline)
	defer c.conn.SetDeadline(time.Time{})
	g := greeting{Agent: d.Agent}
	if d.Clock != nil {
		g.Clock = d.Clock()
	}
	if d.Token != nil {
		var err error
		if g.Token, err = d.Token(); err != nil {
			return err
		}
	}
	hello := appendMessage(appendPreamble(nil), message{kind: kindHello, payload: toJSON(g)})
	if len(hello) > maxGreeting {
		return fmt.Errorf("the token and the names of this host have %d bytes; a server reads %d", len(hello), maxGreeting)
	}
	_, writeErr := c.conn.Write(hello) // a server that refuses may have closed already, and have said why
	m, err := c.in.next(maxReply)
	if err != nil {
		return errors.Join(writeErr, fmt.Errorf("waiting for the server's answer: %w", err))
	}
	switch m.kind {
	case kindWelcome:
		if err := json.Unmarshal(m.payload, &c.Welcome); err != nil {
			return fmt.Errorf("the server's welcome: %w", err)
		}
		return nil
	case kindRefused:
		return readRefusal(m)
	}
	return fmt.Errorf("the server answered with message %d; is it a whylate server's address for agents?", m.kind)
}

func readRefusal(m message) error {
	r := new(Refusal)
	if err := json.Unmarshal(m.payload, r); err != nil {
		return fmt.Errorf("the server's refusal: %w", err)
	}
	return r
}

// Open says that a source will be sent under a number, which is not in use. What it is answered with, Opened or Err, decides whether its data are sent.
func (c *Conn) Open(number uint16, s wire.Source) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("open source %s: %w", s.Name, err)
	}
	c.put(outgoing{message: message{kind: kindOpen, source: number, payload: b}})
	return nil
}

// CloseSource says that nothing more will come under a number.
func (c *Conn) CloseSource(number uint16) {
	c.put(outgoing{message: message{kind: kindClose, source: number}})
}

// Frames sends whole frames of a source, one behind the other, at most [MaxRaw] bytes. Data are numbered 1, 2, 3 … on each connection. The
// bytes must not change until they are acknowledged.
func (c *Conn) Frames(source uint16, number uint64, frames []byte) {
	c.put(outgoing{message{kind: kindFrames, source: source, number: number, payload: frames}, true})
}

// Gap sends what is missing of a source; it is numbered like frames.
func (c *Conn) Gap(source uint16, number uint64, g wire.Gap) {
	c.put(outgoing{message: message{kind: kindGap, source: source, number: number, payload: toJSON(g)}})
}

// Ping keeps a silent connection alive.
func (c *Conn) Ping() { c.put(outgoing{message: message{kind: kindPing}}) }

// Rewind takes back the data that have not been written yet, since the server was busy: they will be given again.
func (c *Conn) Rewind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = slices.DeleteFunc(c.out, func(o outgoing) bool { return o.number != 0 })
}

// Events gives what the server has answered since the last call, in order. The last event of a connection is an Err of source 0.
func (c *Conn) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return events
}

// Written is the number of bytes that have gone out.
func (c *Conn) Written() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Close ends the connection. What is not acknowledged may have arrived or not.
func (c *Conn) Close() {
	c.end(net.ErrClosed)
	c.conn.Close()
	c.done.Wait()
	c.packer.encoder.Close()
}

func (c *Conn) put(o outgoing) {
	c.mu.Lock()
	if !c.ended {
		c.out = append(c.out, o)
	}
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// end gives the last event.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	c.out = nil
	c.events = append(c.events, Event{Err: err})
	close(c.closed)
	c.mu.Unlock()
	c.wake()
}

// write writes what was put.
func (c *Conn) write() {
	var b []byte
	for {
		c.mu.Lock()
		out := c.out
		if len(out) > 0 {
			c.out = out[1:]
		}
		c.mu.Unlock()
		if len(out) == 0 {
			select {
			case <-c.more:
				continue
			case <-c.closed:
				return
			}
		}
		m := out[0].message
		if out[0].pack {
			m.payload, m.raw = c.packer.pack(m.payload)
		}
		b = appendMessage(b[:0], m)
		c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := c.conn.Write(b); err != nil {
			// Why the server hung up is in what it wrote before, which read may still be reading.
			c.mu.Lock()
			c.out = nil
			c.mu.Unlock()
			c.conn.SetReadDeadline(time.Now().Add(time.Second))
			<-c.closed
			return
		}
		c.mu.Lock()
		c.bytes += uint64(len(b))
		c.mu.Unlock()
	}
}

// read turns the server's messages into events.
func (c *Conn) read() {
	defer c.conn.Close()
	for {
		m, err := c.in.next(maxReply)
		if errors.Is(err, io.EOF) {
			err = errors.New("the server closed the connection")
		}
		if err != nil {
			c.end(err)
			return
		}
		e, ok := event(m)
		c.mu.Lock()
		last := ok && e.Err != nil && e.Source == 0
		if ok && !last {
			c.events = append(c.events, e)
		}
		flood := len(c.events) > maxEvents
		c.mu.Unlock()
		switch {
		case flood:
			c.end(fmt.Errorf("the server sent %d answers to nothing", maxEvents))
		case last:
			c.end(e.Err)
		case ok:
			c.wake()
			continue
		default:
			continue
		}
		return
	}
}

// event reads one message of a server. Kinds that this version does not know say nothing.
func event(m message) (Event, bool) {
	switch m.kind {
	case kindOpened:
		if marks := readMarks(m.payload); len(marks) == 1 {
			return Event{Opened: &marks[0]}, true
		}
	case kindAck:
		return Event{Acked: m.number, Marks: readMarks(m.payload)}, true
	case kindBusy:
		var wait struct {
			RetryMS int64 `json:"retry_ms"`
		}
		if json.Unmarshal(m.payload, &wait) != nil {
			wait.RetryMS = 1_000
		}
		return Event{Busy: m.number, Retry: time.Duration(min(max(wait.RetryMS, 1), 600_000)) * time.Millisecond}, true
	case kindPong:
		return Event{}, true
	case kindRefused:
		return Event{Source: m.source, Err: readRefusal(m)}, true
	}
	return Event{}, false
}
