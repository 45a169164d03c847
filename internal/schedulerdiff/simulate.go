package main

import (
	"encoding/json"
	"fmt"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/fidelity"
	"github.com/whylate/whylate/ledger"
)

// simulation holds a simulated scheduler against the truth of one run, decision by decision: once from each state that was told
// (one step), once from an empty cache and only what the engine was given (free running). The third is what it costs to do
// nothing: taking each iteration for a repetition of the last.
type simulation struct {
	oneStep, free, baseline fidelity.Score
	reasons, rightReasons   int // why somebody was left out by a decision that is right and was traced
	wrongReason             string
	refused                 string // why this run was not simulated
}

// load is what an engine is given: what the simulation may know.
type load struct {
	requests map[string]simulate.Request
	accepted map[string][]int // of each verification, in order
}

func loadOf(truth []line) load {
	l := load{map[string]simulate.Request{}, map[string][]int{}}
	compiles := map[string]bool{}
	for i := range truth {
		switch t := &truth[i]; t.Event {
		case "queued":
			l.requests[t.ID] = simulate.Request{ID: t.ID, Prompt: int(t.Prompt), Max: int(t.Max), Priority: int(t.Priority), Arrival: int64(i),
				Adapter: t.Adapter, Grammar: t.Grammar, Hashes: t.Hashes}
		case "grammar":
			compiles[t.ID] = !t.Fails
		case "done":
			for id, n := range t.Accepted {
				l.accepted[id] = append(l.accepted[id], n)
			}
			for id, f := range t.Finished {
				r := l.requests[id]
				if ledger.FinishReason(f[0]) != ledger.FinishAbort && (!r.Grammar || compiles[id]) {
					r.Length = int(f[1])
					l.requests[id] = r
				}
			}
		}
	}
	return l
}

// simulated plays a run again. The engine's version and settings are those that its hello told.
func simulated(version string, hello map[string]any, truth []line) (*simulation, error) {
	var run struct{ Sessions bool }
	if err := json.Unmarshal(truth[0].Settings, &run); err != nil {
		return nil, err
	}
	c := &simulation{}
	if run.Sessions {
		c.refused = "streaming sessions"
		return c, nil
	}
	rules, s, err := simulate.FromHello(version, hello)
	if err != nil {
		return nil, err
	}
	l := loadOf(truth)
	if err := c.runFree(rules, s, l, truth); err != nil {
		return nil, err
	}
	return c, c.runSteps(rules, s, l, truth)
}

// runFree is given arrivals, ends from outside, lengths, grammars, pauses, resets and drafts, and never told what was decided.
func (c *simulation) runFree(rules simulate.Rules, settings simulate.Settings, l load, truth []line) error {
	s, err := simulate.New(rules, settings)
	if err != nil {
		return err
	}
	live := map[string]*simulate.Sequence{}
	var flight []*simulate.Decision
	var last *fidelity.Decided
	for i := range truth {
		switch t := &truth[i]; t.Event {
		case "queued":
			if live[t.ID], err = s.Add(l.requests[t.ID]); err != nil {
				return err
			}
		case "grammar":
			if t.Fails {
				s.GrammarFailed(live[t.ID])
			} else {
				s.GrammarReady(live[t.ID])
			}
		case "pause":
			s.Pause(simulate.Pause(t.Pause))
		case "reset":
			s.Reset()
		case "finished":
			s.Abort(live[t.ID])
		case "drafted":
			s.Each(func(q *simulate.Sequence) { s.Draft(q, t.Drafted[q.ID]) })
		case "scheduled":
			d := &simulate.Decision{}
			s.Decide(d)
			flight = append(flight, d)
			now := t.decided()
			notable := fidelity.Nontrivial(last, now)
			kind, words := fidelity.Differs(s, d, now)
			c.free.Add(t.N, notable, kind, words)
			if kind == "" {
				c.why(d, t)
			}
			kind, words = fidelity.Repeats(last, now)
			c.baseline.Add(t.N, notable, kind, words)
			last = now
		case "done":
			d := flight[0]
			flight = flight[1:]
			for k := range d.Members {
				m := &d.Members[k]
				if id := m.Sequence.ID; m.Samples && m.Drafts > 0 && len(l.accepted[id]) > 0 {
					m.Accepted, l.accepted[id] = l.accepted[id][0], l.accepted[id][1:]
				}
			}
			s.Complete(d)
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("after line %d of the truth: %w", i+1, err)
		}
	}
	return nil
}

// why compares the reasons for which a right decision left sequences out with those that the engine's branches had.
func (c *simulation) why(d *simulate.Decision, t *line) {
	own := map[string]ledger.SkipReason{}
	for _, s := range d.Why.Skips {
		own[s.Sequence.ID] = s.Reason
	}
	for id, told := range t.Reasons {
		got, listed := own[id]
		if !listed {
			if got = d.Why.Stop; got == ledger.SkipKVBlocks && (d.Why.Head == nil || d.Why.Head.ID != id) {
				got = ledger.SkipHeadOfLine
			}
		}
		c.reasons++
		if got == ledger.SkipReason(told[0]) {
			c.rightReasons++
		} else if c.wrongReason == "" {
			c.wrongReason = fmt.Sprintf("iteration %d: %s: engine %v, simulated %v", t.N, id, ledger.SkipReason(told[0]), got)
		}
	}
}

// runSteps makes each decision before which the engine's state was told.
func (c *simulation) runSteps(rules simulate.Rules, settings simulate.Settings, l load, truth []line) error {
	grammars := map[string]bool{} // id: fails
	var paused simulate.Pause
	var before *state
	var last *fidelity.Decided
	for i := range truth {
		switch t := &truth[i]; t.Event {
		case "grammar":
			grammars[t.ID] = t.Fails
		case "pause":
			paused = simulate.Pause(t.Pause)
		case "state":
			before = t.State
		case "scheduled":
			now := t.decided()
			if before != nil {
				s, err := before.restore(rules, settings, paused, l, grammars)
				if err != nil {
					return fmt.Errorf("iteration %d: %w", t.N, err)
				}
				d := &simulate.Decision{}
				s.Decide(d)
				kind, words := fidelity.Differs(s, d, now)
				c.oneStep.Add(t.N, fidelity.Nontrivial(last, now), kind, words)
			}
			before, last = nil, now
		}
	}
	return nil
}

func (b *state) restore(rules simulate.Rules, settings simulate.Settings, paused simulate.Pause, l load, grammars map[string]bool) (*simulate.Scheduler, error) {
	all := map[string]*simulate.Sequence{}
	sequences := func(list []standing) (made []*simulate.Sequence) {
		for _, p := range list {
			r := l.requests[p.ID]
			r.Hashes = p.Hashes
			q := simulate.NewSequence(r, simulate.Progress{Tokens: p.Tokens, Computed: p.Computed, Placeholders: p.Placeholders, Drafts: p.Drafts,
				InFlight: p.InFlight, Stale: p.Stale, Next: p.Next, Cached: p.Cached, Drop: p.Drop, Prefilling: p.Prefilling, Blocks: p.Blocks})
			all[p.ID] = q
			made = append(made, q)
		}
		return made
	}
	s, err := simulate.Restore(rules, settings, simulate.State{Step: b.Step, Paused: paused, Running: sequences(b.Running), Waiting: sequences(b.Waiting),
		Held: sequences(b.Held), Free: b.Free, Cached: b.Cached})
	if err != nil {
		return nil, err
	}
	for id, q := range all {
		if fails, told := grammars[id]; told && fails {
			s.GrammarFailed(q)
		} else if told {
			s.GrammarReady(q)
		}
	}
	return s, nil
}

// decided is the decision that a line tells.
func (t *line) decided() *fidelity.Decided {
	d := &fidelity.Decided{Number: t.N, Members: make(map[string]fidelity.Share, len(t.Members)), Left: len(t.Waits) > 0,
		Running: int(t.Running), Waiting: int(t.Waiting), Free: int(t.Free)}
	for id, m := range t.Members {
		d.Members[id] = fidelity.Share{Tokens: int(m[0]), Before: int(m[1]), Drafts: int(t.Drafts[id]), Prompt: int(m[3])}
	}
	for _, p := range t.Preempted {
		if !p.Reset {
			d.Preempted = append(d.Preempted, p.Victim)
		}
	}
	return d
}
