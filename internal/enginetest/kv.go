package main

import (
	"context"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/ledger"
)

// exhaustion: fourteen answers that grow to 35 blocks each in a pool of 200, beside a client of short requests. Each of those that
// waited for blocks says so, and names who held them and who stood at the head.
func (b *bench) exhaustion(ctx context.Context) error {
	s, err := b.common(ctx)
	if err != nil {
		return err
	}
	var load engineproof.Load
	for i := range 14 {
		load.Add("neighbour", time.Duration(i)*10*time.Millisecond, 200, 900, nil)
	}
	engineproof.Every(500*time.Millisecond, 20*time.Second, 330*time.Millisecond, func(at time.Duration) { load.Add("client", at, 64, 16, nil) })
	results, err := s.Play(ctx, s.engine, load.Requests(), nil)
	if err != nil {
		return err
	}
	l, err := s.ledger()
	if err != nil {
		return err
	}
	var waited, told int
	var text string
	for _, a := range answers(l, results, "client") {
		if a.Outcome != replay.Complete {
			b.Check(false, "kv: %s: %v %s", a.id(), a.Outcome, a.Result.Error)
			continue
		}
		var kv int64 // of all that it waited for, what has to do with blocks
		for _, r := range []ledger.SkipReason{ledger.SkipKVBlocks, ledger.SkipHeadOfLine, ledger.SkipPreemptionStep} {
			kv += a.Account.Split(account.Queue, r.String())
		}
		if time.Duration(kv) < hurt {
			continue
		}
		waited++
		f := a.find(diagnose.QueueKVBlocks)
		var queue time.Duration // with what it waited for besides
		for _, x := range a.Findings {
			if x.Part == account.Queue {
				queue += time.Duration(x.NS)
			}
		}
		switch {
		case f == nil:
			b.Check(false, "kv: %s waited %v and has no finding of KV blocks: %s", a.id(), a.waited().Round(time.Millisecond), a.Headline)
		case !names(f, "held", "neighbour-"):
			b.Check(false, "kv: %s names nobody who held the blocks: %s", a.id(), f.Text)
		case !names(f, "head of line", "") && !strings.Contains(f.Text, "head of the line itself"):
			b.Check(false, "kv: %s does not say who stood at the head: %s", a.id(), f.Text)
		case f.NS != kv || !engineproof.Near(queue, a.waited(), 0.2):
			b.Check(false, "kv: %s: %v in the queue for blocks, %v for all limits, its client waited %v for the first token", a.id(), time.Duration(f.NS), queue, a.waited())
		default:
			told++
			text = f.Text
		}
	}
	b.Sheet.AtLeast("engine-test/kv_waiting_requests", float64(waited), "count", 10)
	b.Check(waited >= 10 && told == waited, "kv: each of %d requests that waited for blocks says so with holders and head, %d do (%s)", waited, told, text)
	return nil
}
