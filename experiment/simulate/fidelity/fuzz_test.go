package fidelity_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/fidelity"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/wire"
)

// unpacked is a small simulated run as the frames of its scheduler, one after the other.
type unpacked struct {
	hello []byte
	ids   map[uint16]bool
	raw   []byte
}

func (u *unpacked) Source(s wire.Source) (uint16, error) {
	h, err := wire.ParseHello(s.Hello)
	id := uint16(len(u.ids))
	if u.ids[id] = h.Thread == "scheduler"; u.ids[id] {
		u.hello = bytes.Clone(s.Hello)
	}
	return id, err
}

func (u *unpacked) Gap(uint16, wire.Gap) error { return nil }

func (u *unpacked) Frame(id uint16, f wire.Frame) error {
	if u.ids[id] {
		u.raw = append(u.raw, f.Raw...)
	}
	return nil
}

// Whatever stands in frames that are whole, the check ends, and without a panic.
func FuzzCheck(f *testing.F) {
	u := &unpacked{ids: map[uint16]bool{}}
	settings := world.DefaultSettings()
	for name, value := range map[string]string{"num_gpu_blocks": "40", "max_model_len": "512", "max_num_batched_tokens": "128", "async_scheduling": "true", "num_speculative_tokens": "2"} {
		if err := world.Set(settings, name, value); err != nil {
			f.Fatal(err)
		}
	}
	var load []experiment.Request
	for i := range 12 {
		load = append(load, experiment.Request{At: time.Duration(i) * 5 * time.Millisecond, PromptTokens: 60 + 20*i, OutputTokens: 40, Prefix: []experiment.PrefixRun{{Hash: 1, Tokens: 48}}, CancelChunks: i % 4 * 5})
	}
	w, err := world.New(world.Config{Recorder: world.NewFrames(u), Workload: experiment.Open(experiment.Requests(load)), Traits: func(r *experiment.Request) world.Traits {
		return world.Traits{Grammar: time.Duration(r.PromptTokens%3) * 20 * time.Millisecond, BadGrammar: r.PromptTokens%9 == 2}
	}, Replicas: []world.Replica{{Name: "a", Ranks: []world.Rank{{Version: "0.32.0", Settings: settings, Model: timing.MadeUp().Model(1), Accept: 0.5}}}}})
	if err == nil {
		_, err = w.Run()
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), uint16(0), []byte{0})
	f.Add(uint16(40), uint16(8), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, number, offset uint16, with []byte) {
		// Some bytes of a frame's body are others: the frame is whole, and says something else.
		raw := u.raw
		_, _ = fidelity.Check(func(sink wire.Sink) error {
			id, err := sink.Source(wire.Source{Name: "fuzz", Hello: u.hello})
			if err != nil {
				return err
			}
			for n := 0; len(raw) > 0; n++ {
				frame, length, err := wire.ParseFrame(raw)
				if err != nil {
					return err
				}
				raw = raw[length:]
				if n == int(number) {
					frame.Body = bytes.Clone(frame.Body)
					for i, b := range with {
						if at := int(offset) + i; at < len(frame.Body) {
							frame.Body[at] ^= b
						}
					}
				}
				if err := sink.Frame(id, frame); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
