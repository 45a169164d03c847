package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/whylate/whylate/experiment"
)

// Run sends the workload and returns what came of it, once every request has ended. The first request is sent at once; the
// others keep their distance to it, divided by the speed.
//
// What befalls a request is in its [Result], not in the error. The error is one of the options or of the workload, found
// before anything was sent, or that of ctx: then sending has stopped, the requests under way have been hung up, and the
// summary is about those that were sent.
func Run(ctx context.Context, o Options, workload []experiment.Request) (Summary, error) {
	if err := check(workload); err != nil {
		return Summary{}, fmt.Errorf("replay: %w", err)
	}
	summary, err := Play(ctx, o, experiment.Open(experiment.Requests(workload)))
	if summary.Run == "" { // nothing was sent
		return summary, err
	}
	sent := summary.Requests
	summary.of(len(workload))
	if ctx.Err() != nil {
		return summary, fmt.Errorf("replay stopped after %d of %d requests: %w", sent, len(workload), context.Cause(ctx))
	}
	return summary, err
}

// Play is [Run] for a workload of any length, and for one that waits for answers: a request that follows from an answer is
// sent so long after it as the source wants, divided by the speed. An error of the source ends the sending, and is returned
// with the summary once the requests under way have ended.
func Play(ctx context.Context, o Options, source experiment.Source) (Summary, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Summary{}, fmt.Errorf("replay: %w", err)
	}
	prompter, err := experiment.NewPrompter(o.Prompt)
	if err != nil {
		return Summary{}, fmt.Errorf("replay: %w", err)
	}
	g := &generator{client: newClient(o), prompter: prompter, source: source, slots: make(chan struct{}, o.MaxInFlight), tally: newTally()}
	defer g.close()
	g.run(ctx)
	summary := g.tally.summary(&o, g.delayed, g.peak)
	switch {
	case ctx.Err() != nil:
		return summary, fmt.Errorf("replay stopped after %d requests: %w", summary.Requests, context.Cause(ctx))
	case g.err != nil: // nobody asks the source any more
		return summary, fmt.Errorf("replay: the workload ends after %d requests: %w", summary.Requests, g.err)
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

// A generator runs the loop.
type generator struct {
	*client
	prompter *experiment.Prompter
	slots    chan struct{} // one for each request under way
	tally    *tally

	asking sync.Mutex // held while the source is asked, which may have to wait for its own
	source experiment.Source
	err    error // of the source
	taken  int   // requests that the source gave

	zero  time.Duration // of the workload: the time of its first request …
	start int64         // … and when that is sent; both are set before any is

	mu       sync.Mutex
	delayed  int // requests that the limit of requests in flight held back
	inFlight int // requests under way now
	peak     int // … at most
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
	for j := range g.scheduled(ctx) {
		g.count(1)
		clients.Go(func() {
			for j != nil {
				ended := g.do(ctx, j)
				g.count(-1)
				<-g.slots
				next := g.following(j, ended[len(ended)-1].End)
				for _, r := range ended { // a slow recorder holds up nobody but this goroutine
					results <- r
				}
				if j = next; j != nil && !g.waitFor(ctx, j) {
					return
				}
			}
		})
	}
	clients.Wait()
	close(results)
	<-collected
}

// count notes that a request begins or ends to be under way.
func (g *generator) count(by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight += by
	g.peak = max(g.peak, g.inFlight)
}

// scheduled yields each job that waits for no answer at its planned time, as soon as it has a slot, until ctx ends.
func (g *generator) scheduled(ctx context.Context) func(yield func(*job) bool) {
	return func(yield func(*job) bool) {
		var heldUntil int64
		for j := range g.prepared(ctx) {
			if j.index == 0 {
				g.zero, g.start = j.request.At, g.Clock.Now()
			}
			j.planned = g.due(j.request)
			if g.Clock.SleepUntil(ctx, j.planned) != nil {
				return
			}
			switch held, ok := g.takeSlot(ctx); {
			case !ok:
				return
			case held:
				heldUntil = g.Clock.Now()
			case j.planned < heldUntil: // it stood behind one that had to wait
				g.delay()
			}
			if !yield(j) {
				return
			}
		}
	}
}

// takeSlot waits for a slot. It says whether there was none at first, and whether there is one now.
func (g *generator) takeSlot(ctx context.Context) (held, ok bool) {
	select {
	case g.slots <- struct{}{}:
		return false, true
	default:
	}
	g.delay()
	select {
	case g.slots <- struct{}{}:
		return true, true
	case <-ctx.Done():
		return true, false
	}
}

func (g *generator) delay() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delayed++
}

// following returns the job that follows from the answer to j, or nil.
func (g *generator) following(j *job, end int64) *job {
	g.asking.Lock()
	at := g.zero + time.Duration(float64(end-g.start)*g.Speed)
	r, ok, err := g.source.Finished(j.request, max(at, j.request.At))
	index := g.takeUp(ok, err)
	g.asking.Unlock()
	if index < 0 {
		return nil
	}
	next := g.job(r, index)
	next.planned = g.due(&r)
	return next
}

// waitFor waits until the job is due and has a slot.
func (g *generator) waitFor(ctx context.Context, j *job) bool {
	if g.Clock.SleepUntil(ctx, j.planned) != nil {
		return false
	}
	if _, ok := g.takeSlot(ctx); !ok {
		return false
	}
	g.count(1)
	return true
}

// takeUp returns the index of a request that the source gave, or −1 if it gave none.
func (g *generator) takeUp(ok bool, err error) int {
	if err != nil && g.err == nil {
		g.err = err
	}
	if !ok || g.err != nil {
		return -1
	}
	g.taken++
	return g.taken - 1
}

// due returns when the request is due.
func (g *generator) due(r *experiment.Request) int64 {
	at := int64(r.At - g.zero)
	if g.Speed != 1 {
		at = int64(min(float64(at)/g.Speed, 1<<62))
	}
	return g.start + at
}

// aheadOfTime is how many requests are made ready before they are due, so that making a long prompt delays no sending.
const aheadOfTime = 16

// prepared yields the jobs that wait for no answer, in the order of the workload, until ctx ends.
func (g *generator) prepared(ctx context.Context) <-chan *job {
	jobs := make(chan *job, aheadOfTime)
	go func() {
		defer close(jobs)
		for {
			g.asking.Lock()
			r, err := g.source.Next()
			ok := err == nil
			if err == io.EOF {
				err = nil
			}
			index := g.takeUp(ok, err)
			g.asking.Unlock()
			if index < 0 {
				return
			}
			select {
			case jobs <- g.job(r, index):
			case <-ctx.Done():
				return
			}
		}
	}()
	return jobs
}

// job makes a request ready to be sent.
func (g *generator) job(r experiment.Request, index int) *job {
	id := g.requestID(&r, index)
	return &job{index: index, request: &r, id: id, body: g.body(g.prompter, &r, id)}
}
