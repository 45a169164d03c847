package stream

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/wire"
)

// Batch is what came of one source in one message: frames in the order of their sequences, or a gap.
type Batch struct {
	Agent  Identity
	Source wire.Source
	Frames []wire.Frame // valid during the call
	Gap    *wire.Gap
}

// Server receives what agents send. Its fields are set before Serve and not changed after.
type Server struct {
	Settings Settings

	// Accept makes batches durable. What it returned nil for is acknowledged; it is called for each connection in turn, and for
	// several connections at once. An error that wraps [ErrOverloaded] makes the sender try again later; any other one ends
	// the connection, and the sender comes back. It must take what it does not like of the contents, and note that as a gap:
	// a batch that it never takes stops its sender for good.
	Accept func(ctx context.Context, batches []Batch) error

	// Durable gives the highest sequence of a source that is durable, 0 if there is none: the sender goes on behind it. It is
	// asked once each time that a source is opened, never while Accept holds frames of it. Nil means that nothing is.
	Durable func(ctx context.Context, source wire.Source) (uint64, error)

	// Tokens gives the bearer tokens that are accepted, anew for each connection and each [Server.Recheck]. Nil means that none
	// is asked for.
	Tokens func() ([]string, error)

	// TLS is used on every listener that is not a Unix socket, if it is set.
	TLS *tls.Config

	// Version is what agents are told of this server.
	Version string

	// Now is the clock that senders' clocks are compared with, [time.Now] if nil.
	Now func() time.Time

	// Log is where refusals are noted; nil means nowhere, they are in Stats all the same.
	Log *slog.Logger

	once     sync.Once
	settings Settings
	unpacker *unpacker
	startErr error
	tally    tally
	queued   atomic.Int64
	lingers  atomic.Int64 // connections that are over and wait for their last answer to be read

	mu          sync.Mutex
	connections map[*connection]bool
	strangers   int
	owners      map[string]*connection // by the name of a source
}

// start prepares what all listeners share.
func (s *Server) start() error {
	s.once.Do(func() {
		s.settings = s.Settings.withDefaults()
		s.connections, s.owners = map[*connection]bool{}, map[string]*connection{}
		if s.Now == nil {
			s.Now = time.Now
		}
		if s.Log == nil {
			s.Log = slog.New(slog.DiscardHandler)
		}
		s.unpacker, s.startErr = newUnpacker()
	})
	return s.startErr
}

// Serve receives on a listener until ctx ends, and then closes it and its connections and returns nil. It may be called for several
// listeners at once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				cancel()
				return fmt.Errorf("receive on %s: %w", l.Addr(), err)
			}
			s.Log.Warn("cannot accept a connection; trying again", "listener", l.Addr().String(), "error", err)
			select { // out of file descriptors, mostly
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		c := newConnection(s, conn)
		refusal := s.admit(c) // here, so that who came first gets in first
		running.Go(func() { s.handle(ctx, c, refusal) })
	}
}

// Sends reports whether a connection has a source open.
func (s *Server) Sends(source string) bool {
	if s.start() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owners[source] != nil
}

// Stats counts what came so far.
func (s *Server) Stats() Stats {
	if s.start() != nil {
		return Stats{}
	}
	stats := s.tally.copy()
	stats.Queued = s.queued.Load()
	s.mu.Lock()
	stats.Open = len(s.connections)
	for c := range s.connections {
		if a, known := c.stats(); known {
			stats.Agents = append(stats.Agents, a)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(stats.Agents, func(a, b AgentStats) int { return strings.Compare(a.Host+a.Remote, b.Host+b.Remote) })
	return stats
}

// handle is the life of one connection that has been admitted, unless it is refused.
func (s *Server) handle(ctx context.Context, c *connection, refusal *Refusal) {
	s.tally.add(func(t *Stats) { t.Connections++ })
	defer c.raw.Close()
	if refusal != nil {
		s.refuse(c, refusal)
		if !c.wantsTLS() { // else it would be no answer that the sender can read
			c.farewell(refusal)
		}
		return
	}
	defer s.leave(c)
	stop := context.AfterFunc(ctx, func() { c.fail(&Refusal{Code: CodeEnding, What: "the server is stopping", RetryMS: 1_000}) })
	defer stop()
	welcomed, refusal := c.handshake(ctx)
	if refusal != nil {
		s.refuse(c, refusal)
		c.farewell(refusal)
		return
	}
	if welcomed == nil {
		return
	}
	s.mu.Lock()
	s.strangers--
	c.known = true
	s.mu.Unlock()
	c.run(ctx, welcomed)
}

// admit makes room for a connection.
func (s *Server) admit(c *connection) *Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := func(what string, limit int, setting string) *Refusal {
		return &Refusal{Code: CodeConnections, What: fmt.Sprintf("%d %s are connected already", limit, what),
			Remedy: "raise " + setting + " of the server, or look at who they are with 'whylate doctor'", RetryMS: 5_000}
	}
	switch {
	case len(s.connections) >= s.settings.MaxConnections:
		return full("senders", s.settings.MaxConnections, "MaxConnections")
	case s.strangers >= s.settings.MaxHandshakes:
		return full("senders that have not shown a token", s.settings.MaxHandshakes, "MaxHandshakes")
	}
	s.connections[c] = true
	s.strangers++
	return nil
}

// release gives up the sources of a connection that hands on nothing any more.
func (s *Server) release(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, owner := range s.owners {
		if owner == c {
			delete(s.owners, name)
		}
	}
	close(c.released)
}

// leave forgets a connection.
func (s *Server) leave(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	if !c.known {
		s.strangers--
	}
}

// claim makes c the one that sends a source. A connection of the same host that had it is an earlier one, which nobody may have
// noticed to be dead: it is ended, and waited for, so that nothing of the source is on its way when it is said how far it is durable.
func (s *Server) claim(ctx context.Context, c *connection, name string) *Refusal {
	for {
		s.mu.Lock()
		owner := s.owners[name]
		if owner == nil || owner == c {
			s.owners[name] = c
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		if !owner.agent.sameHost(c.agent) {
			return &Refusal{Code: CodeTaken, What: fmt.Sprintf("%s sends %s already", owner.agent, name),
				Remedy: "let one agent follow a ring directory", RetryMS: 60_000}
		}
		owner.fail(&Refusal{Code: CodeReplaced, What: fmt.Sprintf("%s has connected anew", c.agent),
			Remedy: "if this comes again and again, two agents follow one ring directory: stop one", RetryMS: 10_000})
		select {
		case <-owner.released:
		case <-c.failed:
			return &Refusal{Code: CodeEnding, What: "the connection ended"}
		case <-ctx.Done():
			return &Refusal{Code: CodeEnding, What: "the server is stopping", RetryMS: 1_000}
		}
	}
}

// disclaim ends c's right to a source.
func (s *Server) disclaim(c *connection, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[name] == c {
		delete(s.owners, name)
	}
}

// refuse counts a refusal.
func (s *Server) refuse(c *connection, r *Refusal) {
	s.tally.refuse(Incident{At: s.Now(), Remote: c.remote, Agent: c.agent}, r)
	s.Log.Warn("refused", "remote", c.remote, "agent", c.agent.Host, "code", r.Code, "what", r.What, "remedy", r.Remedy)
}

// Recheck ends the connections whose token is not accepted any more. Their agents keep what was not acknowledged.
func (s *Server) Recheck() {
	if s.start() != nil {
		return
	}
	s.mu.Lock()
	var known []*connection
	for c := range s.connections {
		if c.known {
			known = append(known, c)
		}
	}
	s.mu.Unlock()
	for _, c := range known {
		if refusal := s.checkToken(c.token); refusal != nil {
			refusal.What = "the token that the connection was opened with is not accepted any more"
			refusal.RetryMS = 1_000 // with the one that the agent may have got meanwhile
			c.fail(refusal)
		}
	}
}

// checkToken compares in constant time, whatever the tokens' lengths.
func (s *Server) checkToken(given string) *Refusal {
	if s.Tokens == nil {
		return nil
	}
	const remedy = "give the agent the server's token with --token-file"
	tokens, err := s.Tokens()
	if err != nil {
		return &Refusal{Code: CodeToken, What: "the server cannot read its tokens: " + err.Error(), Remedy: "make its token file readable", RetryMS: 10_000}
	}
	sum, right := sha256.Sum256([]byte(given)), 0
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t))
		right |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	switch {
	case given == "":
		return &Refusal{Code: CodeToken, What: "no token was sent", Remedy: remedy}
	case right == 0:
		return &Refusal{Code: CodeToken, What: "the token is wrong", Remedy: remedy}
	}
	return nil
}
