package world

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/whylate/whylate/wire"
)

// Frames is a Recorder that makes frames of messages and hands them to a sink: a [wire.CaptureWriter], or a ledger that is being built.
type Frames struct {
	sink    wire.Sink
	sources []framed
	raw     []byte
}

// framed is a source on its way into a sink.
type framed struct {
	id       uint16
	sequence uint64
}

// NewFrames returns a recorder that writes into a sink.
func NewFrames(sink wire.Sink) *Frames { return &Frames{sink: sink} }

// Source implements [Recorder]: it opens a source in the sink, named as the ring of its thread would be, and writes its hello.
func (f *Frames) Source(h *wire.Hello) (int, error) {
	object, err := json.Marshal(h)
	if err != nil {
		return 0, err
	}
	id, err := f.sink.Source(wire.Source{Name: strings.TrimSuffix(wire.RingName(h), ".ring"), Hello: object, Opened: h.Clock[1]})
	if err != nil {
		return 0, err
	}
	f.sources = append(f.sources, framed{id: id})
	n := len(f.sources) - 1
	return n, f.Record(n, h)
}

// Record implements [Recorder].
func (f *Frames) Record(source int, m wire.Message) error {
	if source < 0 || source >= len(f.sources) {
		return fmt.Errorf("source %d was never opened", source)
	}
	s := &f.sources[source]
	raw, err := wire.Append(f.raw[:0], s.sequence+1, m)
	if err != nil {
		return err
	}
	f.raw = raw
	frame, _, err := wire.ParseFrame(raw)
	if err != nil {
		return err
	}
	s.sequence++
	return f.sink.Frame(s.id, frame)
}

// Lose implements [Loser]: the sequence number is used up, so that a reader sees the hole.
func (f *Frames) Lose(source int, _ wire.Message) error {
	f.sources[source].sequence++
	return nil
}
