package overhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
)

// Bench compares servers with the probe to servers without it.
type Bench struct {
	Servers Servers
	Load    Load
	Replay  replay.Options // how the load is sent; Base, Run and Recorder are the bench's own
	Pairs   int
	Seed    uint64 // of the order in each pair, and of the prompts
	Sham    bool   // both servers of a pair have the probe off: what is seen then is noise

	// MaxErrors is how many requests of one run may end otherwise than complete, those apart that the workload itself cancels.
	MaxErrors int

	// Said is told what is going on; nil is told nothing.
	Said func(string)
}

// MaxPairs bounds a bench to what somebody may wait for.
const MaxPairs = 1000

// Check holds that it can be run.
func (b *Bench) Check() error {
	switch {
	case b.Pairs < MinPairs || b.Pairs > MaxPairs:
		return fmt.Errorf("%d pairs: give %d to %d; with fewer nothing can be told from noise", b.Pairs, MinPairs, MaxPairs)
	case b.MaxErrors < 0:
		return fmt.Errorf("%d errors at most: give 0 or more", b.MaxErrors)
	}
	return b.Load.check()
}

// Run plays all pairs. With an error there may be a report all the same: of the pairs that were whole before, if they are [MinPairs].
func (b *Bench) Run(ctx context.Context) (*Report, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	if b.Said == nil {
		b.Said = func(string) {}
	}
	runs, err := b.pairs(ctx)
	whole := len(runs) / 2
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted after %d of %d pairs", whole, b.Pairs)
	}
	if whole < MinPairs {
		return nil, fmt.Errorf("%w; nothing can be said: that takes %d whole pairs", err, MinPairs)
	}
	return b.report(runs[:2*whole]), err
}

// pairs plays them, and returns the runs that went well.
func (b *Bench) pairs(ctx context.Context) ([]Run, error) {
	if b.Servers.Fresh() { // compiles and fills caches, which all later ones find
		b.Said("rehearsal: one start that is not measured")
		if err := b.rehearse(ctx); err != nil {
			return nil, fmt.Errorf("rehearsal: %w", err)
		}
	}
	var runs []Run
	for i, arms := range order(b.Pairs, b.Seed) {
		for _, arm := range arms {
			b.Said(fmt.Sprintf("pair %d of %d: %s", i+1, b.Pairs, arm))
			p, err := b.play(ctx, arm, uint64(i))
			if err != nil {
				return runs, fmt.Errorf("pair %d of %d, probe %s: %w", i+1, b.Pairs, arm, err)
			}
			runs = append(runs, newRun(i+1, arm, p))
		}
	}
	return runs, nil
}

// order draws which arm of each pair comes first. Of two pairs in a row one begins with each, so a machine that grows slower from run to run
// hurts both arms alike.
func order(pairs int, seed uint64) [][2]Arm {
	draw := rand.New(rand.NewPCG(seed, 0x6f72646572))
	orders := make([][2]Arm, pairs)
	for i := range orders {
		switch {
		case i%2 == 1:
			orders[i] = [2]Arm{orders[i-1][1], orders[i-1][0]}
		case draw.IntN(2) == 0:
			orders[i] = [2]Arm{On, Off}
		default:
			orders[i] = [2]Arm{Off, On}
		}
	}
	return orders
}

// probe says whether an arm has it.
func (b *Bench) probe(a Arm) bool { return a == On && !b.Sham }

// rehearse starts a server, warms it up and looks whether the probe does what it should, before anybody waits for a quarter of an hour.
func (b *Bench) rehearse(ctx context.Context) error {
	s, err := b.Servers.Start(ctx, b.probe(On))
	if err != nil {
		return err
	}
	err = b.warmUp(ctx, s, 0)
	if err == nil {
		err = b.checkProbe(s, b.probe(On))
	}
	return errors.Join(err, s.Stop())
}

// play is one run: a server, the warm-up, the load and the burst.
func (b *Bench) play(ctx context.Context, arm Arm, pair uint64) (p *played, err error) {
	s, err := b.Servers.Start(ctx, b.probe(arm))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := b.warmUp(ctx, s, pair); err != nil {
		return nil, err
	}
	p = &played{}
	if p.before, err = s.Usage(); err != nil {
		return nil, err
	}
	if p.steady, err = b.send(ctx, s, "load", pair, b.Load.Workload); err != nil {
		return nil, err
	}
	if b.Load.Burst > 0 {
		if p.burst, err = b.send(ctx, s, "burst", pair, b.Load.burst()); err != nil {
			return nil, err
		}
	}
	if p.after, err = s.Usage(); err != nil {
		return nil, err
	}
	if p.before.Log != nil && p.after.Log != nil {
		if p.log, err = s.Output(*p.before.Log, *p.after.Log); err != nil {
			return nil, err
		}
	}
	if p.recorded, err = s.Recorded(p.before.At, p.after.At); err != nil {
		return nil, err
	}
	return p, b.checkProbe(s, b.probe(arm))
}

func (b *Bench) warmUp(ctx context.Context, s Server, pair uint64) error {
	_, err := b.send(ctx, s, "warm-up", pair, b.Load.warmUp())
	return err
}

// Salts of the prompts' seed, so that no part of a run finds its prompts in the prefix cache.
var salts = map[string]uint64{"load": 1, "burst": 2, "warm-up": 3}

// send plays requests: the same ones to the same part of every run. Servers that live on get new prompts in each pair.
func (b *Bench) send(ctx context.Context, s Server, part string, pair uint64, w []experiment.Request) (replay.Summary, error) {
	o := b.Replay
	o.Base, o.Run, o.Recorder, o.Seed = s.URL(), "overhead-"+part, nil, b.Seed
	o.Prompt.Seed = b.Seed<<2 | salts[part]
	if !b.Servers.Fresh() {
		o.Prompt.Seed += (pair + 1) << 32
	}
	summary, err := replay.Run(ctx, o, w)
	if err != nil {
		return summary, err
	}
	planned := 0
	for i := range w {
		if w[i].CancelAfter > 0 || w[i].CancelChunks > 0 {
			planned++
		}
	}
	if bad := summary.Requests - summary.Outcomes.Complete - min(summary.Outcomes.Cancelled, planned); bad > b.MaxErrors {
		first := ""
		if len(summary.Errors) > 0 {
			first = ": " + summary.Errors[0].Error
		}
		return summary, fmt.Errorf("%s: %d of %d requests did not complete, allowed are %d (--max-errors)%s", part, bad, summary.Requests, b.MaxErrors, first)
	}
	return summary, nil
}

// checkProbe holds that the probe is where it should be and nowhere else: without that the comparison would be a lie.
func (b *Bench) checkProbe(s Server, probe bool) error {
	u, err := s.Usage()
	if err != nil || u.Rings == nil {
		return err
	}
	switch r := u.Rings; {
	case probe && r.Iterations == 0:
		return fmt.Errorf("the server with the probe on has recorded no iteration (%d rings, %d bytes), so on would be the same as off; "+
			"run 'python -m whylate_vllm check' in its environment, and see that the command hands WHYLATE_PROBE and WHYLATE_RING_DIR on", r.Files, r.Bytes)
	case probe && r.Errors > 0:
		return fmt.Errorf("%d errors in hooks of the probe, which are off since, so on would cost less than it does in truth; look for whylate_vllm in the server's log", r.Errors)
	case !probe && r.Files > 0:
		return fmt.Errorf("the server with the probe off has written %d rings; does the command set WHYLATE_PROBE or start the probe by itself?", r.Files)
	}
	return nil
}
