package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/experiment"
)

// Run sends the workload and returns what came of it, once every request has ended. The first request is sent at once; the
// others keep their distance to it, divided by the speed.
//
// What befalls a request is in its [Result], not in the error. The error is one of the options or of the workload, found
// before anything was sent, or that of ctx: then sending has stopped, the requests under way have been hung up, and the
// summary is about those that were sent.
func Run(ctx context.Context, o Options, workload []experiment.Request) (Summary, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Summary{}, fmt.Errorf("replay: %w", err)
	}
	prompter, err := experiment.NewPrompter(o.Prompt)
	if err != nil {
		return Summary{}, fmt.Errorf("replay: %w", err)
	}
	if err := check(workload); err != nil {
		return Summary{}, fmt.Errorf("replay: %w", err)
	}
	g := &generator{client: newClient(o), prompter: prompter, workload: workload, tally: newTally(len(workload))}
	defer g.close()
	g.run(ctx)
	summary := g.tally.summary(&o, g.delayed, g.peak)
	if ctx.Err() != nil {
		return summary, fmt.Errorf("replay stopped after %d of %d requests: %w", len(workload)-summary.NotSent, len(workload), context.Cause(ctx))
	}
	return summary, nil
}

// check holds that every request can be sent and that their times are in order.
func check(workload []experiment.Request) error {
	if len(workload) == 0 {
		return errors.New("the workload is empty: give at least one request")
	}
	for i := range workload {
		if err := workload[i].Validate(); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		if i > 0 && workload[i].At < workload[i-1].At {
			return fmt.Errorf("request %d is at %v, before the one ahead of it at %v: sort the workload by time", i, workload[i].At, workload[i-1].At)
		}
	}
	return nil
}

// A generator runs the open loop.
type generator struct {
	*client
	prompter *experiment.Prompter
	workload []experiment.Request
	tally    *tally

	delayed  int          // requests that the limit of requests in flight held back
	inFlight atomic.Int64 // requests under way now
	peak     int          // … at most
}

func (g *generator) run(ctx context.Context) {
	results := make(chan Result)
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for r := range results {
			g.tally.add(&r)
			if g.Recorder != nil {
				g.Recorder(r)
			}
		}
	}()

	var clients sync.WaitGroup
	slots := make(chan struct{}, g.MaxInFlight)
	for j := range g.scheduled(ctx, slots) {
		g.peak = max(g.peak, int(g.inFlight.Add(1)))
		clients.Go(func() {
			ended := g.do(ctx, j)
			g.inFlight.Add(-1)
			<-slots
			for _, r := range ended { // a slow recorder holds up nobody but this goroutine
				results <- r
			}
		})
	}
	clients.Wait()
	close(results)
	<-collected
}

// scheduled yields each job at its planned time, as soon as it has a slot, until ctx ends.
func (g *generator) scheduled(ctx context.Context, slots chan struct{}) func(yield func(*job) bool) {
	return func(yield func(*job) bool) {
		var start, heldUntil int64
		for j := range g.prepared(ctx) {
			if j.index == 0 {
				start = g.Clock.Now()
			}
			j.planned = start + g.offset(j.request)
			if g.Clock.SleepUntil(ctx, j.planned) != nil {
				return
			}
			select {
			case slots <- struct{}{}:
				if j.planned < heldUntil { // it stood behind one that had to wait
					g.delayed++
				}
			default:
				g.delayed++
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				heldUntil = g.Clock.Now()
			}
			if !yield(j) {
				return
			}
		}
	}
}

// offset returns when the request is due, ns after the first.
func (g *generator) offset(r *experiment.Request) int64 {
	at := int64(r.At - g.workload[0].At)
	if g.Speed == 1 {
		return at
	}
	return int64(min(float64(at)/g.Speed, 1<<62))
}

// aheadOfTime is how many requests are made ready before they are due, so that making a long prompt delays no sending.
const aheadOfTime = 16

// prepared yields the jobs in the order of the workload, until ctx ends.
func (g *generator) prepared(ctx context.Context) <-chan *job {
	jobs := make(chan *job, aheadOfTime)
	go func() {
		defer close(jobs)
		for i := range g.workload {
			r := &g.workload[i]
			id := g.requestID(r, i)
			select {
			case jobs <- &job{index: i, request: r, id: id, body: g.body(g.prompter, r, id)}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return jobs
}
