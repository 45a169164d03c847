package world

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/wire"
)

// Limits of what a client's message holds.
const (
	mostGaps    = 1 << 16
	mostAttempt = 255
)

// bufferedChunks fit between a front end and a slow reader unless [Client.Buffer] says otherwise: a socket's buffers.
const bufferedChunks = 64

// clients are all clients: one machine, one source.
type clients struct {
	world   *World
	machine *machine
	source  *source
	random  *rand.Rand
	taken   int // requests of the workload
	live    int // those that are not over
	message wire.Client
}

// request is one of the workload, over all of its attempts.
type request struct {
	experiment.Request
	id      string
	traits  Traits
	client  Client
	attempt int
	chain   []uint64
	block   int // tokens a block of the chain
}

// exchange is one attempt.
type exchange struct {
	*request
	server      *Server
	traceparent string
	sentAt      time.Duration
	number      int

	// At the front end.
	http         uint32
	status       int
	sequences    []*sequence
	left         int // sequences that are not answered
	output, sent uint32
	chunks       uint32
	bytes        uint64
	wait         time.Duration
	sendable     time.Duration // when the last send returned
	pending      bool          // output waits for that
	over         bool
	disconnected time.Duration

	// At the client.
	first, seen time.Duration // first and newest chunk
	gaps        []uint32
	ended       bool
}

func (w *World) newClients() (*clients, error) {
	c := &clients{world: w, machine: w.newMachine("clients", 0), random: rand.New(rand.NewPCG(w.config.Seed, 0x636c69656e74))}
	var err error
	c.source, err = w.open(c.machine, wire.Hello{Role: "client", Thread: "simulated", PID: c.machine.process(), Settings: map[string]any{}, Capabilities: map[string]bool{}})
	return c, err
}

// begin plans the first request.
func (c *clients) begin() {
	line, err := c.world.config.Workload.Next()
	if r := c.take(&line, err); r != nil {
		c.plan(r)
	}
}

// plan plans a request at its time, and behind it the next.
func (c *clients) plan(r *request) {
	c.world.agenda.add(max(r.At, c.world.now), func() {
		c.send(r)
		c.begin()
	})
}

// take takes up a request that the workload gave, nil if it gave none.
func (c *clients) take(line *experiment.Request, err error) *request {
	if err == nil {
		err = line.Validate()
	}
	if err != nil {
		if !errors.Is(err, io.EOF) {
			c.world.fail(fmt.Errorf("request %d: %w", c.taken+1, err))
		}
		return nil
	}
	r := &request{Request: *line, id: line.ID}
	if r.id == "" {
		r.id = "sim-" + strconv.Itoa(c.taken)
	}
	r.Prefix = slices.Clone(r.Prefix)
	if c.world.config.Traits != nil {
		r.traits = c.world.config.Traits(&r.Request)
	}
	c.taken++
	return r
}

// send begins the first attempt of a request.
func (c *clients) send(r *request) {
	r.client = c.world.config.Client
	if r.traits.Client != nil {
		r.client = *r.traits.Client
	}
	c.world.summary.Requests++
	c.live++
	c.attempt(r)
}

// over tells the workload that a request has ended, and sends what follows from it.
func (c *clients) over(r *request) {
	c.live--
	line, follows, err := c.world.config.Workload.Finished(&r.Request, c.world.now)
	if err == nil && !follows {
		return
	}
	if next := c.take(&line, err); next != nil {
		c.world.agenda.add(max(next.At, c.world.now), func() { c.send(next) })
	}
}

// attempt sends a request.
func (c *clients) attempt(r *request) {
	w := c.world
	r.attempt++
	w.summary.Attempts++
	n := w.router.Pick(w.exchanges, r.hashes(w.replicas[0].ranks[0].settings.BlockSize))
	x := &exchange{request: r, server: w.replicas[n], sentAt: w.now, number: r.attempt}
	w.exchanges[n]++
	if r.Traceparent != experiment.TraceOff {
		x.traceparent = string(r.Traceparent)
		if r.Traceparent == "" || r.Traceparent == experiment.TraceOn {
			x.traceparent = fmt.Sprintf("00-%016x%016x-%016x-01", c.random.Uint64(), c.random.Uint64()|1, c.random.Uint64()|1)
		}
	}
	w.later(r.client.Network, func() { x.server.receive(x) })
	switch after, timeout := r.CancelAfter, r.client.Timeout; {
	case after > 0 && (timeout == 0 || after < timeout):
		w.later(after, func() { x.leave(wire.OutcomeCancelled) })
	case timeout > 0:
		w.later(timeout, func() { x.leave(wire.OutcomeTimeout) })
	}
}

// hashes are the chained block hashes of the prompt, for blocks of a size.
func (r *request) hashes(block int) []uint64 {
	if r.block != block {
		r.chain, r.block = blockHashes(&r.Request, r.id, r.traits.Adapter, block), block
	}
	return r.chain
}

// read lets a chunk that is sent at a time travel to the client, and returns when the front end's send returns: at once, unless the
// client is slow and what lies between them is full.
func (x *exchange) read(t time.Duration) (returned time.Duration) {
	comes := x.passed(t) + x.client.Network
	read := max(comes, x.seen) + x.client.Read
	x.chunk(read)
	if x.client.Read == 0 {
		return t
	}
	buffer := x.client.Buffer
	if buffer == 0 {
		buffer = bufferedChunks
	}
	return max(t, read-x.client.Network-time.Duration(buffer)*x.client.Read)
}

// passed is when a proxy passes on what is sent at a time: at full intervals since the request was sent.
func (x *exchange) passed(t time.Duration) time.Duration {
	every := x.client.Collect
	if every == 0 {
		return t
	}
	return x.sentAt + (t-x.sentAt+every-1)/every*every
}

// chunk is the client having read one.
func (x *exchange) chunk(at time.Duration) {
	before := x.seen
	if x.first == 0 {
		x.first, before = at, x.sentAt
	}
	x.seen = at
	if len(x.gaps) < mostGaps && x.server.loop.heard() {
		x.gaps = append(x.gaps, uint32(micros(at-x.sentAt)-micros(before-x.sentAt)))
	}
	if int(x.chunks) == x.CancelChunks && x.CancelChunks > 0 {
		x.server.world.agenda.add(at, func() { x.leave(wire.OutcomeCancelled) })
	}
}

func micros(d time.Duration) int64 { return (int64(d) + 500) / 1000 }

// finish is the end of a whole answer, or of a refusal, on its way to the client.
func (x *exchange) finish(t time.Duration) {
	outcome := wire.OutcomeComplete
	if x.status != 200 {
		outcome = wire.OutcomeHTTPError
	}
	x.server.world.agenda.add(max(t+x.client.Network, x.seen), func() { x.done(outcome) })
}

// leave is the client hanging up.
func (x *exchange) leave(outcome wire.Outcome) {
	if x.ended {
		return
	}
	x.server.world.later(x.client.Network, func() { x.server.disconnect(x) })
	x.done(outcome)
}

// done is the end of an attempt for its client.
func (x *exchange) done(outcome wire.Outcome) {
	if x.ended {
		return
	}
	x.ended = true
	w := x.server.world
	w.clients.tell(x, outcome)
	x.gaps = nil
	again := false
	switch outcome {
	case wire.OutcomeComplete:
		w.summary.Complete++
	case wire.OutcomeCancelled:
		w.summary.HungUp++
	case wire.OutcomeTimeout:
		w.summary.TimedOut++
		again = true
	case wire.OutcomeConnectionError:
		w.summary.Broken++
		again = true
	case wire.OutcomeHTTPError:
		w.summary.Refused++
		again = x.status != 400
	}
	if again && x.attempt <= x.client.Retries {
		w.later(x.client.Backoff<<min(x.attempt-1, 16), func() { w.clients.attempt(x.request) })
		return
	}
	w.clients.over(x.request)
}

// had is what the client has had by a time: gaps between chunks, and tokens. Chunks that were still on their way when it left are not
// among them; of those each held one token, or more where the client read slowly.
func (x *exchange) had(by time.Duration) (gaps []uint32, tokens uint32) {
	after, left := int64(0), micros(by-x.sentAt)
	for i, gap := range x.gaps {
		if after += int64(gap); after > left {
			return x.gaps[:i], x.sent - min(x.sent, uint32(len(x.gaps)-i))
		}
	}
	return x.gaps, x.sent
}

// tell writes what a client saw of an attempt.
func (c *clients) tell(x *exchange, outcome wire.Outcome) {
	if !c.source.heard() {
		return
	}
	now := c.world.now
	gaps, tokens := x.had(now)
	m := &c.message
	*m = wire.Client{Time: c.machine.mono(x.sentAt), Planned: c.machine.mono(x.At), End: c.machine.mono(now), Status: uint16(x.status), Outcome: outcome,
		Attempt: uint8(min(x.number, mostAttempt)), Prompt: uint32(x.PromptTokens), Output: tokens, Gaps: gaps, RequestID: x.id, Traceparent: x.traceparent, Class: x.Class}
	if x.first > 0 && x.first <= now {
		m.First = c.machine.mono(x.first)
	}
	if x.status == 200 {
		m.ResponseID = "cmpl-" + x.id
	}
	switch outcome {
	case wire.OutcomeConnectionError:
		m.Error = "connection reset"
	case wire.OutcomeHTTPError:
		m.Error = "HTTP " + strconv.Itoa(x.status)
	}
	c.source.record(now, m)
}
