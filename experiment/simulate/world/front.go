package world

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Bytes of a streamed chunk: what surrounds a token, and the token.
const (
	chunkBytes = 176
	tokenBytes = 4
)

// tracked is what one exchange costs a front end beside what [Front] says: the end of an answer, the sight of a disconnect.
const tracked = 20 * time.Microsecond

// Server is a replica's host and front end: one thread, which does one thing after the other.
type Server struct {
	Front // its costs, which may be changed while it runs

	world       *World
	config      *Replica
	machine     *machine
	incarnation string
	loop        *source
	ranks       []*Engine
	place       int           // among the replicas
	busy        time.Duration // it does something up to then
	stalled     time.Duration
	refuse      int // the status that it answers everything with; 0 = it serves
	exchanges   uint32
	handles     uint32
	last        []uint32 // handles of the last delivery
	told        wire.Delivered
	spare       []*batch
	submitted   []int // by rank: sequences on their way to it
	open        map[*exchange]bool
	dead        bool // its processes have ended
}

// newServer starts the processes of a replica on a host. before is what ran there, whose GPUs it takes over; nil = nothing.
func (w *World) newServer(r *Replica, place int, m *machine, before *Server) (*Server, error) {
	s := &Server{world: w, config: r, Front: r.Front, machine: m, incarnation: fmt.Sprintf("%016x", w.random.Uint64()), place: place, open: map[*exchange]bool{}}
	var err error
	if s.loop, err = w.open(s.machine, wire.Hello{Engine: wire.Engine{Name: "vllm", Version: r.Ranks[0].Version, Deployment: w.config.Name, Replica: r.Name, Incarnation: s.incarnation},
		Role: "frontend", Thread: "loop", PID: s.machine.process(), Settings: map[string]any{},
		Capabilities: map[string]bool{"received": true, "submitted": true, "answered": true, "delivered": true}}); err != nil {
		return nil, err
	}
	for i := range r.Ranks {
		var devices []*Device
		if before != nil && i < len(before.ranks) {
			devices = before.ranks[i].devices
		}
		e, err := w.newEngine(s, i, &r.Ranks[i], devices)
		if err != nil {
			return nil, err
		}
		s.ranks = append(s.ranks, e)
	}
	s.submitted = make([]int, len(s.ranks))
	return s, nil
}

// Name is the replica's.
func (s *Server) Name() string { return s.config.Name }

// Ranks counts its engines.
func (s *Server) Ranks() int { return len(s.ranks) }

// StallFront lets the front end's process do nothing for a time.
func (s *Server) StallFront(d time.Duration) { s.stalled = max(s.stalled, s.world.now+d) }

// StallHost lets all processes of the host do nothing for a time.
func (s *Server) StallHost(d time.Duration) {
	s.StallFront(d)
	for _, e := range s.ranks {
		e.Stall(d)
	}
}

// Refuse lets the front end answer everything that comes from now on with an HTTP status; 0 lets it serve.
func (s *Server) Refuse(status int) { s.refuse = status }

// Skew moves the host's wall clock to so much ahead of the true time.
func (s *Server) Skew(d time.Duration) { s.machine.skew = d }

func (s *Server) mono(t time.Duration) int64 { return s.machine.mono(t) }

// take begins a piece of work: when the thread gets to it.
func (s *Server) take() time.Duration { return max(s.world.now, s.busy, s.stalled) }

// receive accepts an attempt, and hands its sequences to an engine.
func (s *Server) receive(x *exchange) {
	if s.dead {
		s.cut(x)
		return
	}
	s.open[x] = true
	t := s.take()
	s.exchanges++
	x.http = s.exchanges
	if s.loop.heard() {
		s.loop.record(t, &wire.Received{Time: s.mono(t), HTTP: x.http, RequestID: x.id, Traceparent: x.traceparent, Path: "/v1/completions"})
	}
	s.busy = t + s.Front.Request
	if status := s.refusal(x); status != 0 {
		x.status = status
		s.end(x, s.busy, wire.EndComplete)
		return
	}
	s.busy += time.Duration(x.PromptTokens) * s.Front.Token
	e := s.leastBusy()
	external := "cmpl-" + x.id + "-0"
	internal := external + "-" + suffix(s.world.random.Uint32())
	n := x.Sequences()
	x.left = n
	for i := range n {
		s.submit(x, e, i, n, internal, external, t)
	}
}

// suffix is the eight digits that vLLM appends to tell requests of the same name apart.
func suffix(n uint32) string { return fmt.Sprintf("%08x", n) }

// refusal is the HTTP status with which an attempt is refused, 0 if it is not.
func (s *Server) refusal(x *exchange) int {
	if s.refuse != 0 {
		return s.refuse
	}
	if x.PromptTokens+x.OutputTokens > s.ranks[0].settings.MaxLength {
		return 400
	}
	return 0
}

func (s *Server) submit(x *exchange, e *Engine, i, n int, internal, external string, received time.Duration) {
	s.handles++
	q := &sequence{exchange: x, index: i, engine: e, front: s.handles, id: internal, external: external, wall: s.machine.wall(received)}
	if n > 1 {
		q.id, q.parent = strconv.Itoa(i)+"_"+internal, internal
	}
	q.asks = simulate.Request{ID: q.id, Prompt: x.PromptTokens, Max: x.OutputTokens, Length: x.traits.Length, Priority: x.Priority,
		Arrival: int64(received), Adapter: x.traits.Adapter, Grammar: x.traits.Grammar > 0 || x.traits.BadGrammar}
	if e.settings.PrefixCaching {
		q.asks.Hashes = x.hashes(e.settings.BlockSize)
	}
	q.book = ledger.Sequence{Logprobs: logprobs(x.Logprobs), PromptLogprobs: logprobs(x.PromptLogprobs), Features: x.traits.features(q.asks.Grammar)}
	x.sequences = append(x.sequences, q)
	at := s.busy
	s.busy += tracked
	if s.loop.heard() {
		s.loop.record(at, &wire.Submitted{Time: s.mono(at), HTTP: x.http, Handle: q.front, Index: uint32(i), Prompt: uint32(x.PromptTokens), ID: q.id, External: external, Parent: q.parent})
	}
	rank := e.scheduling.hello.Engine.Rank
	s.submitted[rank]++
	s.world.agenda.add(at+s.Front.Hop, func() {
		if s.dead {
			return
		}
		s.submitted[rank]--
		e.arrive(q)
	})
}

func (t *Traits) features(grammar bool) ledger.Feature {
	f := t.Features
	if grammar {
		f |= ledger.FeatureGrammar
	}
	if t.Adapter != 0 {
		f |= ledger.FeatureAdapter
	}
	return f
}

func logprobs(n *int) int16 {
	switch {
	case n == nil:
		return wire.LogprobsNone
	case *n == experiment.AllLogprobs:
		return wire.LogprobsAll
	}
	return int16(*n)
}

// leastBusy is the rank that vLLM's front end would choose: who waits counts four times who runs.
func (s *Server) leastBusy() *Engine {
	best, least := s.ranks[0], -1
	for i, e := range s.ranks {
		if load := 4*(e.Waiting()+len(e.inbox)+s.submitted[i]) + e.Running(); least < 0 || load < least {
			best, least = e, load
		}
	}
	return best
}

// batch is one iteration's output on its way to the front end.
type batch struct {
	server  *Server
	key     float64
	parts   []part
	deliver func()
}

type part struct {
	q      *sequence
	tokens int
	over   bool
}

func (s *Server) newBatch(key float64) *batch {
	var b *batch
	if n := len(s.spare); n > 0 {
		b, s.spare = s.spare[n-1], s.spare[:n-1]
		clear(b.parts)
	} else {
		b = &batch{server: s}
		b.deliver = b.handOver
	}
	b.key, b.parts = key, b.parts[:0]
	return b
}

func (b *batch) add(q *sequence, tokens int, over bool) {
	b.parts = append(b.parts, part{q, tokens, over})
}

// handOver gives an iteration's output to the streams.
func (b *batch) handOver() {
	s := b.server
	if s.dead {
		return
	}
	t := s.take()
	s.busy = t + s.Front.Batch
	if s.loop.heard() {
		s.tellDelivered(b, t)
	}
	for _, p := range b.parts {
		if p.q.answered {
			continue
		}
		s.busy += s.Front.Output
		x := p.q.exchange
		x.output += uint32(p.tokens)
		if p.over {
			s.answer(p.q, s.busy)
		}
		if x.status != 0 || p.tokens > 0 {
			s.chunk(x, s.busy)
		}
		if p.over && x.left == 0 {
			s.flush(x)
		}
	}
	s.spare = append(s.spare, b)
}

// tellDelivered tells whose output an iteration had.
func (s *Server) tellDelivered(b *batch, t time.Duration) {
	m := &s.told
	m.Time, m.Key, m.Returned, m.Handles = s.mono(t), b.key, s.mono(s.busy), m.Handles[:0]
	for _, p := range b.parts {
		if !p.q.answered {
			m.Handles = append(m.Handles, p.q.front)
		}
	}
	if m.Same = slices.Equal(m.Handles, s.last); m.Same {
		m.Handles = m.Handles[:0]
	} else {
		s.last = append(s.last[:0], m.Handles...)
	}
	s.loop.record(t, m)
}

// answer ends a sequence at the front end.
func (s *Server) answer(q *sequence, t time.Duration) {
	q.answered = true
	q.left--
	if !s.loop.heard() {
		return
	}
	m := wire.Answered{Time: s.mono(t), Handle: q.front, Reason: reasonOf(q), Output: uint32(q.of.Output())}
	switch {
	case q.traits.BadGrammar:
		m.Reason = ledger.FinishError
	case m.Reason == ledger.FinishStop:
		m.By = wire.ByToken
	}
	s.loop.record(t, &m)
}

// chunk sends what there is for a client, unless the last send has not returned: then it goes with the next.
func (s *Server) chunk(x *exchange, t time.Duration) {
	if t < x.sendable {
		x.pending = true
		return
	}
	x.pending = false
	if x.chunks == 0 {
		x.status = 200
		if s.loop.heard() {
			s.loop.record(t, &wire.FirstByte{Time: s.mono(t), HTTP: x.http, Status: 200})
		}
	}
	x.chunks++
	x.bytes += chunkBytes + tokenBytes*uint64(x.output-x.sent)
	x.sent = x.output
	x.sendable = x.read(t)
	x.wait += x.sendable - t
}

// flush sends the rest of an answer, as soon as the client lets it.
func (s *Server) flush(x *exchange) {
	if x.sendable <= s.busy {
		s.close(x)
		return
	}
	s.world.agenda.add(x.sendable, func() { s.close(x) })
}

func (s *Server) close(x *exchange) {
	if x.over || s.dead {
		return
	}
	s.busy = s.take() + tracked
	if x.pending {
		s.chunk(x, s.busy)
		if x.sendable > s.busy {
			s.flush(x)
			return
		}
	}
	if x.status == 0 {
		x.status = 500 // it ended without output
	}
	s.end(x, s.busy, wire.EndComplete)
}

// disconnect is the front end seeing that a client has gone.
func (s *Server) disconnect(x *exchange) {
	if x.over || s.dead {
		return
	}
	t := s.take()
	s.busy = t + tracked
	for _, q := range x.sequences {
		if q.answered {
			continue
		}
		q.answered = true
		if s.loop.heard() {
			s.loop.record(t, &wire.Answered{Time: s.mono(t), Handle: q.front, Reason: ledger.FinishAbort, By: wire.ByClient})
		}
		s.world.agenda.add(t+s.Front.Hop, func() { q.engine.abort(q) })
	}
	x.disconnected = t
	s.end(x, s.busy, wire.EndDisconnected)
}

// end is the last byte of an exchange.
func (s *Server) end(x *exchange, t time.Duration, how wire.ExchangeEnd) {
	x.over = true
	delete(s.open, x)
	s.world.exchanges[s.place]--
	if s.loop.heard() {
		m := wire.LastByte{Time: s.mono(t), HTTP: x.http, Status: uint16(x.status), End: how, Chunks: x.chunks, Bytes: x.bytes, Wait: uint64(x.wait)}
		if x.disconnected > 0 {
			m.Disconnect = s.mono(x.disconnected)
		}
		s.loop.record(t, &m)
	}
	if how == wire.EndComplete {
		x.finish(t)
	}
}
