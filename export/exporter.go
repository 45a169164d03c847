package export

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strconv"
	"sync"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// Settings say how an exporter works. Zero values have the meaning given.
type Settings struct {
	Options
	Sampling
	SpansPerSecond int           // above it the share of [Sampling] becomes smaller; 0 = no limit
	Queue          int           // spans that may wait; 0 = 20,000
	Batch          int           // spans in one request to the receiver, or those of one trace; 0 = 2,000
	Every          time.Duration // how often is sent; 0 = 1 s
	Send           func(context.Context, []*tracepb.ResourceSpans) error
	Place          *Place           // nil: the place is not kept
	Log            *slog.Logger     // nil = slog.Default()
	Now            func() time.Time // nil = time.Now
}

func (s Settings) withDefaults() Settings {
	s.Queue, s.Batch, s.Every = cmp.Or(s.Queue, 20_000), cmp.Or(s.Batch, 2_000), cmp.Or(s.Every, time.Second)
	s.Log = cmp.Or(s.Log, slog.Default())
	if s.Now == nil {
		s.Now = time.Now
	}
	return s
}

// Why something was not sent.
const (
	NotSampled   = "not sampled"   // it is not in the share, and neither failed nor late: as it should be
	RateLimited  = "rate limit"    // the share was made smaller; weights stay true
	QueueFull    = "queue full"    // the receiver is slower than what comes in; from here on weights are not true
	NotDelivered = "not delivered" // the receiver did not take it, retries included
	Rejected     = "rejected"      // the receiver took the rest of the request (partial success); counted in spans only
	NoAccount    = "no account"    // there is nothing to tell: no server saw it, or it has not ended
)

// Reasons are all reasons why something is not sent.
var Reasons = []string{NotSampled, RateLimited, QueueFull, NotDelivered, Rejected, NoAccount}

// Stats are counts since the start.
type Stats struct {
	Offered, Sent, SentSpans uint64            // requests, and spans of them
	Kept                     map[string]uint64 // requests that were to leave, by reason; one may have several
	Lost                     map[string]uint64 // requests that were not sent, by reason
	LostSpans                map[string]uint64
	Waiting                  int // spans in the queue
	Failures                 uint64
	LastFailure              error     // nil when the last sending succeeded
	FailedAt                 time.Time // of LastFailure
}

// item is one request that waits to be sent.
type item struct {
	trace  *Trace
	choice choice
	random bool
	end    int64 // Unix ns
}

// Exporter sends requests as they end. [Exporter.Offer] never waits: what there is no room for is counted and dropped.
type Exporter struct {
	set Settings

	mu     sync.Mutex
	queue  []*item
	stats  Stats
	newest int64 // end of the latest request that was offered, Unix ns
	owed   int64 // end of the earliest one that the end of the process kept from being sent; 0 = none
	last   time.Time
}

// New makes an exporter; [Exporter.Run] sends.
func New(set Settings) *Exporter {
	set = set.withDefaults()
	return &Exporter{set: set, last: set.Now(), stats: Stats{Kept: map[string]uint64{}, Lost: map[string]uint64{}, LostSpans: map[string]uint64{}}}
}

// Offer takes a request that is over, at end (Unix ns). It is chosen before it is explained: most are not.
func (e *Exporter) Offer(l *query.Ledger, r *ledger.Request, end int64) {
	a := l.Account(r)
	lineage := lineageOf(r)
	c, keep := e.set.choose(lineage.randomness(), a, errorType(r) != "")
	if why := e.admit(a, &c, keep, end); why != "" {
		e.lose(why, 1, 0)
		return
	}
	t, err := Spans(diagnose.Explain(l, r), e.set.Options)
	if err != nil {
		e.lose(NoAccount, 1, 0)
		return
	}
	e.put(&item{t, c, lineage.random, end})
}

// admit counts an offered request and says why it is not to be explained, "" where it is.
func (e *Exporter) admit(a *account.Account, c *choice, keep bool, end int64) (why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Offered++
	e.newest = max(e.newest, end)
	if a.State != account.Finished || a.From == 0 {
		return NoAccount
	}
	if !keep {
		return NotSampled
	}
	for _, why := range c.reasons {
		e.stats.Kept[why]++
	}
	if e.stats.Waiting >= e.set.Queue {
		return QueueFull
	}
	return ""
}

func (e *Exporter) put(it *item) {
	n := len(it.trace.Spans)
	e.mu.Lock()
	full := e.stats.Waiting+n > e.set.Queue
	if !full {
		e.queue = append(e.queue, it)
		e.stats.Waiting += n
	}
	e.mu.Unlock()
	if full {
		e.lose(QueueFull, 1, n)
	}
}

func (e *Exporter) lose(why string, requests, spans int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Lost[why] += uint64(requests)
	e.stats.LostSpans[why] += uint64(spans)
}

// lastChance is how long the last sending may take when the process ends.
const lastChance = 5 * time.Second

// Run sends until ctx ends, then what is left.
func (e *Exporter) Run(ctx context.Context) error {
	t := time.NewTicker(e.set.Every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			e.Flush(ctx)
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastChance)
			defer cancel()
			e.Flush(ctx)
			return nil
		}
	}
}

// Flush sends what waits, as far as the rate limit lets it. A batch that the receiver does not take in the time that it has is dropped and
// counted: the next one may do.
func (e *Exporter) Flush(ctx context.Context) {
	items := e.take()
	for len(items) > 0 {
		n, spans := 0, 0
		for n < len(items) && (n == 0 || spans+len(items[n].trace.Spans) <= e.set.Batch) {
			spans += len(items[n].trace.Spans)
			n++
		}
		e.send(ctx, items[:n], spans)
		items = items[n:]
	}
	e.keepPlace()
}

// take empties the queue and thins it to the rate limit: those that leave with certainty have the first word.
func (e *Exporter) take() []*item {
	e.mu.Lock()
	items := e.queue
	e.queue, e.stats.Waiting = nil, 0
	now := e.set.Now()
	budget := int(float64(e.set.SpansPerSecond) * now.Sub(e.last).Seconds())
	e.last = now
	e.mu.Unlock()
	if e.set.SpansPerSecond > 0 {
		items = e.thin(items, budget)
	}
	for _, it := range items {
		it.choice.mark(it.trace, it.random)
	}
	return items
}

func (e *Exporter) thin(items []*item, budget int) (kept []*item) {
	var certain, share []*item
	for _, it := range items {
		if it.choice.certain() {
			certain = append(certain, it)
		} else {
			share = append(share, it)
		}
	}
	for _, list := range [][]*item{certain, share} {
		var over []*item
		list, over, budget = thin(list, budget)
		kept = append(kept, list...)
		for _, it := range over {
			e.lose(RateLimited, 1, len(it.trace.Spans))
		}
	}
	return kept
}

// rejected is how an OpenTelemetry client words a partial success.
var rejected = regexp.MustCompile(`\((\d+) spans rejected\)`)

func (e *Exporter) send(ctx context.Context, items []*item, spans int) {
	traces := make([]*Trace, len(items))
	for i, it := range items {
		traces[i] = it.trace
	}
	err := e.set.Send(ctx, Batch(traces))
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.stats.Failures++
		e.stats.FailedAt = e.set.Now()
	}
	e.stats.LastFailure = err
	if err == nil {
		e.stats.Sent += uint64(len(items))
		e.stats.SentSpans += uint64(spans)
		return
	}
	e.set.Log.Warn("export", "requests", len(items), "spans", spans, "error", err)
	if m := rejected.FindStringSubmatch(err.Error()); m != nil {
		n, _ := strconv.Atoi(m[1])
		n = min(n, spans)
		e.stats.Sent += uint64(len(items))
		e.stats.SentSpans += uint64(spans - n)
		e.stats.LostSpans[Rejected] += uint64(n)
		return
	}
	if ctx.Err() != nil { // after the restart they are offered again
		for _, it := range items {
			if e.owed == 0 || it.end < e.owed {
				e.owed = it.end
			}
		}
	}
	e.stats.Lost[NotDelivered] += uint64(len(items))
	e.stats.LostSpans[NotDelivered] += uint64(spans)
}

// keepPlace writes down up to where everything that was offered has been dealt with.
func (e *Exporter) keepPlace() {
	if e.set.Place == nil {
		return
	}
	e.mu.Lock()
	through := e.newest
	if e.owed != 0 {
		through = min(through, e.owed-1)
	}
	for _, it := range e.queue {
		through = min(through, it.end-1)
	}
	e.mu.Unlock()
	if err := e.set.Place.keep(through); err != nil {
		e.mu.Lock()
		e.stats.Failures++
		e.stats.LastFailure, e.stats.FailedAt = fmt.Errorf("keep the place: %w; what was sent may be sent again after a restart", err), e.set.Now()
		e.mu.Unlock()
	}
}

// Stats returns the counts as they are now.
func (e *Exporter) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Kept, s.Lost, s.LostSpans = maps.Clone(s.Kept), maps.Clone(s.Lost), maps.Clone(s.LostSpans)
	return s
}
