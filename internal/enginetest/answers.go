package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// answer is one client's request, as its client saw it and as it is explained.
type answer struct {
	replay.Result
	*ledger.Request
	*diagnose.Explanation
}

// answers explains the requests of a class; one that the ledger does not have is left out, and is told by what follows.
func answers(l *query.Ledger, results []replay.Result, class string) []answer {
	var out []answer
	for _, c := range results {
		if r, err := l.Find(c.RequestID); err == nil && (class == "" || c.Class == class) {
			out = append(out, answer{c, r, diagnose.Explain(l, r)})
		}
	}
	return out
}

// waited is how long the client waited for its first token; who got none, until it gave up.
func (a *answer) waited() time.Duration {
	if a.Result.First == 0 {
		return time.Duration(a.Result.End - a.Result.Sent)
	}
	return time.Duration(a.Result.First - a.Result.Sent)
}

// find is the finding of one of these kinds that took longest, nil if there is none.
func (a *answer) find(kinds ...string) *diagnose.Finding {
	for i := range a.Findings {
		if slices.Contains(kinds, a.Findings[i].ID) {
			return &a.Findings[i]
		}
	}
	return nil
}

// shows is the finding of a wait or of a slow iteration that names iteration n and took longest, nil if there is none.
func (a *answer) shows(n uint64) *diagnose.Finding {
	kinds := []string{diagnose.InboxBehindIteration, diagnose.OddIteration, diagnose.QueueKVBlocks, diagnose.QueueSequenceLimit, diagnose.QueueTokenBudget, diagnose.QueueOther}
	for i := range a.Findings {
		f := &a.Findings[i]
		named := slices.ContainsFunc(f.Culprits, func(c diagnose.Culprit) bool { return c.Kind == "iteration" && c.ID == fmt.Sprint(n) })
		if named && slices.Contains(kinds, f.ID) {
			return f
		}
	}
	return nil
}

// names reports whether a finding names a culprit in this role; role "" is any. whose is the beginning of its id.
func names(f *diagnose.Finding, role, whose string) bool {
	return slices.ContainsFunc(f.Culprits, func(c diagnose.Culprit) bool {
		return c.Kind == "request" && (role == "" || c.Role == role) && strings.HasPrefix(c.ID, whose)
	})
}

// longest is the iteration of e that took longest among those that ran while these requests lived.
func longest(e *ledger.Engine, as []answer) *ledger.Iteration {
	var from, to int64
	for _, a := range as {
		if from == 0 || a.Account.From < from {
			from = a.Account.From
		}
		to = max(to, a.Account.To)
	}
	var best *ledger.Iteration
	for k := range e.Iterations {
		if it := &e.Iterations[k]; it.End > from && it.Start < to && (best == nil || it.Duration() > best.Duration()) {
			best = it
		}
	}
	return best
}

// id is the id by which its client knows it.
func (a *answer) id() string { return a.Result.RequestID }
