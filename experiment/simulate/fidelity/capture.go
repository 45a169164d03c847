package fidelity

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Result is how a simulation did that was given what one engine was given.
type Result struct {
	Engine   string `json:"engine"`
	Version  string `json:"version"`
	Settings string `json:"scheduling"` // synchronous or asynchronous, and by priority if so
	Refused  string `json:"refused,omitempty"`
	Free     Score  `json:"free_running"`
	Baseline Score  `json:"baseline"` // taking each decision for a repetition of the last
}

// ErrNoScheduler says that a recording holds no scheduler.
var ErrNoScheduler = errors.New("no scheduler in it: it takes the ring of an engine's scheduler thread (role engine, thread scheduler)")

// Check plays each engine of a recording again, free running: from the settings in its hello and an empty cache, with arrivals, ends
// from outside, output and its length, when grammars were ready, and the order of decisions and completions. What the engine decided
// it is never told, nor put right. An engine that cannot be played so is refused by name in its Result.
//
// load feeds the recording into a sink, once.
func Check(load func(wire.Sink) error) ([]Result, error) {
	c := &collector{Assembler: ingest.New(), runs: map[ledger.EngineID]*run{}, of: map[uint16]*run{}}
	if err := load(c); err != nil {
		return nil, err
	}
	book := c.Book()
	var all []Result
	for _, e := range book.Engines {
		r := c.runs[e.ID]
		if r == nil {
			continue
		}
		all = append(all, r.check(e))
	}
	if len(all) == 0 {
		return nil, ErrNoScheduler
	}
	return all, nil
}

// ReadCapture checks one capture; name is what errors call it.
func ReadCapture(in io.Reader, name string) ([]Result, error) {
	return Check(func(sink wire.Sink) error { return ingest.ReadCapture(in, name, sink) })
}

// collector builds a ledger, and keeps beside it what schedulers were given, in order.
type collector struct {
	*ingest.Assembler
	runs map[ledger.EngineID]*run
	of   map[uint16]*run
}

// run is what one scheduler was given, in the order of its ring, and where it decided and completed.
type run struct {
	hello  wire.Hello
	events []happening
	given  map[uint32]*given
	newest uint64 // decision
	err    error
}

// happening is one of those; q is nil for decisions, completions and resets.
type happening struct {
	kind     wire.Type // TypeQueued, TypeFinished, TypeScheduled, TypeDone, TypeCache (a reset)
	number   uint64
	q        *given
	accepted []accepted
}

type accepted struct {
	q      *given
	tokens int // sampled
}

// given is what a scheduler is given of one sequence.
type given struct {
	simulate.Request
	features ledger.Feature
	seq      *simulate.Sequence
	ready    uint64 // decision before which its grammar was ready, or had failed; 0 = none
	failed   bool
}

// Source implements [wire.Sink].
func (c *collector) Source(s wire.Source) (uint16, error) {
	id, err := c.Assembler.Source(s)
	if err != nil || s.Hello == nil {
		return id, err
	}
	h, err := wire.ParseHello(s.Hello)
	if err != nil || h.Role != "engine" || h.Thread != "scheduler" {
		return id, nil
	}
	if c.of[id] == nil {
		r := &run{hello: h, given: map[uint32]*given{}}
		c.of[id] = r
		c.runs[ledger.EngineID{Deployment: h.Engine.Deployment, Replica: h.Engine.Replica, Rank: h.Engine.Rank, Incarnation: h.Engine.Incarnation}] = r
	}
	return id, nil
}

// Frame implements [wire.Sink].
func (c *collector) Frame(id uint16, f wire.Frame) error {
	if r := c.of[id]; r != nil && r.err == nil {
		r.err = r.take(f)
	}
	return c.Assembler.Frame(id, f)
}

// take keeps what a frame says of what the scheduler was given.
func (r *run) take(f wire.Frame) error {
	m := wire.NewMessage(f.Type)
	switch f.Type {
	case wire.TypeQueued, wire.TypeHashes, wire.TypeCache, wire.TypeFinished, wire.TypeScheduled, wire.TypeDone:
	default:
		return nil
	}
	if err := wire.Decode(f, m); err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.Queued:
		r.queued(m)
	case *wire.Hashes:
		if q := r.given[m.Handle]; q != nil {
			q.extend(int(m.First), m.Hashes)
		}
	case *wire.Cache:
		r.cached(m)
	case *wire.Finished:
		if q := r.given[m.Handle]; q != nil {
			r.events = append(r.events, happening{kind: f.Type, q: q})
		}
	case *wire.Scheduled:
		r.newest = m.Iteration
		r.events = append(r.events, happening{kind: f.Type, number: m.Iteration})
	case *wire.Done:
		r.done(m)
	}
	return nil
}

func (r *run) queued(m *wire.Queued) {
	if r.given[m.Handle] != nil || m.Update {
		return
	}
	q := &given{features: m.Features, Request: simulate.Request{ID: m.ID, Prompt: int(m.Prompt), Max: int(m.Max), Priority: int(m.Priority), Arrival: int64(m.Wall * 1e9),
		Grammar: m.Features&ledger.FeatureGrammar != 0}}
	r.given[m.Handle] = q
	r.events = append(r.events, happening{kind: wire.TypeQueued, q: q})
}

// cached takes the hashes of blocks that filled: those of output are what the model answered. A reset is something that happened to
// the scheduler.
func (r *run) cached(m *wire.Cache) {
	switch m.Kind {
	case wire.CacheReset:
		r.events = append(r.events, happening{kind: wire.TypeCache})
	case wire.CacheFilled:
		if q := r.given[m.Handle]; q != nil {
			q.extend(int(m.First)+int(m.Blocks)-len(m.Hashes), m.Hashes)
		}
	}
}

// extend appends hashes of blocks, the first of which has a number; those that leave a hole mean nothing.
func (q *given) extend(first int, hashes []uint64) {
	if known := len(q.Hashes) - first; known >= 0 && known < len(hashes) {
		q.Hashes = append(q.Hashes, hashes[known:]...)
	}
}

// done takes how many drafts the model accepted, and the lengths of what ended.
func (r *run) done(m *wire.Done) {
	h := happening{kind: wire.TypeDone, number: m.Iteration}
	for _, e := range m.Emits {
		if q := r.given[e.Handle]; q != nil {
			h.accepted = append(h.accepted, accepted{q, int(e.Tokens) + int(e.Discarded)})
		}
	}
	for _, f := range m.Finishes {
		q := r.given[f.Handle]
		switch {
		case q == nil:
		case f.Reason == ledger.FinishError:
			if q.failed = q.Grammar && f.Output == 0; q.failed { // the newest decision found it so, else an older one had
				q.ready = r.newest
			}
		default:
			q.Length = int(f.Output)
		}
	}
	r.events = append(r.events, h)
}

// check plays the run again.
func (r *run) check(e *ledger.Engine) Result {
	result := Result{Engine: e.ID.String(), Version: e.Name + " " + e.Version, Settings: "synchronous"}
	if e.Depth > 1 {
		result.Settings = "asynchronous"
	}
	if e.Settings["policy"] == "priority" {
		result.Settings += ", by priority"
	}
	rules, settings, err := simulate.FromHello(e.Version, r.hello.Settings)
	if err := cmp.Or(r.err, err); err != nil {
		result.Refused = err.Error()
		return result
	}
	if result.Refused = r.refusal(e, settings); result.Refused == "" {
		if err := r.play(e, rules, settings, &result); err != nil {
			result.Refused = err.Error()
		}
	}
	return result
}

// refusal says why an engine cannot be played again: what a recording does not tell, or the simulator does not know.
func (r *run) refusal(e *ledger.Engine, s simulate.Settings) string {
	switch {
	case len(e.Iterations) == 0:
		return "it made no decision"
	case e.Began != 1 || e.First != 1:
		return fmt.Sprintf("the recording begins at iteration %d: who ran before it and what the cache held is not known; record the engine from its start", e.First)
	case len(e.Gaps) > 0:
		return "the recording is not whole: " + e.Gaps[0].String()
	case s.PrefixCaching && !r.hello.Hashes.On:
		return "block hashes are off (hello, hashes.on), and the engine caches prefixes: what it found in the cache depends on them"
	case slices.ContainsFunc(e.Iterations, func(it ledger.Iteration) bool { return it.Stop == ledger.SkipPaused }):
		return "the scheduler was paused: when it was let go is not recorded"
	}
	for _, q := range e.Sequences {
		if q.Features&ledger.FeatureStreaming != 0 {
			return "streaming sessions are not simulated"
		}
		if q.Features&ledger.FeatureAdapter != 0 && s.Adapters > 0 {
			return "adapters were used: which one by whom is not recorded"
		}
	}
	return ""
}

// play makes the decisions again, and scores each.
func (r *run) play(e *ledger.Engine, rules simulate.Rules, settings simulate.Settings, result *Result) error {
	s, err := simulate.New(rules, settings)
	if err != nil {
		return err
	}
	truth := newSweep(e)
	var last *Decided
	var flight []*simulate.Decision
	var compiling []*given
	for _, h := range r.events {
		switch h.kind {
		case wire.TypeQueued:
			if q := truth.enter(h.q.ID); q != nil && h.q.Grammar {
				if !h.q.failed {
					h.q.ready = readyAt(q)
				}
				compiling = append(compiling, h.q)
			}
			if h.q.seq, err = s.Add(h.q.Request); err != nil {
				return err
			}
		case wire.TypeFinished:
			s.Abort(h.q.seq)
		case wire.TypeCache:
			s.Reset()
		case wire.TypeScheduled:
			compiling = slices.DeleteFunc(compiling, func(q *given) bool {
				if q.ready == 0 || q.ready > h.number {
					return false
				}
				if q.failed {
					s.GrammarFailed(q.seq)
				} else {
					s.GrammarReady(q.seq)
				}
				return true
			})
			d := &simulate.Decision{}
			s.Decide(d)
			flight = append(flight, d)
			now := truth.at(h.number)
			notable := Nontrivial(last, now)
			kind, words := Differs(s, d, now)
			result.Free.Add(h.number, notable, kind, words)
			kind, words = Repeats(last, now)
			result.Baseline.Add(h.number, notable, kind, words)
			last = now
		case wire.TypeDone:
			if len(flight) == 0 {
				return fmt.Errorf("iteration %d is done, and was not decided", h.number)
			}
			d := flight[0]
			flight = flight[1:]
			truth.done(h.number)
			accept(d, h.accepted)
			s.Complete(d)
			if settings.Drafts > 0 && !settings.Asynchronous {
				s.Each(func(q *simulate.Sequence) { s.Draft(q, settings.Drafts) })
			}
		}
	}
	return s.Check()
}

// accept tells a decision how many of its drafts the model accepted: none where the recording is silent, since one token came out then.
func accept(d *simulate.Decision, told []accepted) {
	for i := range d.Members {
		m := &d.Members[i]
		for _, a := range told {
			if a.q.seq == m.Sequence && m.Drafts > 0 {
				m.Accepted = max(a.tokens-1, 0)
			}
		}
	}
}

// readyAt is the decision before which a sequence's grammar was ready: the one after the last that passed it over for that. Where none
// did, it was ready before anybody asked.
func readyAt(q *ledger.Sequence) uint64 {
	ready := uint64(1)
	for _, k := range q.Skips {
		if k.Reason == ledger.SkipGrammar {
			ready = k.Last + 1
		}
	}
	return ready
}
