package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/query"
)

// crowd is requests of short lives, two at a time.
func crowd(class string) []experiment.Request {
	var l engineproof.Load
	engineproof.Every(0, 8*time.Second, 250*time.Millisecond, func(at time.Duration) {
		l.Add(class, at, 64, 24, nil)
		l.Add(class, at, 64, 24, nil)
	})
	return l.Requests()
}

// joined checks that each request of a load has its front end's part and its engine's, and that they are of one another.
func (b *bench) joined(what string, l *query.Ledger, results []replay.Result) {
	var whole int
	for _, c := range results {
		r, err := l.Find(c.RequestID)
		if err == nil && c.Outcome == replay.Complete && r.Received != 0 && r.LastByte != 0 && len(r.Sequences) == 1 && r.Sequences[0].Submitted != 0 && r.Sequences[0].Arrived != 0 && r.Sequences[0].Queued != 0 && r.Sequences[0].Finished != 0 {
			whole++
		}
	}
	b.Check(whole == len(results) && whole > 50, "%s: %d of %d requests have front end and engine, joined", what, whole, len(results))
}

// servers runs two API servers before one engine: whichever served a request, its part is there.
func (b *bench) servers(ctx context.Context) error {
	s, err := b.record(ctx, b.newest(), "servers", func(o *engineenv.Options) { o.CLI, o.Args = true, []string{"--api-server-count", "2"} })
	if err != nil {
		return err
	}
	defer s.stop()
	results, err := s.Play(ctx, s.engine, crowd("either"), func(o *replay.Options) {
		o.Header = http.Header{"Connection": {"close"}} // whoever is free takes the next one
	})
	if err != nil {
		return err
	}
	l, err := s.ledger()
	if err != nil {
		return err
	}
	(&engineproof.Checked{Report: b.Report, Run: s.Run}).Healthy(l)
	b.Check(len(l.Book.Engines) == 1, "servers: %d engine, one incarnation", len(l.Book.Engines))
	served := map[string]uint64{}
	for _, src := range l.Book.Sources {
		if src.Role == "frontend" {
			served[src.Name] = src.Frames
		}
	}
	busy := 0
	for _, frames := range served {
		if frames > 50 {
			busy++
		}
	}
	b.Check(busy == 2, "servers: the rings of %d front ends, %d of them served requests: %v", len(served), busy, served)
	b.joined("servers", l, results)
	return nil
}

// ranks runs two data-parallel ranks: two engines in the ledger, each request on one.
func (b *bench) ranks(ctx context.Context) error {
	s, err := b.record(ctx, b.newest(), "ranks", func(o *engineenv.Options) {
		o.CLI, o.Args = true, []string{"--data-parallel-size", "2", "--api-server-count", "1"}
	})
	if err != nil {
		b.Skip("ranks: the CPU build of vLLM %s does not start with two data-parallel ranks: %s", b.newest(), reason(filepath.Join(b.dir, "ranks", "engine.log")))
		return nil
	}
	defer s.stop()
	results, err := s.Play(ctx, s.engine, crowd("ranked"), nil)
	if err != nil {
		return err
	}
	l, err := s.ledger()
	if err != nil {
		return err
	}
	(&engineproof.Checked{Report: b.Report, Run: s.Run}).Healthy(l)
	var ranks []int
	var ids []string
	incarnations := map[string]bool{}
	for _, e := range l.Book.Engines {
		ranks = append(ranks, e.ID.Rank)
		ids = append(ids, fmt.Sprintf("%s (%d sequences)", e.ID, len(e.Sequences)))
		incarnations[e.ID.Incarnation] = true
	}
	slices.Sort(ranks)
	b.Check(slices.Equal(ranks, []int{0, 1}) && len(incarnations) == 1, "ranks: two engines of one incarnation, one a rank: %s", strings.Join(ids, ", "))
	b.joined("ranks", l, results)
	on := map[int]int{}
	for _, c := range results {
		if r, err := l.Find(c.RequestID); err == nil && len(r.Sequences) == 1 && r.Sequences[0].Engine != nil {
			on[r.Sequences[0].Engine.ID.Rank]++
		}
	}
	b.Check(on[0] > 0 && on[1] > 0 && on[0]+on[1] == len(results), "ranks: each of %d requests is on one, %d and %d", len(results), on[0], on[1])
	return nil
}

// reason is the last line of an engine's log that names an error.
func reason(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	last := "its log names no error"
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "Error") {
			last = strings.TrimSpace(line)
		}
	}
	return last
}
