package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// spans takes in what tracers export: first into a log of its own, then by trace into memory, from where quiet traces are sealed as calls
// (spans_seal.go).
type spans struct {
	log    store.Log
	set    Settings
	source wire.Source
	next   uint64         // number of the next batch in the log
	before store.Position // where it will lie, or after
	traces *traces

	commit sync.Mutex // held from the log to memory: whoever has it sees in memory all that is in the log

	mu      sync.Mutex
	pending []*spanBatch
	writing bool

	waiting   atomic.Int64 // spans that are neither refused nor in memory yet
	refused   atomic.Uint64
	calls     atomic.Uint64 // sealed
	amended   atomic.Uint64
	elsewhere atomic.Uint64 // spans that belong to no call
}

// spanFrames is the type of the frames that batches of spans travel in. They are in no stream of a probe.
const spanFrames wire.Type = 200

// spanChunk is how many spans are encoded together: texts are written once in it, and it fits a frame unless they are very large.
const spanChunk = 2000

func newSpans(log store.Log, set Settings) *spans {
	s := &spans{log: log, set: set, source: wire.Source{Name: "spans"}, traces: newTraces(set)}
	s.next = log.Kept(s.source) + 1
	s.before = log.LogInfo().Last
	return s
}

// spanBatch is what one call of accept brought.
type spanBatch struct {
	chunks []spanFrame
	done   chan struct{}
	err    error
}

// spanFrame is a batch of the log.
type spanFrame struct {
	spans  []genai.Span
	body   []byte
	number uint64
}

// AcceptSpans makes spans durable; when it returns nil they may be acknowledged. A span (trace id, span id) that was taken before changes
// nothing. An error that wraps [stream.ErrOverloaded] asks for them again later. The spans are kept: they must not change.
func (s *Server) AcceptSpans(ctx context.Context, list []genai.Span) error {
	if !s.ready.Load() {
		return fmt.Errorf("%w: the log is still being read", stream.ErrOverloaded)
	}
	_, err := s.spans.accept(ctx, list)
	if err != nil && !errors.Is(err, stream.ErrOverloaded) && ctx.Err() == nil {
		s.faults.note("append to the log of spans", err, s.set.Now())
	}
	return err
}

// accept returns how many of the spans are new.
func (s *spans) accept(ctx context.Context, list []genai.Span) (fresh int, err error) {
	list = s.traces.unknown(list)
	if len(list) == 0 {
		return 0, nil
	}
	if n := s.traces.size() + int(s.waiting.Load()); n > 2*s.set.HotSpans {
		s.refused.Add(uint64(len(list)))
		return 0, fmt.Errorf("%w: %d spans wait to be sealed", stream.ErrOverloaded, n)
	}
	s.waiting.Add(int64(len(list)))
	b := &spanBatch{chunks: encodeSpans(nil, list), done: make(chan struct{})}
	s.mu.Lock()
	s.pending = append(s.pending, b)
	if !s.writing {
		s.writing = true
		go s.write()
	}
	s.mu.Unlock()
	select {
	case <-b.done:
		return len(list), b.err
	case <-ctx.Done(): // they may become durable all the same: sent again they are duplicates
		return 0, ctx.Err()
	}
}

// encodeSpans cuts spans into pieces that fit a frame.
func encodeSpans(into []spanFrame, list []genai.Span) []spanFrame {
	for len(list) > 0 {
		n := min(len(list), spanChunk)
		body := genai.AppendSpans(nil, list[:n])
		for n > 1 && len(body) > wire.MaxFrame-wire.MinFrame {
			n /= 2
			body = genai.AppendSpans(nil, list[:n])
		}
		into = append(into, spanFrame{spans: list[:n], body: body})
		list = list[n:]
	}
	return into
}

// write commits what is pending until nothing is: whoever comes meanwhile shares the next sync.
func (s *spans) write() {
	for {
		s.mu.Lock()
		group := s.pending
		s.pending = nil
		if len(group) == 0 {
			s.writing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		err := s.put(group)
		for _, b := range group {
			b.err = err
			close(b.done)
		}
	}
}

// put appends a group of batches to the log and takes them into memory.
func (s *spans) put(group []*spanBatch) error {
	s.commit.Lock()
	defer s.commit.Unlock()
	var records []store.Record
	count := 0
	for _, b := range group {
		for i := range b.chunks {
			c := &b.chunks[i]
			c.number = s.next
			s.next++ // whatever comes of it: a number that may be on disk is not used again
			count += len(c.spans)
			records = append(records, store.Record{Source: s.source, Frame: wire.Frame{Sequence: c.number, Type: spanFrames, Body: c.body}})
		}
	}
	defer s.waiting.Add(-int64(count))
	end, err := s.log.Append(context.Background(), records)
	if err != nil {
		if errors.Is(err, store.ErrFull) { // it may be freed: the exporter keeps what it has
			s.refused.Add(uint64(count))
			return fmt.Errorf("%w: %w", stream.ErrOverloaded, err)
		}
		return err
	}
	now := s.set.Now()
	for _, b := range group {
		for _, c := range b.chunks {
			s.traces.take(c.spans, s.before, now)
		}
	}
	s.before = end
	return nil
}

// recoverSpans takes up again what the log has and no period.
func (s *Server) recoverSpans(ctx context.Context) error {
	first := &firstFrame{}
	if _, err := s.spans.log.Replay(ctx, store.Position{}, first); err != nil && !errors.Is(err, errFirst) {
		return err
	}
	sealed := map[genai.TraceID]uint64{}
	if first.number > 0 {
		err := s.store.SealedTraces(ctx, first.number-1, func(trace string, through uint64) error {
			if id, ok := genai.ParseTraceID(trace); ok {
				sealed[id] = max(sealed[id], through)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	r := &spanReader{s: s, sealed: sealed}
	if _, err := s.spans.log.Replay(ctx, store.Position{}, r); err != nil {
		return err
	}
	s.spans.next = max(s.spans.next, r.last+1)
	return nil
}

// errFirst stops a replay at its first frame.
var errFirst = errors.New("that is the first")

// firstFrame is a sink that learns the number of the first frame.
type firstFrame struct{ number uint64 }

func (*firstFrame) Source(wire.Source) (uint16, error) { return 0, nil }
func (*firstFrame) Gap(uint16, wire.Gap) error         { return nil }
func (r *firstFrame) Frame(_ uint16, f wire.Frame) error {
	r.number = f.Sequence
	return errFirst
}

// spanReader is a sink that takes up spans from the log, but for those that a period has.
type spanReader struct {
	s      *Server
	sealed map[genai.TraceID]uint64 // up to which batch the spans of a trace are sealed
	last   uint64
}

func (*spanReader) Source(wire.Source) (uint16, error) { return 0, nil }

func (r *spanReader) Gap(_ uint16, g wire.Gap) error {
	r.s.faults.note("read the log of spans", errors.New(g.Why), r.s.set.Now())
	return nil
}

func (r *spanReader) Frame(_ uint16, f wire.Frame) error {
	r.last = f.Sequence
	if f.Type != spanFrames {
		return nil
	}
	list, err := genai.DecodeSpans(f.Body)
	if err != nil { // the others are taken up
		r.s.faults.note("read the log of spans", fmt.Errorf("batch %d: %w", f.Sequence, err), r.s.set.Now())
		return nil
	}
	t := r.s.spans.traces
	now := r.s.set.Now()
	for i := range list {
		if list[i].Trace == (genai.TraceID{}) {
			continue
		}
		if through, ok := r.sealed[list[i].Trace]; ok && f.Sequence <= through {
			t.known(&list[i])
			continue
		}
		t.take(list[i:i+1:i+1], store.Position{}, now)
	}
	return nil
}
