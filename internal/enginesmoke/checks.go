package main

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/wire"
)

// judge holds what whylate says against what the engine, its log and its clients say.
func (s *smoke) judge(ctx context.Context) error {
	s.Sheet.AtLeast("smoke/engine_ran", 1, "count", 1)
	// The account is made without any client record: the clients' clocks are what it is judged by.
	l, err := s.Open(nil, engineproof.Capture)
	if err != nil {
		return err
	}
	both, err := s.Open(nil, s.Files()...)
	if err != nil {
		return err
	}
	if len(l.Book.Engines) != 1 {
		s.Check(false, "one engine recorded, got %d", len(l.Book.Engines))
		return nil
	}
	e := l.Book.Engines[0]
	s.Healthy(l)
	s.Complete(both, 200, 5)
	s.Counts(e, 3000)
	s.Closure(l)
	s.model(l, e)
	if err := s.probe(e); err != nil {
		return err
	}
	if err := s.damage(l, e); err != nil {
		return err
	}
	s.answers(ctx, both)
	if err := s.fleet(l); err != nil {
		return err
	}
	return s.fixture()
}

// model measures the model's error on held-out iterations, and how much slowdown it sees where all is well.
func (s *smoke) model(l *query.Ledger, e *ledger.Engine) {
	m := l.Model(e)
	if m == nil {
		s.Check(false, "no model could be fitted on %d iterations", len(e.Iterations))
		return
	}
	s.Sheet.Report("smoke/model_error_p50", 100*m.All.Median, "%")
	s.Sheet.Report("smoke/model_error_p90", 100*m.All.P90, "%")
	s.Check(m.Held >= 1000 && m.All.Median < 0.25, "the model's median error is %.1f %% on %d held-out iterations", 100*m.All.Median, m.Held)

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
	s.Check(ok && n > 10, "closure (b): %d healthy requests judged by a model fitted on the half before them", n)
	s.Sheet.Report("smoke/slowdown_where_healthy", 100*slow/max(e2e, 1), "%")
}

// probe measures what the probe itself took of each iteration, by its own record.
func (s *smoke) probe(e *ledger.Engine) error {
	var spent, shares, long []float64
	var length float64
	if _, err := s.Open(func(f wire.Frame) (wire.Frame, bool) {
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
	}, engineproof.Capture); err != nil {
		return err
	}
	s.Check(len(spent) > 1000, "%d iterations in which the probe measured itself", len(spent))
	s.Sheet.Report("smoke/probe_p50", engineproof.Quantile(spent, 0.5), "us")
	s.Sheet.Report("smoke/probe_p99", engineproof.Quantile(spent, 0.99), "us")
	s.Sheet.Report("smoke/probe_share_p50", 100*engineproof.Quantile(shares, 0.5), "%")
	s.Sheet.Report("smoke/probe_long_iterations_mean", length/1e6/float64(max(len(long), 1)), "ms")
	s.Sheet.AtMost("smoke/probe_share_of_iterations_from_20ms_p50", 100*engineproof.Quantile(long, 0.5), "%", 0.5)
	return nil
}

// span is the time in which the clients of a class sent, on the book's line.
func (s *smoke) span(class string) (from, to int64) {
	l, err := s.Open(nil, "client-0.wlc")
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
		l, err := s.Open(edit, engineproof.Capture)
		if err != nil {
			return err
		}
		ratio := (unexplained(l) - before) / removed
		s.Check(s.Sheet.AtMost("smoke/damage_"+name, 100*math.Abs(ratio-1), "%", 10), "closure (c): with %s removed, unexplained time grows by %.3f of what was removed (%.1f s over all requests); %d gaps told",
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
	for _, name := range s.Files() {
		f, err := os.Open(filepath.Join(s.Dir, name))
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
