package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/ledger"
)

// simulation holds a simulated scheduler against the truth of one run, decision by decision: once from each state that was told
// (one step), once from an empty cache and only what the engine was given (free running). The third is what it costs to do
// nothing: taking each iteration for a repetition of the last.
type simulation struct {
	oneStep, free, baseline score
	refused                 string // why this run was not simulated
}

// score counts decisions that are as the engine's.
type score struct {
	decisions, right        int
	nontrivial, rightOfThem int
	kinds                   map[string]int // of difference, where a right decision or a beginning was before
	examples                []string
	wrong                   bool // the last one was
}

const maxExamples = 3 // of a run

func (s *score) add(t *line, nontrivial bool, kind, words string) {
	s.decisions++
	right := kind == ""
	if nontrivial {
		s.nontrivial++
	}
	switch {
	case right:
		s.right++
		if nontrivial {
			s.rightOfThem++
		}
	case !s.wrong:
		if s.kinds == nil {
			s.kinds = map[string]int{}
		}
		s.kinds[kind]++
		if len(s.examples) < maxExamples {
			s.examples = append(s.examples, fmt.Sprintf("iteration %d: %s: %s", t.N, kind, words))
		}
	}
	s.wrong = !right
}

// sum adds the score of another run.
func (s *score) sum(o score) {
	s.decisions += o.decisions
	s.right += o.right
	s.nontrivial += o.nontrivial
	s.rightOfThem += o.rightOfThem
	for kind, n := range o.kinds {
		if s.kinds == nil {
			s.kinds = map[string]int{}
		}
		s.kinds[kind] += n
	}
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
	var last *line
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
			notable := nontrivial(last, t)
			kind, words := differs(s, d, t)
			c.free.add(t, notable, kind, words)
			kind, words = repeats(last, t)
			c.baseline.add(t, notable, kind, words)
			last = t
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

// runSteps makes each decision before which the engine's state was told.
func (c *simulation) runSteps(rules simulate.Rules, settings simulate.Settings, l load, truth []line) error {
	grammars := map[string]bool{} // id: fails
	var paused simulate.Pause
	var before *state
	var last *line
	for i := range truth {
		switch t := &truth[i]; t.Event {
		case "grammar":
			grammars[t.ID] = t.Fails
		case "pause":
			paused = simulate.Pause(t.Pause)
		case "state":
			before = t.State
		case "scheduled":
			if before != nil {
				s, err := before.restore(rules, settings, paused, l, grammars)
				if err != nil {
					return fmt.Errorf("iteration %d: %w", t.N, err)
				}
				d := &simulate.Decision{}
				s.Decide(d)
				kind, words := differs(s, d, t)
				c.oneStep.add(t, nontrivial(last, t), kind, words)
			}
			before, last = nil, t
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

// differs says in what a simulated decision is not the engine's: "" if in nothing.
func differs(s *simulate.Scheduler, d *simulate.Decision, t *line) (kind, words string) {
	var want, got []string
	for _, p := range t.Preempted {
		if !p.Reset {
			want = append(want, p.Victim)
		}
	}
	for _, p := range d.Preempted {
		got = append(got, p.Victim.ID)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return "preempted", fmt.Sprintf("engine %v, simulated %v", want, got)
	}
	if len(d.Members) != len(t.Members) {
		return "members", fmt.Sprintf("engine %d, simulated %d", len(t.Members), len(d.Members))
	}
	for i := range d.Members {
		m := &d.Members[i]
		id := m.Sequence.ID
		e, in := t.Members[id]
		switch {
		case !in:
			return "members", fmt.Sprintf("the engine has no %s", id)
		case m.Joined && int(e[1]) != m.Before:
			return "found in the cache", fmt.Sprintf("%s: engine %d, simulated %d", id, e[1], m.Before)
		case int(e[0]) != m.Tokens:
			return "tokens", fmt.Sprintf("%s: engine %d, simulated %d", id, e[0], m.Tokens)
		case int(e[1]) != m.Before:
			return "computed before", fmt.Sprintf("%s: engine %d, simulated %d", id, e[1], m.Before)
		case int(t.Drafts[id]) != m.Drafts:
			return "drafts", fmt.Sprintf("%s: engine %d, simulated %d", id, t.Drafts[id], m.Drafts)
		}
	}
	want3, got3 := [3]int{int(t.Running), int(t.Waiting), int(t.Free)}, [3]int{s.Running(), s.Waiting(), s.FreeBlocks()}
	if want3 != got3 {
		return "running, waiting, free blocks", fmt.Sprintf("engine %v, simulated %v", want3, got3)
	}
	return "", ""
}

// repeats says in what a decision is not the last one again.
func repeats(last, t *line) (kind, words string) {
	if last == nil || len(last.Members) != len(t.Members) || len(t.Preempted) > 0 {
		return "members", ""
	}
	for id, m := range t.Members {
		if before, in := last.Members[id]; !in || before[0] != m[0] {
			return "tokens", ""
		}
	}
	return "", ""
}

// nontrivial says whether somebody joins, leaves, computes a part of a prompt, finds something in the cache, is preempted or left out.
func nontrivial(last, t *line) bool {
	if last == nil || len(t.Preempted) > 0 || len(t.Waits) > 0 || len(last.Members) != len(t.Members) {
		return true
	}
	for id, m := range t.Members {
		if _, was := last.Members[id]; !was || m[1] < m[3] {
			return true
		}
	}
	return false
}
