package simulate

import (
	"slices"

	"github.com/whylate/whylate/ledger"
)

// Decision is what one iteration is to compute. Its slices are reused by the next decision that is made into it.
type Decision struct {
	Members   []Member     // in the order in which they were scheduled
	Preempted []Preemption // in order
	Why       Why
	Failed    []*Sequence // whose grammar does not compile: they end with its completion
}

// Member is one sequence's part of an iteration.
type Member struct {
	Sequence *Sequence
	Tokens   int
	Before   int  // computed before them
	Cached   int  // of Before, found in the prefix cache by this decision
	Drafts   int  // of Tokens, speculated
	Joined   bool // admitted by this decision
	Samples  bool // reaches the end of what is known, and so yields output
	Accepted int  // of Drafts, by the model: to be set before the decision is completed
	Emitted  int  // tokens of output that its completion appended
}

// Preemption is a running sequence that lost its blocks.
type Preemption struct {
	Victim, Preemptor *Sequence // nil = nobody: a reset
	Lost              int       // tokens computed and thrown away
	Output            int       // tokens of output so far
	Free              int       // blocks before
	Blocks            int       // that the victim held
}

// turn is the making of one decision.
type turn struct {
	*Scheduler
	*Decision
	budget     int // tokens left
	long       int // most tokens of one prompt; 0 = no limit
	prefilling bool
	looked     looked
}

// Decide makes the next decision. Running sequences come first, in order; then, if none had to give up its blocks, those in line.
func (s *Scheduler) Decide(d *Decision) {
	s.step++
	d.Members, d.Preempted, d.Failed = d.Members[:0], d.Preempted[:0], d.Failed[:0]
	t := turn{Scheduler: s, Decision: d, budget: s.settings.MaxTokens, long: s.longPrefill()}
	if s.paused == PausedAll {
		t.budget = 0
	}
	t.run()
	if len(d.Preempted) == 0 && s.paused == Unpaused {
		t.admitAll()
	}
	t.explain()
	s.advance(d)
}

func (s *Scheduler) longPrefill() int {
	long, live := s.settings.LongPrefill, s.Running()+s.Waiting()
	switch {
	case long == 0 || s.rules.AloneUnlimited && live <= 1:
		return 0
	case s.settings.AdaptiveLong && s.rules.AloneUnlimited:
		return max(long, s.settings.MaxTokens/live)
	}
	return long
}

// run schedules who runs already.
func (t *turn) run() {
	i := 0
	defer func() { t.looked.running = i }()
	for ; i < len(t.running) && t.budget > 0; i++ {
		q := t.running[i]
		tokens, why := t.wanted(q)
		if tokens == 0 {
			t.idle = append(t.idle, Skip{Sequence: q, Reason: why})
			continue
		}
		for !t.grow(q, tokens) {
			at, scheduled := t.makeRoom(q)
			if at < i && (t.rules.VictimBehind || scheduled) {
				i--
			}
			if q.state != running {
				t.looked.gaveUp = true
				return
			}
		}
		m := Member{Sequence: q, Tokens: tokens, Before: q.Computed}
		if q.Drafts > 0 {
			m.Drafts = min(q.Drafts, max(0, tokens+q.Computed-q.Tokens-q.Placeholders))
			q.Drafts = 0
		}
		t.prefilling = t.prefilling || q.Prefilling
		t.budget -= tokens
		t.Members = append(t.Members, m)
	}
}

// wanted is how many tokens a running sequence gets in this iteration if there are blocks for them, and if none, why.
func (t *turn) wanted(q *Sequence) (int, ledger.SkipReason) {
	if q.Placeholders > 0 && q.Computed+2-q.Placeholders >= q.Prompt+q.Max {
		return 0, ledger.SkipTokensInFlight // what is in flight is all it may have
	}
	if t.step < q.Next {
		return 0, ledger.SkipCadence
	}
	tokens := q.Tokens + q.Drafts + q.Placeholders - q.Computed
	if t.long > 0 {
		tokens = min(tokens, t.long)
	}
	return max(0, min(tokens, t.budget, t.settings.MaxLength-1-q.Computed)), ledger.SkipTokensInFlight
}

// makeRoom preempts one for another: the last that was admitted, or of the least urgent the last that arrived. It returns where it
// stood, and whether it had been scheduled in this iteration.
func (t *turn) makeRoom(preemptor *Sequence) (at int, scheduled bool) {
	at = len(t.running) - 1
	if t.settings.Priorities {
		at = 0
		for i, q := range t.running {
			if v := t.running[at]; q.Priority > v.Priority || q.Priority == v.Priority && q.Arrival > v.Arrival {
				at = i
			}
		}
	}
	victim := t.running[at]
	t.running = slices.Delete(t.running, at, at+1)
	if i := slices.IndexFunc(t.Members, func(m Member) bool { return m.Sequence == victim }); i >= 0 {
		t.budget += t.Members[i].Tokens
		t.Members = slices.Delete(t.Members, i, i+1)
		scheduled = true
	}
	p := t.lossOf(victim)
	p.Preemptor = preemptor
	t.Preempted = append(t.Preempted, p)
	t.preempt(victim, false)
	return at, scheduled
}

// advance takes what was scheduled for computed.
func (s *Scheduler) advance(d *Decision) {
	for i := range d.Members {
		m := &d.Members[i]
		q := m.Sequence
		q.Computed += m.Tokens
		q.InFlight += m.Tokens
		q.Prefilling = q.Computed < q.Tokens+q.Placeholders
		m.Samples = q.Computed >= q.Tokens
		if q.Prefilling || !s.settings.Asynchronous {
			continue
		}
		q.Placeholders += 1 + m.Drafts
		q.Drafts = s.settings.Drafts
		if s.rules.Cadence && s.settings.Stagger > 0 {
			q.Next = s.step + s.settings.Stagger
		}
	}
}
