package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// wasteLimit bounds how many bytes may go through the checksum in vain, beside eight times those read. A damaged capture
// needs a few blocks' worth; a hostile one could claim a large block every sixteen bytes.
const wasteLimit = 64 << 20

// blockReader finds the whole blocks in a capture, whatever lies between them.
type blockReader struct {
	in      window
	decoder *zstd.Decoder
	raw     []byte // the last block, for reuse
	read    int64  // bytes passed
	wasted  int64  // bytes checked in vain
}

func newBlockReader(r io.Reader) (*blockReader, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(maxBlockRaw), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	return &blockReader{in: window{in: r}, decoder: decoder}, nil
}

// next returns the records of the next whole block, valid until the next call, and the gap before it if bytes had to be
// passed over to find it. At the end the error is [io.EOF], and the gap is what the file ends with.
func (b *blockReader) next() ([]byte, *Gap, error) {
	var gap *Gap
	for {
		records, size, why, err := b.block()
		if why == "" {
			b.pass(size)
			return records, gap, err
		}
		if gap == nil {
			gap = &Gap{Why: why}
		}
		gap.Bytes += int64(b.seek())
		if err == nil && b.wasted > wasteLimit+8*b.read {
			err = &Error{Err: ErrChecksum, Message: "capture", Value: fmt.Sprintf("%d bytes read, hardly a whole block among them", b.read),
				Remedy: "this is no capture, or its damage is beyond repair"}
		}
		if err != nil {
			return nil, gap, err
		}
	}
}

// block reads the block at the present place: its records and its size in the file, or why it is none. At the end of the input it
// says io.EOF and no reason.
func (b *blockReader) block() (records []byte, size int, why string, err error) {
	header, err := b.in.peek(blockHeader)
	switch {
	case err == io.EOF && len(header) > 0:
		return nil, 0, WhyTruncated, nil
	case err != nil:
		return nil, 0, "", err
	}
	packed := int(binary.LittleEndian.Uint32(header[4:]))
	raw := int(binary.LittleEndian.Uint32(header[8:]))
	crc := binary.LittleEndian.Uint32(header[12:])
	if string(header[:4]) != blockMagic || packed > maxBlockPack || raw > maxBlockRaw {
		return nil, 0, WhyDamaged, nil
	}
	whole, err := b.in.peek(blockHeader + packed)
	if err == io.EOF {
		return nil, 0, WhyTruncated, nil
	}
	if err != nil {
		return nil, 0, "", err
	}
	body := whole[blockHeader:]
	if crc32.ChecksumIEEE(body) != crc {
		b.wasted += int64(packed)
		return nil, 0, WhyDamaged, nil
	}
	if cap(b.raw) < raw {
		b.raw = make([]byte, raw)
	}
	records, err = b.decoder.DecodeAll(body, b.raw[:0:raw]) // never more than was declared: the cap is the limit
	if err != nil || len(records) != raw {
		b.wasted += int64(packed)
		return nil, 0, WhyDamaged, nil
	}
	return records, len(whole), "", nil
}

// seek passes at least one byte and stops at the next block's magic or the end. It returns how many bytes it passed.
func (b *blockReader) seek() int {
	passed := 0
	for {
		rest, err := b.in.peek(max(len(b.in.buf), len(blockMagic)+1))
		if len(rest) == 0 {
			return passed
		}
		if i := bytes.Index(rest[1:], []byte(blockMagic)); i >= 0 {
			return passed + b.pass(1+i)
		}
		if err != nil {
			return passed + b.pass(len(rest))
		}
		passed += b.pass(len(rest) - len(blockMagic) + 1) // the end may be the beginning of a magic
	}
}

func (b *blockReader) pass(n int) int {
	b.in.pass(n)
	b.read += int64(n)
	return n
}

func (b *blockReader) close() { b.decoder.Close() }
