package dialect

import (
	"encoding/json"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// heard takes a message of the engine's own threads.
func (e *engine) heard(at int64, m wire.Message) {
	switch m := m.(type) {
	case *wire.Arrived:
		e.front.sequence(m.ID).arrival = m.Wall
	case *wire.Queued:
		e.queued(m)
	case *wire.Scheduled:
		e.decided(m)
	case *wire.Done:
		e.done(at, m)
	case *wire.Finished:
		e.finished(&m.Finish)
	}
}

func (e *engine) queued(m *wire.Queued) {
	if m.Update || m.Repeat && e.sequences[m.Handle] != nil {
		return
	}
	q := e.front.sequence(m.ID)
	q.engine, q.handle = e, m.Handle
	q.prompt, q.most = int(m.Prompt), int(m.Max)
	q.queued = seconds(m.Time)
	if m.Wall != 0 {
		q.arrival = m.Wall
	}
	e.sequences[m.Handle] = q
}

// decided takes a decision: who runs, and what vLLM calls context and generation of it.
func (e *engine) decided(m *wire.Scheduled) {
	e.now.running, e.now.waiting, e.free = int(m.Running), int(m.Waiting), int(m.Free)
	if m.SkipsListed {
		e.deferred = 0
		for _, s := range m.Skips {
			if deferring(s) {
				e.deferred++
			}
		}
	}
	for _, p := range m.Preemptions {
		if q := e.sequences[p.Victim]; q != nil {
			e.lost++
			q.lost = append(q.lost, e.lost)
			q.holds = false
			delete(e.starting, q)
		}
	}
	for _, h := range m.Leaves {
		delete(e.starting, e.sequences[h])
	}
	if m.Full {
		clear(e.starting)
	}
	for i := range m.Joins {
		e.join(m.Time, &m.Joins[i])
	}
	for _, c := range m.Changes {
		if x := e.starting[e.sequences[c.Handle]]; x != nil {
			x.tokens = int(c.Tokens)
		}
	}
	for _, d := range m.Drafts {
		e.drafts = append(e.drafts, drafted{m.Iteration, d.Handle, int(d.Tokens)})
	}

	it := iteration{number: m.Iteration, launched: m.Returned, generation: int(m.Members), generationTokens: int(m.Tokens)}
	for q, x := range e.starting {
		it.context++
		it.contextTokens += x.tokens
		if x.before += x.tokens; x.before >= q.prompt { // it has output from here on
			q.past = true
			delete(e.starting, q)
		}
	}
	it.generation -= it.context
	it.generationTokens -= it.contextTokens
	e.open = append(e.open, it)
}

// join takes a member that was none. Of those with output their number is enough.
func (e *engine) join(at int64, j *wire.Join) {
	q := e.sequences[j.Handle]
	if q == nil {
		return
	}
	q.holds = true
	if q.scheduled == 0 {
		q.scheduled = seconds(at)
		q.cached = int(j.Cached)
		if on, _ := e.hello.Settings["enable_prefix_caching"].(bool); on {
			e.now.lookups++
			e.now.queries += int(j.Total)
			e.now.hits += int(j.Cached)
		}
	}
	if !q.past {
		e.starting[q] = &start{tokens: int(j.Tokens), before: int(j.Before)}
	}
}

// start is a member without output: the tokens that it computes, after those before.
type start struct{ tokens, before int }

// drafted are the speculative tokens of a member of an iteration.
type drafted struct {
	iteration uint64
	handle    uint32
	tokens    int
}

// done takes a completion. What it brings waits for the front end to take it; if there is nothing for anybody, its state goes at once.
func (e *engine) done(at int64, m *wire.Done) {
	e.verified(m)
	for i := range m.Finishes {
		e.finished(&m.Finishes[i])
	}
	e.now.usage, e.now.deferred = e.usage(), min(e.deferred, e.now.waiting)
	if i := slices.IndexFunc(e.open, func(it iteration) bool { return it.number == m.Iteration }); i >= 0 {
		it := e.open[i]
		e.open = slices.Delete(e.open, 0, i+1)
		it.done, it.usage = m.Time, e.now.usage
		e.iterated(at, &it)
	}
	s := e.now
	e.now.queries, e.now.hits, e.now.lookups, e.now.drafts = 0, 0, 0, nil
	if m.Tokens == 0 && len(m.Finishes) == 0 || len(e.front.processes) == 0 {
		e.tell(at, &s)
		return
	}
	e.sent = append(e.sent, message{key: m.Key, emits: slices.Clone(m.Emits), state: s, preemptions: e.lost})
	if len(e.sent) > mostSent {
		e.tell(at, &e.sent[0].state)
		e.sent = slices.Delete(e.sent, 0, 1)
	}
}

// iterated tells of a completion.
func (e *engine) iterated(at int64, it *iteration) {
	for _, l := range e.front.hears {
		l.iterated(e, at, it)
	}
}

// verified notes what became of the drafts of an iteration: all but the last token that a member emits were drafts.
func (e *engine) verified(m *wire.Done) {
	e.drafts = slices.DeleteFunc(e.drafts, func(d drafted) bool {
		if d.iteration != m.Iteration {
			return d.iteration < m.Iteration
		}
		taken := 0
		if i := slices.IndexFunc(m.Emits, func(x wire.Emit) bool { return x.Handle == d.handle }); i >= 0 {
			taken = max(0, int(m.Emits[i].Tokens)-1)
		}
		e.now.drafts = append(e.now.drafts, draft{d.tokens, taken})
		return true
	})
}

// mostSent is how many messages may be on their way to a front end. More were lost.
const mostSent = 1 << 12

// usage is the share of the KV cache that live sequences hold, as vLLM computes it.
func (e *engine) usage() float64 {
	if e.room <= 0 {
		return 0
	}
	return 1 - float64(e.free)/float64(e.room)
}

// finished takes the end of a sequence in the engine, and gives back its blocks: all of them, though another may share some. What is free
// is told again with the next decision; without a live sequence all is.
func (e *engine) finished(f *wire.Finish) {
	q := e.sequences[f.Handle]
	if q == nil {
		return
	}
	delete(e.sequences, f.Handle)
	delete(e.starting, q)
	if q.holds {
		e.now.running = max(0, e.now.running-1)
		if block := number(e.hello.Settings, "block_size"); block > 0 {
			e.free = min(e.room, e.free+(q.prompt+int(f.Output)+block-2)/block) // its last token is not computed
		}
	} else {
		e.now.waiting = max(0, e.now.waiting-1)
	}
	if len(e.sequences) == 0 {
		e.free = e.room
	}
	q.left = true
	e.front.release(q)
}

func deferring(s wire.SkipEntry) bool {
	switch s.Reason {
	case ledger.SkipGrammar, ledger.SkipAdapterLimit, ledger.SkipRemoteKV, ledger.SkipStaleOutput:
		return true
	case ledger.SkipOther:
		return s.Code == 3 || s.Code == 4 // waits for streamed input; put aside by a connector
	}
	return false
}

// number is a setting that is a number, 0 where it is none.
func number(settings map[string]any, name string) int {
	switch v := settings[name].(type) {
	case json.Number:
		n, _ := v.Int64()
		return int(n)
	case float64:
		return int(v)
	case int:
		return v
	}
	return 0
}

// seconds are those of a monotonic time, as Python's time.monotonic gives them.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }
