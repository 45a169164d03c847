package world

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// What an engine's loop costs beside its iterations. The first is of the right order, no more is claimed.
const (
	takingUp = 30 * time.Microsecond // a request from the inbox
	yielding = time.Millisecond      // before the next decision, where somebody waits and nobody could be scheduled: vLLM sleeps so long
)

// Engine is a scheduler loop in a world.
type Engine struct {
	world     *World
	server    *Server
	rank      *Rank
	settings  simulate.Settings
	scheduler *simulate.Scheduler
	random    *rand.Rand // which speculated tokens are accepted
	devices   []*Device
	depth     int

	scheduling, input, worker *source
	log                       cacheLog
	recorder                  decisionRecorder

	inbox     []inbound
	sequences map[*simulate.Sequence]*sequence // live
	flights   []*flight                        // decided and not done, the oldest first
	spare     []*flight
	iteration uint64
	deviceEnd time.Duration // up to which the devices are busy
	free      time.Duration // up to which the loop is busy with what it has taken up last
	looping   bool          // its next turn is planned
	leavers   bool          // somebody has finished since the last decision: the engine makes one more, to let go of it
	turn      func()
	finish    func()

	accept  float64       // probability
	slow    float64       // factor on what the host does
	stalled time.Duration // its process does nothing until then
	hung    bool          // its devices never come to an end
}

// inbound is what waits for the loop: a sequence, or its abort.
type inbound struct {
	sequence *sequence
	abort    bool
}

// flight is an iteration that has been decided and is not done.
type flight struct {
	simulate.Decision
	who       []*sequence // by member
	iteration uint64
	launched  time.Duration
	start     time.Duration // of its devices
	end       time.Duration
	took      timing.Took
	own       []time.Duration // by device: how long it computes
	emitted   int
}

// sequence is one stream of tokens, as its engine and its front end know it.
type sequence struct {
	*exchange
	index    int
	of       *simulate.Sequence
	engine   *Engine
	asks     simulate.Request
	book     ledger.Sequence // what the work of its iterations depends on
	front    uint32          // handle at the front end
	id       string
	external string
	parent   string
	wall     float64 // arrival at the front end
	arrived  time.Duration
	queued   time.Duration
	redo     int // tokens below this were computed before a preemption
	answered bool
	note     noted
}

func (w *World) newEngine(s *Server, rank int, k *Rank, devices []*Device) (*Engine, error) {
	rules, settings, err := settingsOf(k)
	if err != nil {
		return nil, fmt.Errorf("replica %q, rank %d: %w", s.config.Name, rank, err)
	}
	e := &Engine{world: w, server: s, rank: k, settings: settings, depth: 1, slow: 1, accept: k.Accept, sequences: map[*simulate.Sequence]*sequence{},
		random: rand.New(rand.NewPCG(w.config.Seed, w.random.Uint64()))}
	if settings.Asynchronous {
		e.depth = 2
	}
	if e.scheduler, err = simulate.New(rules, settings); err != nil {
		return nil, err
	}
	e.turn, e.finish = e.takeTurn, e.complete
	h := wire.Hello{Engine: wire.Engine{Name: "vllm", Version: k.Version, Deployment: w.config.Name, Replica: s.config.Name, Rank: rank, Incarnation: s.incarnation},
		Role: "engine", Thread: "scheduler", PID: s.machine.process(), Depth: e.depth, Settings: e.hello(), Capabilities: capabilities(settings.PrefixCaching),
		Hashes: wire.HashSettings{On: settings.PrefixCaching, Algorithm: "simulated", Stable: true}}
	if e.scheduling, err = w.open(s.machine, h); err != nil {
		return nil, err
	}
	h.Thread, h.Capabilities = "input", map[string]bool{"arrived": true}
	if e.input, err = w.open(s.machine, h); err != nil {
		return nil, err
	}
	for i, g := range k.GPUs {
		if i < len(devices) {
			e.devices = append(e.devices, devices[i])
			continue
		}
		d, err := w.newDevice(s, g, i)
		if err != nil {
			return nil, err
		}
		e.devices = append(e.devices, d)
	}
	if len(e.devices) > 0 {
		h.Role, h.Thread, h.Capabilities, h.PID = "worker", "steps", map[string]bool{"steps": true}, s.machine.process()
		if e.worker, err = w.open(s.machine, h); err != nil {
			return nil, err
		}
		for _, d := range e.devices {
			d.user = h.PID
		}
	}
	e.log.begin(e)
	return e, nil
}

// hello is the engine's settings; where its model knows no seconds, they say so.
func (e *Engine) hello() map[string]any {
	said := make(map[string]any, len(e.rank.Settings)+1)
	for name, value := range e.rank.Settings {
		said[name] = value
	}
	if timing.UnitOf(e.rank.Model) == timing.Ratio {
		said["simulated_time"] = "ratio: no duration of this engine is in seconds, only quotients of them mean anything"
	}
	return said
}

// capabilities are what a simulation's scheduler tells.
func capabilities(caching bool) map[string]bool {
	can := map[string]bool{"cache_filled": caching, "cache_evicted": caching}
	for _, name := range []string{"queued", "scheduled", "preemptions", "preemptors", "skips", "holders", "drafts", "done", "discarded", "finished", "cache_reset"} {
		can[name] = true
	}
	return can
}

// Settings are those that its decisions depend on.
func (e *Engine) Settings() simulate.Settings { return e.settings }

// Running and Waiting count its sequences, Inbox those that its loop has not taken up yet.
func (e *Engine) Running() int { return e.scheduler.Running() }
func (e *Engine) Waiting() int { return e.scheduler.Waiting() }
func (e *Engine) Inbox() int   { return len(e.inbox) }

// Check says what is wrong with its books.
func (e *Engine) Check() error { return e.scheduler.Check() }

// Devices are its GPUs.
func (e *Engine) Devices() []*Device { return e.devices }

// Stall lets its process do nothing for a time: stopped, swapped out, held by a lock. What its devices compute goes on.
func (e *Engine) Stall(d time.Duration) { e.stalled = max(e.stalled, e.world.now+d) }

// Slow stretches all that its host does by a factor; 1 = as the model says.
func (e *Engine) Slow(factor float64) { e.slow = factor }

// Hang lets its devices come to no end until [Engine.Resume].
func (e *Engine) Hang() { e.hung = true }

// Resume ends a [Engine.Hang].
func (e *Engine) Resume() {
	if !e.hung {
		return
	}
	e.hung = false
	if len(e.flights) > 0 && !e.looping {
		e.plan(e.world.now, e.finish)
	}
}

// Accept sets how likely the model is to agree with a speculated token from now on.
func (e *Engine) Accept(probability float64) { e.accept = probability }

// Pause holds its scheduler, or lets it go: nobody is admitted, or nobody gets a token though the loop goes on.
func (e *Engine) Pause(p simulate.Pause) { e.scheduler.Pause(p) }

// ResetCache preempts everybody and empties the prefix cache.
func (e *Engine) ResetCache() {
	lost := e.scheduler.Reset()
	for _, p := range lost {
		q := e.sequences[p.Victim]
		q.redo = max(q.redo, p.Lost)
	}
	e.recorder.reset(e, lost)
	e.scheduling.record(e.world.now, &wire.Cache{Time: e.mono(e.world.now), Kind: wire.CacheReset})
}

func (e *Engine) mono(t time.Duration) int64 { return e.server.machine.mono(t) }

// stall puts off what the process should do now, or drops it if the process has ended, and says whether it did.
func (e *Engine) stall(do func()) bool {
	if e.server.dead {
		return true
	}
	if e.world.now >= e.stalled {
		return false
	}
	e.world.agenda.add(e.stalled, do)
	return true
}

// arrive is the input thread taking in a sequence.
func (e *Engine) arrive(q *sequence) {
	if e.stall(func() { e.arrive(q) }) {
		return
	}
	q.arrived = e.world.now
	if e.input.heard() {
		e.input.record(q.arrived, &wire.Arrived{Time: e.mono(q.arrived), Wall: q.wall, ID: q.id, External: q.external})
	}
	e.inbox = append(e.inbox, inbound{sequence: q})
	e.wake()
}

// abort is the input thread taking in that a sequence is no longer wanted.
func (e *Engine) abort(q *sequence) {
	if e.stall(func() { e.abort(q) }) {
		return
	}
	e.inbox = append(e.inbox, inbound{q, true})
	e.wake()
}

func (e *Engine) wake() {
	if !e.looping && len(e.flights) == 0 {
		e.plan(max(e.world.now, e.free), e.turn)
	}
}

// plan says what the loop does next, and when.
func (e *Engine) plan(at time.Duration, do func()) {
	e.looping = true
	e.world.agenda.add(at, do)
}

// takeTurn is one pass of the loop: the inbox, then a decision if there is a place for one, then the oldest completion.
func (e *Engine) takeTurn() {
	if e.stall(e.turn) {
		return
	}
	e.looping = false
	t := e.takeUp(e.world.now)
	if e.scheduler.Running()+e.scheduler.Waiting() > 0 || e.leavers {
		f := e.decide(t)
		if len(f.Members) > 0 && len(e.flights) < e.depth && e.flights[0].end > f.launched {
			e.plan(f.launched, e.turn)
			return
		}
		t = f.launched
	}
	if len(e.flights) > 0 {
		e.plan(max(t, e.flights[0].end), e.finish)
	}
}

func (e *Engine) host(d time.Duration) time.Duration {
	return time.Duration(float64(max(d, 0)) * e.slow)
}

// takeUp empties the inbox, and returns when that is done.
func (e *Engine) takeUp(t time.Duration) time.Duration {
	for _, in := range e.inbox {
		if in.abort {
			e.drop(in.sequence, t)
			continue
		}
		e.queue(in.sequence, t)
		t += e.host(takingUp)
	}
	clear(e.inbox)
	e.inbox = e.inbox[:0]
	return t
}

// queue hands a sequence to the scheduler.
func (e *Engine) queue(q *sequence, t time.Duration) {
	of, err := e.scheduler.Add(q.asks)
	if err != nil {
		e.world.fail(err) // the front end has refused what does not fit
		return
	}
	q.of, q.queued = of, t
	e.sequences[of] = q
	e.recorder.queued(e, q)
	if of.Grammar {
		e.world.agenda.add(t+q.traits.Grammar, func() {
			if of.Finished() {
				return
			}
			if q.traits.BadGrammar {
				e.scheduler.GrammarFailed(of)
			} else {
				e.scheduler.GrammarReady(of)
			}
		})
	}
}

// drop ends a sequence that its client no longer wants.
func (e *Engine) drop(q *sequence, t time.Duration) {
	if q.of == nil || q.of.Finished() {
		return
	}
	e.scheduler.Abort(q.of)
	e.recorder.finished(e, q, t)
	e.leavers = true
	delete(e.sequences, q.of)
}

// decide makes a decision and launches it.
func (e *Engine) decide(t time.Duration) *flight {
	f := e.newFlight()
	e.scheduler.Decide(&f.Decision)
	e.leavers = false
	e.iteration++
	f.iteration = e.iteration
	for _, p := range f.Preempted {
		if q := e.sequences[p.Victim]; q != nil {
			q.redo = max(q.redo, p.Lost)
		}
	}
	var shape timing.Shape
	for i := range f.Members {
		m := &f.Members[i]
		q := e.sequences[m.Sequence]
		f.who = append(f.who, q)
		e.add(&shape, m, q)
	}
	if shape.Tokens > 0 {
		shape.Work[ledger.WorkIterations] = 1
		e.world.summary.Iterations++
	}
	f.took = e.rank.Model.Iteration(t, &shape)
	e.launch(f, t+e.host(f.took.Host))
	e.flights = append(e.flights, f)
	if e.scheduling.heard() {
		e.recorder.decided(e, f, t)
	}
	return f
}

// add adds a member's work to the shape of its iteration. What is prefill, decode and recompute is told apart as the ledger does.
func (e *Engine) add(shape *timing.Shape, m *simulate.Member, q *sequence) {
	phase := ledger.Decode
	switch {
	case m.Before < q.redo:
		phase = ledger.Recompute
	case m.Before < m.Sequence.Prompt:
		phase = ledger.Prefill
	}
	shape.Work = shape.Work.Add(ledger.IterationWork(&q.book, phase, uint32(m.Tokens), uint64(m.Before), m.Samples))
	shape.Sequences++
	shape.Tokens += m.Tokens
	if phase != ledger.Decode {
		shape.Prefills++
		if m.Samples {
			q.redo = 0
		}
	}
}

// launch gives an iteration to the devices: it is as slow as the slowest of them.
func (e *Engine) launch(f *flight, at time.Duration) {
	f.launched, f.start = at, max(at, e.deviceEnd)
	if len(f.Members) == 0 {
		f.end = f.start + max(f.took.Device, 0)
		return
	}
	longest := time.Duration(0)
	f.own = f.own[:0]
	for _, d := range e.devices {
		own := time.Duration(float64(f.took.Device) * d.stretch(f.took.Memory))
		f.own = append(f.own, own)
		longest = max(longest, own)
	}
	if len(e.devices) == 0 {
		longest = max(f.took.Device, 0)
	}
	f.end = f.start + longest
	e.deviceEnd = f.end
	for i, d := range e.devices {
		d.compute(f.start, f.start+f.own[i])
	}
}

// complete takes up the output of the oldest iteration.
func (e *Engine) complete() {
	if e.stall(e.finish) {
		return
	}
	e.looping = false
	if e.hung {
		return
	}
	f := e.flights[0]
	e.flights = append(e.flights[:0], e.flights[1:]...)
	t := e.world.now
	for i := range f.Members {
		if m := &f.Members[i]; m.Samples && m.Drafts > 0 {
			m.Accepted = e.accepted(m.Drafts)
		}
	}
	e.scheduler.Complete(&f.Decision)
	returned := t + e.host(f.took.Tail)
	e.free = returned
	out := e.server.newBatch(float64(e.mono(returned)) / 1e9)
	for i := range f.Members {
		m, q := &f.Members[i], f.who[i]
		f.emitted += m.Emitted
		if m.Emitted > 0 && !q.answered {
			out.add(q, m.Emitted, q.of.Finished())
		}
	}
	for _, of := range f.Failed {
		out.add(e.sequences[of], 0, true)
	}
	e.world.summary.Tokens += f.emitted
	if e.scheduling.heard() {
		e.recorder.done(e, f, t, returned)
		e.step(f)
	}
	for i := range f.Members {
		if of := f.Members[i].Sequence; of.Finished() {
			e.leavers = true
			delete(e.sequences, of)
		}
	}
	for _, of := range f.Failed {
		e.leavers = true
		delete(e.sequences, of)
	}
	if e.settings.Drafts > 0 && !e.settings.Asynchronous {
		e.scheduler.Each(func(q *simulate.Sequence) { e.scheduler.Draft(q, e.settings.Drafts) })
	}
	if len(out.parts) > 0 {
		e.world.agenda.add(returned+e.server.Front.Hop, out.deliver)
	} else {
		e.server.spare = append(e.server.spare, out)
	}
	next := returned + e.host(f.took.Gap)
	if len(f.Members) == 0 && len(e.flights) == 0 && e.scheduler.Running()+e.scheduler.Waiting() > 0 {
		next = returned + yielding
	}
	e.spare = append(e.spare, f)
	if len(e.flights) > 0 || len(e.inbox) > 0 || e.leavers || e.scheduler.Running()+e.scheduler.Waiting() > 0 {
		e.plan(next, e.turn)
	}
}

// accepted is how many of some speculated tokens the model agrees with: up to the first that it does not.
func (e *Engine) accepted(drafts int) int {
	for i := range drafts {
		if e.random.Float64() >= e.accept {
			return i
		}
	}
	return drafts
}

// step tells what the devices did.
func (e *Engine) step(f *flight) {
	if e.worker == nil || len(f.Members) == 0 {
		return
	}
	for i, own := range f.own {
		e.worker.record(f.end, &wire.Step{Time: e.mono(f.launched), Iteration: f.iteration, Rank: uint32(i), Padded: uint32(min(max(f.took.Padded, 0), math.MaxInt32)),
			Mode: uint8(f.took.Mode), Returned: e.mono(f.end), Device: uint64(own), Wait: uint64(f.end - f.start - own)})
	}
}

func (e *Engine) newFlight() *flight {
	if n := len(e.spare); n > 0 {
		f := e.spare[n-1]
		e.spare = e.spare[:n-1]
		clear(f.who)
		f.who, f.emitted = f.who[:0], 0
		return f
	}
	return &flight{}
}
