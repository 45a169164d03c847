package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/wire"
)

// judge holds what whylate says against what the engine, its log and its clients say.
func (s *smoke) judge(ctx context.Context) error {
	s.sheet.AtLeast("smoke/engine_ran", 1, "count", 1)
	// The account is made without any client record: the clients' clocks are what it is judged by.
	l, err := s.open(nil, "capture.wlc")
	if err != nil {
		return err
	}
	both, err := s.open(nil, "capture.wlc", "client-0.wlc", "client-1.wlc")
	if err != nil {
		return err
	}
	if len(l.Book.Engines) != 1 {
		s.check(false, "one engine recorded, got %d", len(l.Book.Engines))
		return nil
	}
	e := l.Book.Engines[0]
	for _, n := range l.Book.Notices {
		s.check(false, "the probe said: %s", n)
	}
	for _, g := range l.Book.AllGaps() {
		s.check(false, "a gap in a healthy run: %v", g)
	}
	s.complete(both)
	s.counts(e)
	s.closure(l)
	s.model(l, e)
	if err := s.probe(e); err != nil {
		return err
	}
	if err := s.damage(l, e); err != nil {
		return err
	}
	s.answers(ctx, both)
	return s.fixture()
}

// open reads captures of the run, frames passing through edit if it is not nil.
func (s *smoke) open(edit func(wire.Frame) (wire.Frame, bool), names ...string) (*query.Ledger, error) {
	a := ingest.New()
	for _, name := range names {
		f, err := os.Open(filepath.Join(s.dir, name))
		if err != nil {
			return nil, err
		}
		err = ingest.ReadCapture(f, name, editing{a, edit})
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return query.Open(a.Book()), nil
}

// editing is a sink that drops or changes frames on their way.
type editing struct {
	wire.Sink
	edit func(wire.Frame) (wire.Frame, bool)
}

func (d editing) Frame(source uint16, f wire.Frame) error {
	if d.edit != nil {
		var keep bool
		if f, keep = d.edit(f); !keep {
			return nil
		}
	}
	return d.Sink.Frame(source, f)
}

// complete checks that every client request is in the ledger, hang-ups included, with its trace.
func (s *smoke) complete(l *query.Ledger) {
	var missing, untraced, hangups int
	for _, c := range s.results {
		r, err := l.Find(c.RequestID)
		if err != nil || r.Received == 0 || len(r.Sequences) == 0 || r.Sequences[0].Queued == 0 {
			missing++
			continue
		}
		if t := strings.Split(c.Traceparent, "-"); len(t) != 4 || r.TraceID != t[1] || len(r.Clients) != 1 {
			untraced++
		}
		if c.Outcome == replay.Cancelled {
			hangups++
			if r.End != ledger.EndDisconnect || r.Sequences[0].Reason != ledger.FinishAbort {
				missing++
			}
		}
	}
	s.check(len(s.results) >= 200, "%d client requests played, at least 200 wanted", len(s.results))
	s.sheet.AtLeast("smoke/requests", float64(len(s.results)), "count", 200)
	s.check(missing == 0, "%d of %d client requests are not in the ledger", missing, len(s.results))
	s.check(untraced == 0, "%d client requests whose trace is not joined", untraced)
	s.check(hangups >= 5, "%d hang-ups, all recorded as such", hangups)
	for _, c := range s.results {
		if c.Outcome != replay.Complete && c.Outcome != replay.Cancelled {
			s.check(false, "request %s: %v %s", c.RequestID, c.Outcome, c.Error)
		}
	}
}

// counts checks iterations, tokens and preemptions against the engine's own log and counters.
func (s *smoke) counts(e *ledger.Engine) {
	var tokens []int
	var emitted float64
	for k := range e.Iterations {
		emitted += float64(e.Iterations[k].Emitted)
		if n := e.Iterations[k].Tokens; n > 0 {
			tokens = append(tokens, int(n))
		}
	}
	s.sheet.AtLeast("smoke/iterations", float64(len(tokens)), "count", 3000)
	s.check(len(tokens) >= 3000, "%d non-empty iterations, at least 3000 wanted", len(tokens))
	s.check(len(tokens) == len(s.log), "%d non-empty iterations in the ledger, %d in the engine's log", len(tokens), len(s.log))
	var differ, sum, logged int
	for i := range min(len(tokens), len(s.log)) {
		sum += tokens[i]
		logged += s.log[i].tokens
		if tokens[i] != s.log[i].tokens {
			differ++
		}
	}
	s.sheet.AtMost("smoke/iterations_that_differ_from_log", float64(differ), "count", 0)
	s.check(differ == 0, "%d iterations whose scheduled tokens differ from the engine's log (in all %d against %d)", differ, sum, logged)
	if generated, ok := engineenv.Counter(s.metrics, "vllm:generation_tokens_total"); ok {
		s.check(generated <= emitted && emitted-generated <= float64(s.lateTokens(e)), "%.0f tokens emitted by the ledger, the engine's counter says %.0f (up to %d went to clients that had hung up)", emitted, generated, s.lateTokens(e))
	} else {
		s.check(false, "the engine has no vllm:generation_tokens_total")
	}
	var excused int
	for _, p := range e.Preemptions {
		if p.Victim.Reason == ledger.FinishAbort {
			excused++
		}
	}
	counted, _ := engineenv.Counter(s.metrics, "vllm:num_preemptions_total")
	d := len(e.Preemptions) - int(counted)
	s.sheet.AtLeast("smoke/preemptions", float64(len(e.Preemptions)), "count", 1)
	s.check(len(e.Preemptions) > 0 && d >= 0 && d <= excused, "%d preemptions in the ledger, %.0f by the engine's counter, %d of requests that were aborted afterwards", len(e.Preemptions), counted, excused)
}

// lateTokens bounds how many tokens the engine emitted for requests whose client had gone: those are in no counter.
func (s *smoke) lateTokens(e *ledger.Engine) int {
	var n int
	for _, q := range e.Sequences {
		if q.Reason == ledger.FinishAbort {
			n += int(q.Output)
		}
	}
	return n
}

// closure is the first two figures of DESIGN §13.
func (s *smoke) closure(l *query.Ledger) {
	var shares []float64
	for _, c := range s.results {
		r, err := l.Find(c.RequestID)
		if err != nil || c.Outcome != replay.Complete {
			continue
		}
		a := l.Account(r)
		own := float64(c.End - c.Sent)
		shares = append(shares, math.Abs(own-float64(a.E2E()-a.Line(account.Unexplained).NS))/own)
	}
	p50, p99 := quantile(shares, 0.5), quantile(shares, 0.99)
	s.check(s.sheet.AtMost("smoke/closure_p50", 100*p50, "%", 2), "closure (a): the account misses %.2f %% of the clients' own E2E at the median", 100*p50)
	s.check(s.sheet.AtMost("smoke/closure_p99", 100*p99, "%", 5), "closure (a): the account misses %.2f %% of the clients' own E2E at the 99th percentile", 100*p99)
}

// model measures the model's error on held-out iterations, and how much slowdown it sees where all is well.
func (s *smoke) model(l *query.Ledger, e *ledger.Engine) {
	m := l.Model(e)
	if m == nil {
		s.check(false, "no model could be fitted on %d iterations", len(e.Iterations))
		return
	}
	s.sheet.Report("smoke/model_error_p50", 100*m.All.Median, "%")
	s.sheet.Report("smoke/model_error_p90", 100*m.All.P90, "%")
	s.check(m.Held >= 1000 && m.All.Median < 0.25, "the model's median error is %.1f %% on %d held-out iterations", 100*m.All.Median, m.Held)

	from, to := s.span("mix")
	half := from + (to-from)/2
	on, ok := account.FitOn(e, func(n uint64) bool { d := e.Row(n).Decided; return d >= from && d < half })
	var slow, e2e float64
	var n int
	for _, r := range l.Book.Requests {
		if !strings.HasPrefix(r.RequestID, "mix-") || r.Received < half {
			continue
		}
		a := account.Of(r, &on, l.Book.Now)
		for _, p := range []account.Part{account.Prefill, account.Decode} {
			slow += math.Abs(float64(a.Split(p, account.SplitSlowdown)))
		}
		e2e += float64(a.E2E())
		n++
	}
	s.check(ok && n > 10, "closure (b): %d healthy requests judged by a model fitted on the half before them", n)
	s.sheet.Report("smoke/slowdown_where_healthy", 100*slow/max(e2e, 1), "%")
}

// probe measures what the probe itself took of each iteration, by its own record.
func (s *smoke) probe(e *ledger.Engine) error {
	var spent, shares, long []float64
	var length float64
	if _, err := s.open(func(f wire.Frame) (wire.Frame, bool) {
		var m wire.Scheduled
		if f.Type == wire.TypeScheduled && wire.Decode(f, &m) == nil && m.Iteration > 1 {
			// It tells what it took since the decision before.
			if it := e.Row(m.Iteration - 1); it != nil && it.Complete() && it.Tokens > 0 {
				share := float64(m.Spent) / float64(it.Duration())
				spent = append(spent, float64(m.Spent)/1e3)
				shares = append(shares, share)
				if it.Duration() >= 20e6 {
					long = append(long, share)
					length += float64(it.Duration())
				}
			}
		}
		return f, true
	}, "capture.wlc"); err != nil {
		return err
	}
	s.check(len(spent) > 1000, "%d iterations in which the probe measured itself", len(spent))
	s.sheet.Report("smoke/probe_p50", quantile(spent, 0.5), "us")
	s.sheet.Report("smoke/probe_p99", quantile(spent, 0.99), "us")
	s.sheet.Report("smoke/probe_share_p50", 100*quantile(shares, 0.5), "%")
	s.sheet.Report("smoke/probe_long_iterations_mean", length/1e6/float64(max(len(long), 1)), "ms")
	s.sheet.AtMost("smoke/probe_share_of_iterations_from_20ms_p50", 100*quantile(long, 0.5), "%", 0.5)
	return nil
}

// span is the time in which the clients of a class sent, on the book's line.
func (s *smoke) span(class string) (from, to int64) {
	l, err := s.open(nil, "client-0.wlc")
	if err != nil {
		return 0, 0
	}
	for _, r := range l.Book.Requests {
		if r.Class == class {
			at := r.Clients[0].Sent
			if from == 0 || at < from {
				from = at
			}
			to = max(to, at)
		}
	}
	return from, to
}

// damage is the third figure of closure: what is removed from the capture must turn up as unexplained time, no more and no less.
func (s *smoke) damage(whole *query.Ledger, e *ledger.Engine) error {
	unexplained := func(l *query.Ledger) (ns float64) {
		for _, r := range l.Book.Requests {
			ns += float64(l.Account(r).Line(account.Unexplained).NS)
		}
		return ns
	}
	before := unexplained(whole)
	judge := func(name, what string, removed float64, edit func(wire.Frame) (wire.Frame, bool)) error {
		l, err := s.open(edit, "capture.wlc")
		if err != nil {
			return err
		}
		ratio := (unexplained(l) - before) / removed
		s.check(s.sheet.AtMost("smoke/damage_"+name, 100*math.Abs(ratio-1), "%", 10), "closure (c): with %s removed, unexplained time grows by %.3f of what was removed (%.1f s over all requests); %d gaps told",
			what, ratio, removed/1e9, len(l.Book.AllGaps()))
		return nil
	}

	// Every twentieth completion. What is removed is the part of their durations that requests sat through or waited for.
	var removed float64
	for n := e.First; n <= e.Completed(); n++ {
		if n%20 == 7 {
			removed += s.lived(whole, e.Row(n))
		}
	}
	if err := judge("done", "5 % of the completions", removed, func(f wire.Frame) (wire.Frame, bool) {
		var d wire.Done
		return f, f.Type != wire.TypeDone || wire.Decode(f, &d) != nil || d.Iteration%20 != 7
	}); err != nil {
		return err
	}

	removed = 0
	for _, r := range whole.Book.Requests {
		removed += float64(whole.Account(r).Line(account.Inbox).NS)
	}
	if err := judge("arrived", "every arrival and its copies", removed, func(f wire.Frame) (wire.Frame, bool) {
		var q wire.Queued
		if f.Type != wire.TypeQueued || wire.Decode(f, &q) != nil {
			return f, f.Type != wire.TypeArrived
		}
		q.Arrived = 0
		b, err := wire.Append(nil, f.Sequence, &q)
		if err != nil {
			return f, false
		}
		f, _, err = wire.ParseFrame(b)
		return f, err == nil
	}); err != nil {
		return err
	}

	longest := &e.Iterations[0]
	for k := range e.Iterations {
		if it := &e.Iterations[k]; it.Duration() > longest.Duration() {
			longest = it
		}
	}
	number := longest.Number
	return judge("iteration", "the longest iteration", s.lived(whole, longest), func(f wire.Frame) (wire.Frame, bool) {
		var d wire.Done
		var m wire.Scheduled
		gone := f.Type == wire.TypeDone && wire.Decode(f, &d) == nil && d.Iteration == number ||
			f.Type == wire.TypeScheduled && wire.Decode(f, &m) == nil && m.Iteration == number
		return f, !gone
	})
}

// lived is how much of an iteration's duration lay in the queue, prefill and decode of requests, all together.
func (s *smoke) lived(l *query.Ledger, it *ledger.Iteration) (ns float64) {
	for _, r := range l.Book.Requests {
		a := l.Account(r)
		if a.Lead == nil || a.Lead.Queued == 0 {
			continue
		}
		from, to := a.Lead.Queued, a.Tail.LastToken
		if to == 0 {
			to = a.Tail.Finished
		}
		ns += float64(max(0, min(to, it.End, a.To)-max(from, it.Start)))
	}
	return ns
}

// fixture writes the run as one capture if one is asked for.
func (s *smoke) fixture() error {
	path := os.Getenv("FIXTURE")
	if path == "" {
		return nil
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	w, err := wire.NewCaptureWriter(out)
	if err != nil {
		return err
	}
	for _, name := range []string{"capture.wlc", "client-0.wlc", "client-1.wlc"} {
		f, err := os.Open(filepath.Join(s.dir, name))
		if err != nil {
			return err
		}
		err = ingest.ReadCapture(f, name, w)
		f.Close()
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	xs = slices.Sorted(slices.Values(xs))
	return xs[min(len(xs)-1, int(math.Ceil(q*float64(len(xs))))-1)]
}

// near reports whether a is within share of b.
func near(a, b time.Duration, share float64) bool {
	return math.Abs(float64(a-b)) <= share*math.Abs(float64(b))
}
