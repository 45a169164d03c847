package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/query"
)

// Arms of a case.
const (
	with    = "with"    // everything
	without = "without" // without those that explain named
	sham    = "sham"    // without those that nobody blames
)

// session is one engine's life: what was played on it, and in which order.
type session struct {
	dir      string
	Runs     []replayed
	Culprits map[string][]string // by case: ids of those that explain named, as the load calls them
}

// replayed is one replay of an arm.
type replayed struct {
	Case   string
	Repeat int
	Arm    string
	File   string // of its clients' records
	results
}

type results []replay.Result

// id is what a request of the load is called in this replay: the engine sees each id once.
func (r *replayed) id(request string) string { return request + r.suffix() }

func (r *replayed) suffix() string { return fmt.Sprintf("@%s-%d-%s", r.Case, r.Repeat, r.Arm) }

const (
	sessionFile = "session.json"
	captureFile = "capture.wlc"
)

func (s *session) load() error {
	b, err := os.ReadFile(filepath.Join(s.dir, sessionFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, s); err != nil {
		return fmt.Errorf("%s: %w", sessionFile, err)
	}
	for i := range s.Runs {
		if s.Runs[i].results, err = engineenv.ReadPlayed(filepath.Join(s.dir, s.Runs[i].File)); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) save() error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, sessionFile), b, 0o644)
}

// open reads what was recorded of the engine so far. What its clients saw is not among it: that is what the answers are judged by.
func (s *session) open() (*query.Ledger, error) {
	a := ingest.New()
	if err := a.Load([]string{filepath.Join(s.dir, captureFile)}, time.Now().UnixNano(), nil); err != nil {
		return nil, err
	}
	return query.Open(a.Book()), nil
}

// play starts an engine, warms it up, and replays the arms of the cases on it, interleaved.
func (s *session) play(ctx context.Context, chosen []one, repeats int, seed uint64) error {
	binary, err := engineenv.Build(ctx, s.dir)
	if err != nil {
		return err
	}
	python, err := engineenv.Python(ctx, version)
	if err != nil {
		return err
	}
	if err := engineenv.Prepare(ctx, python, s.dir); err != nil {
		return err
	}
	rings := filepath.Join(s.dir, "rings")
	if err := os.MkdirAll(rings, 0o700); err != nil {
		return err
	}
	e, err := engineenv.Start(ctx, engineenv.Options{Python: python, Dir: s.dir, Rings: rings,
		Env: []string{"WHYLATE_DEPLOYMENT=blame", "WHYLATE_REPLICA=vllm-0", "VLLM_SERVER_DEV_MODE=1"}}) // development mode: /reset_prefix_cache
	if err != nil {
		return err
	}
	defer e.Stop()
	fmt.Printf("vLLM %s is healthy after %.0f s\n", version, time.Since(e.Started).Seconds())
	capture, err := engineenv.Record(binary, rings, filepath.Join(s.dir, captureFile))
	if err != nil {
		return err
	}
	if err := s.replays(ctx, e, chosen, repeats, seed); err != nil {
		capture.Kill()
		return err
	}
	return capture.Stop()
}

func (s *session) replays(ctx context.Context, e *engineenv.Engine, chosen []one, repeats int, seed uint64) error {
	if _, err := e.Play(ctx, filepath.Join(s.dir, "client-warm.wlc"), "blame", "warm", seed, warmLoad(), nil); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for repeat, more := 0, true; more; repeat++ {
		more = false
		for _, c := range chosen {
			if repeat >= c.repeats(repeats) {
				continue
			}
			more = more || repeat+1 < c.repeats(repeats)
			for _, arm := range c.arms(repeat, random) {
				if arm != with && len(s.Culprits[c.name]) == 0 {
					continue // there is nobody to leave out
				}
				if err := s.replay(ctx, e, c, repeat, arm); err != nil {
					return fmt.Errorf("case %s, repeat %d, %s: %w", c.name, repeat, arm, err)
				}
			}
		}
	}
	return nil
}

func (c one) repeats(asked int) int {
	switch {
	case asked > 0:
		return asked
	case c.sham:
		return 5
	}
	return 1
}

// arms are those of one repeat in the order in which they are played. The first of all is with everybody: it tells who the culprits are.
func (c one) arms(repeat int, random *rand.Rand) []string {
	arms := c.everyArm()
	free := arms
	if repeat == 0 {
		free = arms[1:]
	}
	random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	return arms
}

func (c one) everyArm() []string {
	if c.sham {
		return []string{with, without, sham}
	}
	return []string{with, without}
}

// replay plays one arm on the idle engine with an empty prefix cache.
func (s *session) replay(ctx context.Context, e *engineenv.Engine, c one, repeat int, arm string) error {
	if err := idle(ctx, e); err != nil {
		return err
	}
	if err := reset(ctx, e); err != nil {
		return err
	}
	r := replayed{Case: c.name, Repeat: repeat, Arm: arm}
	r.File = "client" + r.suffix() + ".wlc"
	load := slices.DeleteFunc(c.load(), func(q experiment.Request) bool {
		return arm == without && slices.Contains(s.Culprits[c.name], q.ID) || arm == sham && q.Class == apart
	})
	for i := range load {
		load[i].ID = r.id(load[i].ID)
	}
	begun := time.Now()
	var err error
	if r.results, err = e.Play(ctx, filepath.Join(s.dir, r.File), "blame", strings.TrimPrefix(r.suffix(), "@"), 1, load, nil); err != nil {
		return err
	}
	for _, q := range r.results {
		if q.Outcome != replay.Complete {
			return fmt.Errorf("request %s: %v %s", q.RequestID, q.Outcome, q.Error)
		}
	}
	fmt.Printf("%s, repeat %d, %s: %d requests in %.0f s\n", c.name, repeat, arm, len(load), time.Since(begun).Seconds())
	s.Runs = append(s.Runs, r)
	if s.Culprits[c.name] == nil {
		if err := s.name(ctx, c, &r); err != nil {
			return err
		}
	}
	return s.save()
}

// name asks explain about every request of a replay, and takes down whom it named.
func (s *session) name(ctx context.Context, c one, r *replayed) error {
	select { // until the capture has what came last
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	l, err := s.open()
	if err != nil {
		return err
	}
	culprits, text := named(l, r)
	if len(culprits) == 0 {
		text = "nobody"
	}
	fmt.Printf("%s: explain names %s\n", c.name, text)
	s.Culprits[c.name] = append([]string{}, culprits...) // empty, not absent: it was asked
	return nil
}

// idle waits until the engine has nothing to do.
func idle(ctx context.Context, e *engineenv.Engine) error {
	for range 300 {
		m, err := e.Metrics()
		if err != nil {
			return err
		}
		running, ok := engineenv.Counter(m, "vllm:num_requests_running")
		waiting, also := engineenv.Counter(m, "vllm:num_requests_waiting")
		if ok && also && running == 0 && waiting == 0 {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("the engine is not idle 30 s after the last answer")
}

func reset(ctx context.Context, e *engineenv.Engine) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/reset_prefix_cache", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return fmt.Errorf("reset the prefix cache: %s: %s", resp.Status, b)
	}
	return nil
}
