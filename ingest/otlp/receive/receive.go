package receive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/storage"
	"google.golang.org/grpc/codes"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ingest/otlp"
)

// Sinks take what came in. One that is nil refuses its signal, by name.
type Sinks struct {
	// Spans keeps spans, and returns nil only when they are kept. A [*Retry] asks the sender to send again.
	Spans func(context.Context, []genai.Span) error
	// Metrics takes samples: of metrics, and of evaluations in logs.
	Metrics storage.Appendable
	// Logs keeps evaluations, as Spans does spans, and returns those that it had not: only they are counted in time series. It may be nil where
	// Metrics is not: then only their scores are kept, as time series, and one that is sent again counts again.
	Logs func(context.Context, []otlp.LogRecord) (fresh []otlp.LogRecord, err error)
	// Console takes lines of programs' consoles; nil: they are counted and let go.
	Console otlp.Console
}

// Settings bound what senders can make the server hold. Zero values are the defaults.
type Settings struct {
	Limits      otlp.Limits
	Requests    int   // under way at once: 256
	InFlight    int64 // bytes received and not yet answered, after decompression: 256 MiB
	Decoders    int   // requests decoded at once: as many as there are processors
	Connections int   // of the gRPC address: 1024
	DeltaSeries int   // series whose deltas are added up: 100,000
	Now         func() time.Time
	Log         *slog.Logger // nil: nothing is logged
}

func (s Settings) settled() Settings {
	s.Requests = cmp.Or(s.Requests, 256)
	s.InFlight = cmp.Or(s.InFlight, 256<<20)
	s.Decoders = cmp.Or(s.Decoders, runtime.GOMAXPROCS(0))
	s.Connections = cmp.Or(s.Connections, 1024)
	s.DeltaSeries = cmp.Or(s.DeltaSeries, 100_000)
	s.Limits.Body = cmp.Or(s.Limits.Body, 64<<20)
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return s
}

// deltaIdle is how long a series of deltas may be silent before its sum may be forgotten.
const deltaIdle = time.Hour

// Retry is the error of a sink that cannot keep anything at the moment: the sender is asked to send again.
type Retry struct {
	After time.Duration // 0: a second
	Err   error
}

func (r *Retry) Error() string { return r.Err.Error() }
func (r *Retry) Unwrap() error { return r.Err }

// Signal is what a request carries.
type Signal uint8

// Signals.
const (
	Traces Signal = iota
	Metrics
	Logs
	signals
)

func (s Signal) String() string { return [...]string{"traces", "metrics", "logs"}[s] }

// Transport is how a request came.
type Transport uint8

// Transports.
const (
	GRPC Transport = iota
	HTTP
	transports
)

func (t Transport) String() string { return [...]string{"grpc", "http"}[t] }

// Receiver takes in requests of any transport.
type Receiver struct {
	sinks    Sinks
	set      Settings
	decoders chan *otlp.Decoder
	requests chan struct{}
	inFlight atomic.Int64
	sums     *accumulator
	stats    stats
}

// New makes a receiver.
func New(sinks Sinks, set Settings) *Receiver {
	set = set.settled()
	r := &Receiver{sinks: sinks, set: set, decoders: make(chan *otlp.Decoder, set.Decoders), requests: make(chan struct{}, set.Requests),
		sums: &accumulator{series: map[string]*running{}, most: set.DeltaSeries, idle: deltaIdle, now: set.Now}}
	for range set.Decoders {
		r.decoders <- &otlp.Decoder{Limits: set.Limits}
	}
	return r
}

// failure is the answer to a request of which nothing was kept.
type failure struct {
	code  codes.Code
	retry time.Duration // > 0: it may be sent again after so long
	cause string        // a word or two for the counters
	text  string        // for the sender; it quotes nothing of the request
}

func (f *failure) Error() string { return f.text }

// Causes of failures that are not those of [otlp.Refused].
const (
	causeOverload  = "overload"
	causeNoSink    = "not taken here"
	causeSink      = "not kept"
	causeType      = "content type"
	causeEncoding  = "content encoding"
	causeToken     = "token"
	causeCancelled = "sender gone"
	causeFault     = "fault"
)

// survive is deferred by whoever answers a request: a fault of the server costs that request, which is refused, counted and logged with its stack.
func (r *Receiver) survive(s Signal, t Transport, f **failure) {
	if p := recover(); p != nil {
		r.set.Log.Error("a request of OTLP met a fault of the server", "signal", s.String(), "transport", t.String(), "fault", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
		*f = &failure{code: codes.Internal, cause: causeFault, text: "the request met a fault of this server, whose log says where"}
	}
}

// answer is what a request that was taken is answered with: partial success where something of it was refused.
type answer struct {
	rejected int64
	message  string
}

// body is a request as it came.
type body struct {
	bytes    []byte
	encoding otlp.Encoding
	gzipped  bool
}

// ready says why a signal is not taken at all.
func (r *Receiver) ready(s Signal) *failure {
	switch {
	case s == Traces && r.sinks.Spans == nil, s == Metrics && r.sinks.Metrics == nil, s == Logs && r.sinks.Metrics == nil && r.sinks.Logs == nil && r.sinks.Console == nil:
		return &failure{code: codes.Unimplemented, cause: causeNoSink, text: fmt.Sprintf("this server takes in no %s: it has nowhere to keep them", s)}
	}
	return nil
}

// enter takes a place for a request, at once or not at all.
func (r *Receiver) enter() (leave func(), f *failure) {
	select {
	case r.requests <- struct{}{}:
		return func() { <-r.requests }, nil
	default:
		return nil, overloaded(fmt.Sprintf("%d requests are under way already", cap(r.requests)))
	}
}

func overloaded(why string) *failure {
	return &failure{code: codes.ResourceExhausted, retry: time.Second, cause: causeOverload, text: why + ": send again in a second"}
}

// reserve takes n bytes of what may be in flight. A request that is alone is never too much.
func (r *Receiver) reserve(n int64) *failure {
	if now := r.inFlight.Add(n); now > r.set.InFlight && now > n {
		r.inFlight.Add(-n)
		return overloaded(fmt.Sprintf("%d bytes wait to be kept already", now-n))
	}
	return nil
}

func (r *Receiver) release(n int64) { r.inFlight.Add(-n) }

// take decodes a request and hands it to its sink. The caller has reserved the bytes of b.
func (r *Receiver) take(ctx context.Context, s Signal, t Transport, b body) (answer, *failure) {
	c := &r.stats.of[s][t]
	c.requests.Add(1)
	c.bytes.Add(int64(len(b.bytes)))
	counts, kept, err := r.keep(ctx, s, b)
	if counts != nil {
		c.rejected.Add(int64(counts.Rejected))
		for class, n := range counts.Dropped {
			r.stats.dropped[class].Add(int64(n))
		}
		r.stats.oversize.Add(int64(counts.Oversize))
	}
	if f := failureOf(ctx, err); f != nil {
		return answer{}, f
	}
	c.accepted.Add(int64(max(kept-counts.Rejected, 0)))
	n, message := counts.PartialSuccess()
	return answer{n, message}, nil
}

// keep gives what was read and how many records that were.
func (r *Receiver) keep(ctx context.Context, s Signal, b body) (*otlp.Counts, int, error) {
	var d *otlp.Decoder
	select {
	case d = <-r.decoders:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	back := func() {
		if d != nil {
			r.decoders <- d
			d = nil
		}
	}
	defer back()
	switch s {
	case Metrics:
		return r.writeMetrics(ctx, d, b.bytes, b.encoding, b.gzipped)
	case Logs:
		return r.keepLogs(ctx, d, b)
	}
	out, err := d.Decode(b.bytes, b.encoding, b.gzipped)
	back()
	if err != nil {
		return nil, 0, err
	}
	if len(out.Spans) == 0 {
		return &out.Counts, out.Rejected, nil
	}
	more := int64(len(out.Spans)) * spanBytes
	if f := r.reserve(more); f != nil {
		return &out.Counts, 0, f
	}
	defer r.release(more)
	return &out.Counts, len(out.Spans) + out.Rejected, r.sinks.Spans(ctx, out.Spans)
}

// spanBytes is about what a decoded span occupies while it waits to be kept.
const spanBytes = 1 << 10

func (r *Receiver) keepLogs(ctx context.Context, d *otlp.Decoder, b body) (*otlp.Counts, int, error) {
	records, out, err := d.Logs(b.bytes, b.encoding, b.gzipped, r.sinks.Console)
	if err != nil {
		return &out.Counts, 0, err
	}
	r.stats.evaluations.Add(int64(out.Evaluations))
	r.stats.lines.Add(int64(out.Lines))
	r.stats.understood.Add(int64(out.Understood))
	r.stats.passed.Add(int64(out.Passed))
	if len(records) > 0 && r.sinks.Logs != nil {
		all := len(records)
		if records, err = r.sinks.Logs(ctx, records); err != nil {
			return &out.Counts, out.Records, err
		}
		r.stats.known.Add(int64(all - len(records)))
	}
	if len(records) > 0 && r.sinks.Metrics != nil {
		err = r.writeEvaluations(ctx, records, &out.Counts)
	}
	return &out.Counts, out.Records + out.Rejected, err
}

// failureOf is what a sender is told of an error.
func failureOf(ctx context.Context, err error) *failure {
	var refused *otlp.Refused
	var retry *Retry
	var f *failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.As(err, &refused):
		code := codes.InvalidArgument
		if refused.Cause == otlp.TooLarge {
			code = codes.ResourceExhausted
		}
		return &failure{code: code, cause: string(refused.Cause), text: refused.Error()}
	case errors.As(err, &retry):
		return &failure{code: codes.Unavailable, retry: cmp.Or(retry.After, time.Second), cause: causeSink, text: retry.Error()}
	case ctx.Err() != nil:
		return &failure{code: codes.Unavailable, retry: time.Second, cause: causeCancelled, text: "the request was given up before it was kept"}
	}
	return &failure{code: codes.Internal, cause: causeSink, text: "what was sent could not be kept; the server's log says why"}
}

// writeEvaluations adds scores and labels of evaluations up to time series. Names and labels are low in number, ids are not and stay away.
func (r *Receiver) writeEvaluations(ctx context.Context, records []otlp.LogRecord, counts *otlp.Counts) error {
	s := r.begin(ctx)
	defer s.undo()
	s.counts, s.sums.own = counts, true
	now := uint64(r.set.Now().UnixNano())
	before := now - uint64(time.Second) // when a new series was 0
	for i := range records {
		e := &records[i].Evaluation
		about := []otlp.Label{{Name: "gen_ai.evaluation.name", Value: e.Name}, {Name: "gen_ai.response.model", Value: e.Model}}
		if !math.IsNaN(e.Score) {
			s.evaluated(records[i].Origin, "gen_ai.evaluation.score", otlp.Point{Labels: about, Start: before, Time: now, Count: 1, Total: e.Score, HasTotal: true}, otlp.Histogram)
		}
		about = append(about, otlp.Label{Name: "gen_ai.evaluation.score.label", Value: e.Label}, otlp.Label{Name: "error.type", Value: e.Error})
		s.evaluated(records[i].Origin, "gen_ai.evaluation.results", otlp.Point{Labels: about, Start: before, Time: now, Value: 1}, otlp.Sum)
	}
	s.flush()
	return s.commit()
}
