package simulate

import (
	"slices"

	"github.com/whylate/whylate/ledger"
)

// admitAll lets in who waits, until somebody cannot be let in: nobody behind is asked then.
func (t *turn) admitAll() {
	t.passed, t.adapters = t.passed[:0], t.adapters[:0]
	for i := range t.Members {
		t.note(t.Members[i].Sequence)
	}
	ran := len(t.Members) > 0
	for t.budget > 0 && len(t.running) < t.settings.MaxSequences {
		line := t.next()
		if line == nil {
			break
		}
		q := line.line[0]
		if why := t.pass(q); why != ledger.SkipNone {
			line.pop()
			t.passed = append(t.passed, q)
			t.aside = append(t.aside, Skip{Sequence: q, Reason: why})
			continue
		}
		hits := t.find(q)
		tokens, drafts := t.share(q, len(hits)*t.settings.BlockSize, ran)
		if tokens == 0 {
			t.looked.head, t.looked.refused = q, ledger.SkipTokenBudget
			break
		}
		if need, ok := t.admit(q, hits, tokens); !ok {
			t.looked.head, t.looked.refused, t.looked.need = q, ledger.SkipKVBlocks, need
			break
		}
		line.pop()
		cached := len(hits) * t.settings.BlockSize
		q.state, q.Computed = running, cached
		t.running = append(t.running, q)
		t.note(q)
		t.budget -= tokens
		t.Members = append(t.Members, Member{Sequence: q, Tokens: tokens, Before: cached, Cached: cached, Drafts: drafts, Joined: true})
	}
	if t.rules.DeferredInFront {
		t.waiting.pushFront(t.passed...)
	} else {
		t.held.pushFront(t.passed...)
	}
}

// next is the line whose first is asked next, nil if nobody waits.
func (t *turn) next() *queue {
	w, h := &t.waiting, &t.held
	switch {
	case len(h.line) == 0 && len(w.line) == 0:
		return nil
	case len(h.line) == 0:
		return w
	case len(w.line) == 0 || !t.settings.Priorities || !before(w.line[0], h.line[0]):
		return h
	}
	return w
}

// pass says why a sequence cannot run yet, though who stands behind it may; none if it can.
func (t *turn) pass(q *Sequence) ledger.SkipReason {
	switch {
	case q.grammar == grammarFailed:
		if !slices.Contains(t.failed, q) {
			t.failed = append(t.failed, q)
		}
		return ledger.SkipGrammar
	case q.grammar == grammarCompiling:
		return ledger.SkipGrammar
	case q.Stale > 0 && !q.Drop:
		return ledger.SkipStaleOutput
	case t.settings.Adapters > 0 && q.Adapter != 0 && len(t.adapters) == t.settings.Adapters && !slices.Contains(t.adapters, q.Adapter):
		return ledger.SkipAdapterLimit
	}
	return ledger.SkipNone
}

// share is how many tokens a sequence is admitted with, and how many of them are drafts. 0 = it does not fit.
func (t *turn) share(q *Sequence, cached int, ran bool) (tokens, drafts int) {
	tokens = q.Tokens - cached
	if padded := 1 + t.settings.Drafts; t.rules.PadDecode && padded > 1 && tokens == 1 && !t.prefilling && (ran || cached > 0) &&
		cached+padded+1 <= t.settings.MaxLength {
		if padded > t.budget {
			return 0, 0
		}
		tokens, drafts = padded, t.settings.Drafts
	}
	if t.long > 0 {
		tokens = min(tokens, t.long)
	}
	if t.settings.WholePrompts && tokens > t.budget {
		return 0, 0
	}
	return min(tokens, t.budget), drafts
}

// note keeps whose adapter the iteration needs.
func (t *turn) note(q *Sequence) {
	if q.Adapter != 0 && !slices.Contains(t.adapters, q.Adapter) {
		t.adapters = append(t.adapters, q.Adapter)
	}
}
