package simulate

import "github.com/whylate/whylate/ledger"

// Why says what a decision left out, and for what reason, in the words of the wire (docs/formats/stream.md §2.2).
type Why struct {
	Stop  ledger.SkipReason // what ended admission, or the scheduling of who ran; none if nobody was left out
	Code  uint8             // with ledger.SkipOther
	Head  *Sequence         // whom admission stopped at, nil = nobody
	Need  int               // blocks that the head needs before it can be admitted; 0 = it is not for want of blocks
	Skips []Skip            // who was left out for a reason of its own
}

// Skip is a live sequence that a decision left out.
type Skip struct {
	Sequence *Sequence
	Reason   ledger.SkipReason
}

// stopped is the code of ledger.SkipOther for an end of admission without a name.
const stopped = 1

// looked is how far a decision has looked, and what stopped it.
type looked struct {
	running int  // of those that ran
	gaveUp  bool // one of them had to preempt itself
	head    *Sequence
	refused ledger.SkipReason // why the head was not admitted
	need    int
}

// explain fills in why some were left out. It costs nothing where nobody was.
func (t *turn) explain() {
	w := &t.Why
	w.Stop, w.Code, w.Head, w.Need, w.Skips = ledger.SkipNone, 0, nil, 0, w.Skips[:0]
	if t.Waiting() == 0 && len(t.Members) == len(t.running) {
		t.idle, t.aside = t.idle[:0], t.aside[:0]
		return
	}
	for _, p := range t.Preempted {
		if t.settings.Priorities && p.Victim != p.Preemptor {
			w.Skips = append(w.Skips, Skip{p.Victim, ledger.SkipPriority})
		}
	}
	w.Skips = append(w.Skips, t.aside...)
	left := t.Waiting() > len(w.Skips)
	if left {
		w.Head, w.Need = t.looked.head, t.looked.need
		w.Stop, w.Code = t.stoppedBy()
	}
	t.explainRunning(left)
	t.idle, t.aside = t.idle[:0], t.aside[:0]
}

// stoppedBy is what ended admission.
func (t *turn) stoppedBy() (ledger.SkipReason, uint8) {
	switch {
	case t.looked.head != nil:
		return t.looked.refused, 0
	case len(t.Preempted) > 0:
		return ledger.SkipPreemptionStep, 0
	case t.paused != Unpaused:
		return ledger.SkipPaused, 0
	case t.budget <= 0:
		return ledger.SkipTokenBudget, 0
	case len(t.running) >= t.settings.MaxSequences:
		return ledger.SkipSequenceLimit, 0
	}
	return ledger.SkipOther, stopped
}

// explainRunning says why some that run are no members. left says that somebody waits for what stopped admission.
func (t *turn) explainRunning(left bool) {
	if len(t.Members) == len(t.running) {
		return
	}
	w := &t.Why
	beyond := ledger.SkipTokenBudget
	switch {
	case t.paused == PausedAll:
		beyond = ledger.SkipPaused
	case t.looked.gaveUp:
		beyond = ledger.SkipPreemptionStep
	}
	for i := t.looked.running; i < len(t.running) && !t.joined(t.running[i]); i++ {
		if !left {
			w.Stop, w.Code = beyond, 0
		}
		if beyond != w.Stop {
			w.Skips = append(w.Skips, Skip{t.running[i], beyond})
		}
	}
	for _, s := range t.idle {
		if s.Sequence.state == running {
			w.Skips = append(w.Skips, s)
		}
	}
}

// joined reports whether a running sequence was admitted by this decision.
func (t *turn) joined(q *Sequence) bool {
	for i := len(t.Members) - 1; i >= 0 && t.Members[i].Joined; i-- {
		if t.Members[i].Sequence == q {
			return true
		}
	}
	return false
}
