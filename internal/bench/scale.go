package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
)

// size is a store to be asked: so many engines of so many iterations each.
type size struct {
	name             string
	engines, periods int
	period           int // iterations of a period: what a server's merging arrives at
}

var (
	shortSizes = []size{{"1e6", 10, 1, 100_000}}
	longSizes  = []size{{"1e6", 10, 1, 100_000}, {"1e7", 20, 1, 500_000}, {"1e8", 100, 2, 500_000}}
)

// asked is how many explanations a figure is of.
const asked = 400

// scale measures explanations and lists in stores of several sizes, through the server and nothing but HTTP missing. The files have just been
// written, so the system's cache holds what fits into memory. In keep, a directory, they stay, and those that are there are not written again;
// "" keeps none.
func scale(s *figure.Sheet, sizes []size, keep string) error {
	p99 := map[string]float64{}
	for _, z := range sizes {
		dir := filepath.Join(keep, z.name)
		if keep == "" {
			var err error
			if dir, err = os.MkdirTemp("", "whylate-bench-"); err != nil {
				return err
			}
		}
		var err error
		p99[z.name], err = scaleOf(s, z, dir)
		if keep == "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		if err != nil {
			return err
		}
		if first := sizes[0].name; z.name != first {
			s.Report("scale/explain_growth_"+first+"_to_"+z.name, p99[z.name]/p99[first], "ratio")
		}
	}
	return nil
}

func scaleOf(s *figure.Sheet, z size, dir string) (p99 float64, err error) {
	st, err := embedded.Open(filepath.Join(dir, "store"), embedded.Options{})
	if err != nil {
		return 0, err
	}
	defer st.Close()
	known := filepath.Join(dir, "ids")
	b, err := os.ReadFile(known)
	if errors.Is(err, os.ErrNotExist) {
		began := time.Now()
		ids, err := fill(st, z)
		if err != nil {
			return 0, err
		}
		s.Report("scale/generate_and_seal_"+z.name, float64(z.engines*z.periods*z.period)/time.Since(began).Seconds(), "iterations/s")
		b = []byte(strings.Join(ids, "\n"))
		if err := os.WriteFile(known, b, 0o644); err != nil {
			return 0, err
		}
	} else if err != nil {
		return 0, err
	}
	ids := strings.Split(string(b), "\n")
	periods, err := st.Periods(context.Background())
	if err != nil {
		return 0, err
	}
	var bytes, requests int64
	for _, p := range periods {
		bytes += p.Size()
		requests += p.Requests
	}
	s.Report("scale/bytes_"+z.name, float64(bytes)/1e6, "MB")
	s.Report("scale/requests_"+z.name, float64(requests), "count")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	srv := server.New(st, server.Settings{Log: slog.New(slog.DiscardHandler), SealEvery: 24 * time.Hour})
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	for srv.Ready(ctx) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	var took []time.Duration
	for _, id := range ids {
		start := time.Now()
		x, err := srv.Explain(ctx, api.ExplainQuery{ID: id})
		if err != nil {
			return 0, fmt.Errorf("explain %s: %w", id, err)
		}
		took = append(took, time.Since(start))
		if x.Account.E2E() == 0 {
			return 0, fmt.Errorf("explain %s: an account of nothing", id)
		}
	}
	s.Report("scale/explain_"+z.name+"_p50", quantile(took, 0.5), "ms")
	p99 = quantile(took, 0.99)
	s.AtMost("scale/explain_"+z.name+"_p99", p99, "ms", 100)

	for _, q := range []struct {
		name  string
		query api.RequestsQuery
	}{
		{"newest", api.RequestsQuery{Limit: 50}}, {"ttft", api.RequestsQuery{Sort: "ttft", Limit: 50}}, {"e2e", api.RequestsQuery{Sort: "e2e", Limit: 50}},
		{"queue", api.RequestsQuery{Sort: "queue", Limit: 50}}, {"over_5s_by_decode", api.RequestsQuery{Sort: "decode", Over: 5 * time.Second, Limit: 50}},
	} {
		took = took[:0]
		for range 5 {
			start := time.Now()
			list, err := srv.Requests(ctx, q.query)
			if err != nil {
				return 0, err
			}
			if len(list.Requests) == 0 {
				return 0, fmt.Errorf("the list %s is empty", q.name)
			}
			took = append(took, time.Since(start))
		}
		s.Report("scale/list_"+q.name+"_"+z.name, quantile(took, 0.5), "ms")
	}
	cancel()
	return p99, <-done
}

// fill seals the engines of a size, on all cores, and returns some of the requests' ids, chosen at random.
func fill(st store.Store, z size) (ids []string, err error) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	each, full := asked/z.engines, 0
	for k := range z.engines {
		group.Go(func() error {
			some, err := fillEngine(st, z, uint64(k), each)
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, some...)
			if full++; z.engines >= 100 && full%10 == 0 {
				fmt.Fprintf(os.Stderr, "bench: %d of %d engines are sealed\n", full, z.engines)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids, nil
}

// modelRows is how many iterations a model is fitted on: on more it comes out the same here.
const modelRows = 20_000

// fillEngine seals one engine, and returns the ids of n of its requests, chosen at random.
func fillEngine(st store.Store, z size, seed uint64, n int) (ids []string, err error) {
	rng := rand.New(rand.NewPCG(seed, 2))
	steady := scenario.NewSteady(scenario.Load{Seed: seed, Replica: fmt.Sprintf("host-%d", seed), Batch: 64, Output: 250, Iteration: 10 * time.Millisecond})
	a := ingest.New()
	after, requests := uint64(0), 0
	var model *account.Model
	for range z.periods {
		for i := range z.period {
			if err := steady.Next(); err != nil {
				return nil, err
			}
			if i%512 == 511 || i == z.period-1 {
				if err := steady.Feed(a); err != nil {
					return nil, err
				}
			}
		}
		book := a.Live()
		e := book.Engines[0]
		if model == nil {
			head := *e
			head.Iterations = e.Iterations[:min(modelRows, len(e.Iterations))]
			fitted, ok := account.Fit(&head)
			if !ok {
				return nil, errors.New("no model fits the generated engine")
			}
			model = &fitted
		}
		through := e.Completed()
		sealed := map[*ledger.Sequence]bool{}
		p := store.Cut(e, book.Requests, model, after, through, func(q *ledger.Sequence) bool { return ingest.Sealable(q, through) })
		for _, r := range p.Requests {
			sealed[r.Sequences[0]] = true
			requests++
			if len(ids) < n {
				ids = append(ids, r.RequestID)
			} else if k := rng.IntN(requests); k < n {
				ids[k] = r.RequestID
			}
		}
		if _, err := st.Seal(context.Background(), p); err != nil {
			return nil, err
		}
		a.ForgetIf(e.ID, through, func(q *ledger.Sequence) bool { return sealed[q] })
		after = through
	}
	return ids, nil
}

// quantile is a quantile of durations, in ms.
func quantile(took []time.Duration, q float64) float64 {
	took = slices.Sorted(slices.Values(took))
	return took[min(int(q*float64(len(took))), len(took)-1)].Seconds() * 1e3
}
