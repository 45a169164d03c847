package replay

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/whylate/whylate/wire"
)

// clockEvery is how often a recorder notes a pair of clock readings while results come, ns.
const clockEvery = 10e9

// maxGaps is how many gaps one client message may hold.
const maxGaps = 1 << 16

// A Recorder writes results into a capture, or any other sink, as client messages of the wire format. Its Record is what
// [Options.Recorder] wants:
//
//	recorder, err := replay.NewRecorder(capture, hello)
//	options.Recorder = recorder.Record
//	summary, err := replay.Run(ctx, options, workload)
//	err = recorder.Close()
//
// It writes as one source, which only the times of the host's CLOCK_MONOTONIC fit: those of [Monotonic]. It is for one goroutine.
type Recorder struct {
	sink     wire.Sink
	source   uint16
	sequence uint64
	pair     func() wire.Clock // reads the clocks
	paired   int64             // when it last did, ns of CLOCK_MONOTONIC
	frame    []byte
	err      error
}

// NewRecorder opens a source in the sink and writes its hello, mostly that of [Hello], and a first pair of clock readings.
func NewRecorder(sink wire.Sink, hello wire.Hello) (*Recorder, error) {
	return newRecorder(sink, hello, clockPair)
}

func newRecorder(sink wire.Sink, hello wire.Hello, pair func() wire.Clock) (*Recorder, error) {
	name := strings.TrimSuffix(wire.RingName(&hello), ".ring")
	object, err := json.Marshal(hello)
	if err != nil {
		return nil, fmt.Errorf("record replay %s: %w", name, err)
	}
	source, err := sink.Source(wire.Source{Name: name, Hello: object, Opened: hello.Clock[1]})
	if err != nil {
		return nil, fmt.Errorf("record replay %s: %w", name, err)
	}
	r := &Recorder{sink: sink, source: source, pair: pair}
	r.write(&hello)
	r.writeClock()
	return r, r.err
}

// Record writes one result. After an error it writes nothing more; Close returns the error.
func (r *Recorder) Record(result Result) {
	if result.End-r.paired >= clockEvery {
		r.writeClock()
	}
	r.write(ClientMessage(&result))
}

// Close writes a last pair of clock readings and returns the first error of all. It does not close the sink.
func (r *Recorder) Close() error {
	r.writeClock()
	return r.err
}

func (r *Recorder) writeClock() {
	c := r.pair()
	r.paired = c.MonoAfter
	r.write(&c)
}

func (r *Recorder) write(m wire.Message) {
	if r.err != nil {
		return
	}
	r.sequence++
	raw, err := wire.Append(r.frame[:0], r.sequence, m)
	if err == nil {
		r.frame = raw
		var frame wire.Frame
		if frame, _, err = wire.ParseFrame(raw); err == nil {
			err = r.sink.Frame(r.source, frame)
		}
	}
	if err != nil {
		r.err = fmt.Errorf("record replay: %w", err)
	}
}

// ClientMessage says a result in the words of the wire format: times in ns, gaps in µs, of which the first 65,536 are kept. The gaps
// are differences of rounded times, so that rounding does not add up over a long answer.
func ClientMessage(r *Result) *wire.Client {
	m := &wire.Client{
		Time: r.Sent, Planned: r.Planned, First: r.First, End: r.End,
		Status: uint16(r.Status), Outcome: wire.Outcome(r.Outcome), Attempt: uint8(min(r.Attempt, math.MaxUint8)),
		Prompt: clamp(int64(r.PromptTokens)), Output: clamp(int64(r.OutputTokens)),
		RequestID: r.RequestID, Traceparent: r.Traceparent, Class: r.Class, ResponseID: r.ResponseID, Error: r.Error,
	}
	chunks := r.Chunks[:min(len(r.Chunks), maxGaps)]
	if len(chunks) == 0 {
		return m
	}
	m.Gaps = make([]uint32, len(chunks))
	var before int64 // µs after r.Sent
	for i, c := range chunks {
		after := (c.At - r.Sent + 500) / 1000
		m.Gaps[i] = clamp(after - before)
		before = after
	}
	return m
}

// clamp brings a count into the range of its field.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
