package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// answer is what a check reads of 'whylate explain -o json'.
type answer struct {
	Headline string
	Findings []finding
}

type finding struct {
	ID         string
	Part       string
	NS         int64
	Text       string
	Iterations []uint64
	Culprits   []struct{ Kind, ID, Role string }
}

func (f *finding) took() time.Duration { return time.Duration(f.NS) }

// names reports whether the finding names a culprit of that kind whose id begins so.
func (f *finding) names(kind, prefix string) bool {
	return slices.ContainsFunc(f.Culprits, func(c struct{ Kind, ID, Role string }) bool { return c.Kind == kind && strings.HasPrefix(c.ID, prefix) })
}

func (a *answer) find(id string) *finding {
	for i := range a.Findings {
		if a.Findings[i].ID == id {
			return &a.Findings[i]
		}
	}
	return nil
}

// explain asks the program itself, as a person would.
func (s *smoke) explain(ctx context.Context, id string) (*answer, error) {
	a := new(answer)
	return a, engineenv.Ask(ctx, s.binary, a, "explain", id, "--from", s.Dir)
}

// answers asks about one request of each planted incident and about one that nobody hurt.
func (s *smoke) answers(ctx context.Context, l *query.Ledger) {
	for _, ask := range []struct {
		what string
		do   func(context.Context, *query.Ledger) error
	}{{"the logprobs stall", s.stall}, {"a preemption", s.preemption}, {"a long prompt", s.longPrompt}, {"KV exhaustion", s.exhaustion}, {"an unhurt request", s.unhurt}} {
		if err := ask.do(ctx, l); err != nil {
			s.Check(false, "%s: %v", ask.what, err)
		}
	}
}

// stall: the first logprobs of an engine make one iteration long; who arrives meanwhile waits in the inbox.
func (s *smoke) stall(ctx context.Context, l *query.Ledger) error {
	c, _ := s.Worst(l, "short", func(a *account.Account) int64 { return a.Line(account.Inbox).NS })
	x, err := s.explain(ctx, c.RequestID)
	if err != nil {
		return err
	}
	f := x.find("inbox-behind-iteration")
	if f == nil {
		return fmt.Errorf("%s has no inbox finding: %s", c.RequestID, x.Headline)
	}
	ttft := time.Duration(c.First - c.Sent)
	s.Check(f.names("request", "fan-0"), "the stall: %s names fan-0, which brought the first logprobs (%s)", c.RequestID, f.Text)
	var logged float64
	longest := 0
	for i, line := range s.Log {
		if line.Elapsed > logged {
			logged, longest = line.Elapsed, i
		}
	}
	number := nonEmpty(l.Book.Engines[0], longest)
	s.Check(slices.Contains(f.Iterations, number), "the stall: names iteration %d, the longest by the engine's own log (%.0f ms)", number, logged)
	s.Check(engineproof.Near(f.took(), ttft, 0.2), "the stall: %v in the inbox, its client waited %v for the first token", f.took(), ttft)
	s.Check(f.took() <= time.Duration(logged*1e6)+time.Second, "the stall: no longer than the iteration in the engine's log")
	return nil
}

// nonEmpty is the number of the i-th iteration with tokens, which is how the engine's log counts.
func nonEmpty(e *ledger.Engine, i int) uint64 {
	for k := range e.Iterations {
		if e.Iterations[k].Tokens == 0 {
			continue
		}
		if i == 0 {
			return e.Iterations[k].Number
		}
		i--
	}
	return 0
}

// preemption: a request that grew with thirteen others loses its blocks to one of them.
func (s *smoke) preemption(ctx context.Context, l *query.Ledger) error {
	c, a := s.Worst(l, "grow", func(a *account.Account) int64 { return a.Split(account.Decode, account.SplitPreempted) })
	x, err := s.explain(ctx, c.RequestID)
	if err != nil {
		return err
	}
	f := x.find("preempted")
	if f == nil {
		return fmt.Errorf("%s has no preemption finding: %s", c.RequestID, x.Headline)
	}
	s.Check(f.names("request", "grow-"), "a preemption: %s names the request that took its blocks (%s)", c.RequestID, f.Text)
	p := a.Tail.Preemptions[0]
	s.Check(slices.Contains(f.Iterations, p.Iteration), "a preemption: names iteration %d", p.Iteration)
	// The client sees each absence as one long gap between chunks.
	gaps := chunkGaps(c)
	slices.Sort(gaps)
	var absent time.Duration
	for _, g := range gaps[len(gaps)-min(len(gaps), len(a.Tail.Preemptions)):] {
		absent += g
	}
	s.Check(engineproof.Near(f.took(), absent, 0.2), "a preemption: %v lost to it, its client saw gaps of %v", f.took(), absent)
	return nil
}

func chunkGaps(c *replay.Result) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(c.Chunks); i++ {
		gaps = append(gaps, time.Duration(c.Chunks[i].At-c.Chunks[i-1].At))
	}
	return gaps
}

// longPrompt: a steady stream and one long prompt, nobody else; three times, so that what disturbs one of them decides nothing. What is
// stated is the mean cost of such a prompt, which one may miss by as much as the machine's speed varies.
func (s *smoke) longPrompt(ctx context.Context, l *query.Ledger) error {
	var ratios []float64
	for i := range s.Results {
		c := &s.Results[i]
		if c.Class != "steady" {
			continue
		}
		x, err := s.explain(ctx, c.RequestID)
		if err != nil {
			return err
		}
		f := x.find("others-prefill")
		if f == nil {
			return fmt.Errorf("%s has no finding of others' prefill: %s", c.RequestID, x.Headline)
		}
		long := "long-" + strings.TrimPrefix(c.RequestID, "steady-")
		s.Check(f.names("request", long) && len(f.Culprits) == 1, "a long prompt: %s names %s and nobody else (%s)", c.RequestID, long, f.Text)
		r, err := l.Find(long)
		if err != nil {
			return err
		}
		s.Check(slices.Contains(f.Iterations, r.Sequences[0].Join), "a long prompt: names iteration %d, its first", r.Sequences[0].Join)
		more := lengthened(chunkGaps(c))
		fmt.Printf("      %v of others' prefill, the client's gaps were longer by %v\n", f.took(), more)
		ratios = append(ratios, float64(f.took())/float64(more))
	}
	slices.Sort(ratios)
	middle := ratios[len(ratios)/2]
	s.Check(middle > 0.8 && middle < 1.2, "long prompts: stated %.0f %% of what the clients' clocks say, in the middle of %d", 100*middle, len(ratios))
	return nil
}

// lengthened is by how much, by the client's own clock, those gaps were longer than most that were much longer than most.
func lengthened(gaps []time.Duration) (more time.Duration) {
	usual := slices.Sorted(slices.Values(gaps))[len(gaps)/2]
	for _, g := range gaps {
		if g > 3*usual {
			more += g - usual
		}
	}
	return more
}

// exhaustion: short requests wait for blocks that long answers hold.
func (s *smoke) exhaustion(ctx context.Context, l *query.Ledger) error {
	c, _ := s.Worst(l, "waiter", func(a *account.Account) int64 { return a.Line(account.Queue).NS })
	x, err := s.explain(ctx, c.RequestID)
	if err != nil {
		return err
	}
	f := x.find("queue-kv-blocks")
	if f == nil {
		return fmt.Errorf("%s has no finding of KV blocks: %s", c.RequestID, x.Headline)
	}
	ttft := time.Duration(c.First - c.Sent)
	s.Check(f.names("request", "grow-"), "KV exhaustion: %s names the requests that held the blocks (%s)", c.RequestID, f.Text)
	s.Check(slices.ContainsFunc(f.Culprits, func(k struct{ Kind, ID, Role string }) bool { return k.Role == "head of line" }), "KV exhaustion: names the head of the line")
	s.Check(engineproof.Near(f.took(), ttft, 0.2), "KV exhaustion: %v in the queue, its client waited %v for the first token", f.took(), ttft)
	return nil
}

// unhurt: sent into an empty engine; nobody may be blamed.
func (s *smoke) unhurt(ctx context.Context, l *query.Ledger) error {
	x, err := s.explain(ctx, "alone-2")
	if err != nil {
		return err
	}
	var blamed []string
	for _, f := range x.Findings {
		for _, c := range f.Culprits {
			blamed = append(blamed, c.ID)
		}
	}
	s.Check(len(blamed) == 0, "an unhurt request blames nobody, blamed %v (%s)", blamed, x.Headline)
	return nil
}
