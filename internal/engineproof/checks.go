package engineproof

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// Checked is a run held against a report, under the name that its figures get.
type Checked struct {
	*Report
	*Run
	Name string
}

// Complete checks that every client request is in the ledger, hang-ups included, with its trace.
func (c *Checked) Complete(l *query.Ledger, requests, hangUps int) {
	var missing, untraced, hungUp int
	for _, k := range c.Results {
		r, err := l.Find(k.RequestID)
		if err != nil || r.Received == 0 || len(r.Sequences) == 0 || r.Sequences[0].Queued == 0 {
			missing++
			continue
		}
		if t := strings.Split(k.Traceparent, "-"); len(t) != 4 || r.TraceID != t[1] || len(r.Clients) != 1 {
			untraced++
		}
		if k.Outcome == replay.Cancelled {
			hungUp++
			if r.End != ledger.EndDisconnect || r.Sequences[0].Reason != ledger.FinishAbort {
				missing++
			}
		}
	}
	c.Check(len(c.Results) >= requests, "%d client requests played, at least %d wanted", len(c.Results), requests)
	c.Sheet.AtLeast(c.Name+"/requests", float64(len(c.Results)), "count", float64(requests))
	c.Check(missing == 0, "%d of %d client requests are not in the ledger", missing, len(c.Results))
	c.Check(untraced == 0, "%d client requests whose trace is not joined", untraced)
	c.Check(hungUp >= hangUps, "%d hang-ups, all recorded as such", hungUp)
	for _, k := range c.Results {
		if k.Outcome != replay.Complete && k.Outcome != replay.Cancelled {
			c.Check(false, "request %s: %v %s", k.RequestID, k.Outcome, k.Error)
		}
	}
}

// Counts checks iterations, tokens and preemptions against the engine's own log and counters.
func (c *Checked) Counts(e *ledger.Engine, iterations int) {
	var tokens []int
	var emitted float64
	for k := range e.Iterations {
		emitted += float64(e.Iterations[k].Emitted)
		if n := e.Iterations[k].Tokens; n > 0 {
			tokens = append(tokens, int(n))
		}
	}
	c.Sheet.AtLeast(c.Name+"/iterations", float64(len(tokens)), "count", float64(iterations))
	c.Check(len(tokens) >= iterations, "%d non-empty iterations, at least %d wanted", len(tokens), iterations)
	c.Check(len(tokens) == len(c.Log), "%d non-empty iterations in the ledger, %d in the engine's log", len(tokens), len(c.Log))
	var differ, sum, logged int
	for i := range min(len(tokens), len(c.Log)) {
		sum += tokens[i]
		logged += c.Log[i].Tokens
		if tokens[i] != c.Log[i].Tokens {
			differ++
		}
	}
	c.Sheet.AtMost(c.Name+"/iterations_that_differ_from_log", float64(differ), "count", 0)
	c.Check(differ == 0, "%d iterations whose scheduled tokens differ from the engine's log (in all %d against %d)", differ, sum, logged)
	late := lateTokens(e)
	if generated, ok := c.Counter("vllm:generation_tokens_total"); ok {
		c.Check(generated <= emitted && emitted-generated <= float64(late), "%.0f tokens emitted by the ledger, the engine's counter says %.0f (up to %d went to clients that had hung up)", emitted, generated, late)
	} else {
		c.Check(false, "the engine has no vllm:generation_tokens_total")
	}
	var excused int
	for _, p := range e.Preemptions {
		if p.Victim.Reason == ledger.FinishAbort {
			excused++
		}
	}
	counted, _ := c.Counter("vllm:num_preemptions_total")
	d := len(e.Preemptions) - int(counted)
	c.Sheet.AtLeast(c.Name+"/preemptions", float64(len(e.Preemptions)), "count", 1)
	c.Check(len(e.Preemptions) > 0 && d >= 0 && d <= excused, "%d preemptions in the ledger, %.0f by the engine's counter, %d of requests that were aborted afterwards", len(e.Preemptions), counted, excused)
}

// lateTokens bounds how many tokens the engine emitted for requests whose client had gone: those are in no counter.
func lateTokens(e *ledger.Engine) int {
	var n int
	for _, q := range e.Sequences {
		if q.Reason == ledger.FinishAbort {
			n += int(q.Output)
		}
	}
	return n
}

// Closure is the first two figures of DESIGN §13. l was made without any client record: the clients' clocks are what it is judged by.
func (c *Checked) Closure(l *query.Ledger) {
	var shares []float64
	for _, k := range c.Results {
		r, err := l.Find(k.RequestID)
		if err != nil || k.Outcome != replay.Complete {
			continue
		}
		a := l.Account(r)
		own := float64(k.End - k.Sent)
		shares = append(shares, math.Abs(own-float64(a.E2E()-a.Line(account.Unexplained).NS))/own)
	}
	p50, p99 := Quantile(shares, 0.5), Quantile(shares, 0.99)
	c.Check(c.Sheet.AtMost(c.Name+"/closure_p50", 100*p50, "%", 2), "closure (a): the account misses %.2f %% of the clients' own E2E at the median", 100*p50)
	c.Check(c.Sheet.AtMost(c.Name+"/closure_p99", 100*p99, "%", 5), "closure (a): the account misses %.2f %% of the clients' own E2E at the 99th percentile", 100*p99)
}

// Healthy checks that the probe had nothing to say about itself, and that nothing is missing.
func (c *Checked) Healthy(l *query.Ledger) {
	for _, n := range l.Book.Notices {
		c.Check(false, "the probe said: %s", n)
	}
	for _, g := range l.Book.AllGaps() {
		c.Check(false, "a gap in a healthy run: %v", g)
	}
}

// Worst is the client whose request of a class has most of something in its account, nil if there is none that was answered whole.
func (r *Run) Worst(l *query.Ledger, class string, amount func(*account.Account) int64) (*replay.Result, *account.Account) {
	var worst *replay.Result
	var most int64
	var best *account.Account
	for i := range r.Results {
		c := &r.Results[i]
		found, err := l.Find(c.RequestID)
		if err != nil || c.Class != class || c.Outcome != replay.Complete {
			continue
		}
		a := l.Account(found)
		if n := amount(a); worst == nil || n > most {
			worst, most, best = c, n, a
		}
	}
	return worst, best
}

// Quantile is the q-th of xs, NaN of none.
func Quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[min(len(xs)-1, max(0, int(math.Ceil(q*float64(len(xs))))-1))]
}

// Near reports whether a is within share of b.
func Near(a, b time.Duration, share float64) bool {
	return math.Abs(float64(a-b)) <= share*math.Abs(float64(b))
}
