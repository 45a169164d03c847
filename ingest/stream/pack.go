package stream

import (
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/whylate/whylate/wire"
)

// packer makes the payload of frames messages. It is for one goroutine.
type packer struct {
	encoder *zstd.Encoder
	packed  []byte // the last payload, for reuse
}

func newPacker() (*packer, error) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(MaxRaw), zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("start packing: %w", err)
	}
	return &packer{encoder: e}, nil
}

// pack returns the payload for frames, valid until the next call, and what its header calls raw. What does not become smaller
// stays as it is, so that a payload is never longer than its frames.
func (p *packer) pack(frames []byte) (payload []byte, raw uint32) {
	p.packed = p.encoder.EncodeAll(frames, p.packed[:0])
	if len(p.packed) >= len(frames) {
		return frames, 0
	}
	return p.packed, uint32(len(frames))
}

// unpacker reads what a packer has made. It may be used by several goroutines at once.
type unpacker struct{ decoder *zstd.Decoder }

func newUnpacker() (*unpacker, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxRaw), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("start unpacking: %w", err)
	}
	return &unpacker{d}, nil
}

// unpack gives the bytes of the frames in a payload: never more than raw says, whatever the payload claims of itself.
func (u *unpacker) unpack(payload []byte, raw uint32) ([]byte, error) {
	if raw == 0 {
		return payload, nil
	}
	frames, err := u.decoder.DecodeAll(payload, make([]byte, 0, raw))
	if err != nil {
		return nil, fmt.Errorf("packed block: %w", err)
	}
	if len(frames) != int(raw) {
		return nil, fmt.Errorf("packed block: %d bytes where %d were announced", len(frames), raw)
	}
	return frames, nil
}

// split parses whole frames, one behind the other. They point into b.
func split(b []byte) ([]wire.Frame, error) {
	var frames []wire.Frame
	for len(b) > 0 {
		f, n, err := wire.ParseFrame(b)
		if err != nil {
			return nil, err
		}
		frames = append(frames, f)
		b = b[n:]
	}
	return frames, nil
}
