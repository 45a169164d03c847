package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
)

const (
	// rateWindow is the time before now that the rates of an engine's state are of.
	rateWindow = 10 * time.Second
	// stuckAfter is how long an iteration may be in flight before an engine counts as stuck, where no reader of its ring says so.
	stuckAfter = 10 * time.Second
)

// engineState says what e is doing at now, from its records alone. Whether its process is alive only the reader of its ring knows.
func engineState(e *ledger.Engine, now int64) api.EngineState {
	s := api.EngineState{ID: e.ID.String(), Engine: e.Name + " " + e.Version, Status: api.EngineUnknown, Untried: diagnose.Untried(e)}
	live, ended := 0, int64(0)
	for _, q := range e.Sequences {
		switch {
		case q.Live():
			live++
		case q.Finished == 0 && q.Arrived != 0:
			s.Inbox++
		}
		ended = max(ended, q.Finished)
	}
	s.Oldest = oldestWaiter(e, now)
	if len(e.Iterations) == 0 {
		return s
	}
	newest := &e.Iterations[len(e.Iterations)-1]
	s.Iteration, s.Launched, s.Members, s.Running, s.Waiting, s.Free = newest.Number, newest.Decided, newest.Members, newest.Running, newest.Waiting, newest.FreeBlocks
	rates(&s, e, now)
	flying := e.InFlight()
	if flying != nil {
		s.InFlight, s.Launched = true, flying.Decided
	}
	switch {
	case flying != nil && now-flying.Decided > int64(stuckAfter):
		s.Status, s.Since = api.EngineStuck, flying.Decided
	case flying == nil && live == 0 && s.Inbox == 0:
		s.Status, s.Since = api.EngineIdle, ended
	default:
		s.Status = api.EngineWorking
	}
	return s
}

// rates fills in what was done in the window before now.
func rates(s *api.EngineState, e *ledger.Engine, now int64) {
	from := max(now-int64(rateWindow), e.TileStart(e.First))
	s.Window = now - from
	if s.Window <= 0 {
		s.Window = 0
		return
	}
	var tokens, iterations uint64
	var prefill float64
	for k := len(e.Iterations) - 1; k >= 0; k-- {
		it := &e.Iterations[k]
		if it.End == 0 {
			continue
		}
		if it.End <= from {
			break
		}
		tokens += uint64(it.Emitted)
		iterations++
		prefill += account.WorkOf(e, it)[ledger.WorkPrefillTokens]
	}
	seconds := float64(s.Window) / 1e9
	s.Tokens, s.Prefill, s.Rate = float64(tokens)/seconds, prefill/seconds, float64(iterations)/seconds
}

// oldestWaiter is the sequence of e that has waited longest at now, nil if none waits.
func oldestWaiter(e *ledger.Engine, now int64) *api.Waiter {
	var w *api.Waiter
	var oldest *ledger.Sequence
	for _, q := range e.Sequences {
		since, where := waitsSince(q)
		if since != 0 && (w == nil || now-since > w.Waited) {
			w, oldest = &api.Waiter{Request: q.Request.Name(), Waited: max(now-since, 0), Where: where}, q
		}
	}
	if w != nil {
		w.Why = whyWaits(e, oldest, w.Where, now)
	}
	return w
}

// waitsSince says since when q waits for the scheduler and in which part, 0 if it does not.
func waitsSince(q *ledger.Sequence) (int64, account.Part) {
	switch {
	case q.Finished != 0:
		return 0, ""
	case q.Queued == 0:
		return q.Arrived, account.Inbox
	case q.Join == 0:
		return q.Queued, account.Queue
	case len(q.Preemptions) > 0 && len(q.Skips) > 0 && q.Skips[len(q.Skips)-1].Away && q.Skips[len(q.Skips)-1].Last > q.Leave:
		part := account.Decode
		if q.FirstEmit == 0 {
			part = account.Prefill
		}
		return q.Preemptions[len(q.Preemptions)-1].At, part
	}
	return 0, ""
}

// whyWaits says in half a sentence what q waits for.
func whyWaits(e *ledger.Engine, q *ledger.Sequence, where account.Part, now int64) string {
	if where == account.Inbox {
		if it := e.InFlight(); it != nil {
			return fmt.Sprintf("iteration %d has been running for %s, and the scheduler takes up requests only between iterations", it.Number, time.Duration(now-it.Decided).Round(time.Millisecond))
		}
		return "the scheduler has not taken it up"
	}
	if len(q.Skips) == 0 {
		return "the scheduler has not passed since it was queued"
	}
	skip := q.Skips[len(q.Skips)-1]
	why := skip.Reason.String()
	if skip.Away {
		why = "preempted; " + why
	}
	if skip.Head != nil && skip.Head != q {
		why += ", behind " + skip.Head.Request.Name()
	}
	if row := e.Row(skip.Last); row != nil && row.Head == q && row.Need > 0 {
		why += fmt.Sprintf(": needs %d, %d are free", row.Need, row.FreeBlocks)
	}
	if holders := holdersAt(e, skip.Last); holders != "" && skip.Reason == ledger.SkipKVBlocks {
		why += "; most are held by " + holders
	}
	return why
}

// holdersAt names who held most of the KV pool when it was last reported up to iteration n.
func holdersAt(e *ledger.Engine, n uint64) string {
	i := slices.IndexFunc(e.Holdings, func(h ledger.Holding) bool { return h.Iteration > n })
	if i < 0 {
		i = len(e.Holdings)
	}
	if i == 0 || len(e.Holdings[i-1].Holders) == 0 {
		return ""
	}
	k := e.Holdings[i-1].Holders[0]
	return fmt.Sprintf("%s (%d)", k.Seq.Request.Name(), k.Blocks)
}
