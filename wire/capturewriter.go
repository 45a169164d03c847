package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// CaptureWriter writes a capture: the frames of several sources in compressed blocks, each of which can be read by
// itself. It is a [Sink]. The first error of the underlying writer stays, and every later call returns it. It is for one goroutine.
type CaptureWriter struct {
	w       io.Writer
	encoder *zstd.Encoder
	sources []captureSource // by id − 1
	blocks  int             // ended so far
	records []byte          // of the open block
	packed  []byte          // the last block, for reuse
	frame   []byte          // the last frame that had to be built, for reuse
	size    int64
	err     error
}

// captureSource is what a block has to say about a source before its first frame.
type captureSource struct {
	name  string
	json  []byte
	block int // the number of the block that said it last, from 1
}

// NewCaptureWriter starts a capture on w.
func NewCaptureWriter(w io.Writer) (*CaptureWriter, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}
	c := &CaptureWriter{w: w, encoder: encoder}
	header := append(make([]byte, 0, captureHeader), captureMagic...)
	header = binary.LittleEndian.AppendUint16(header, Major)
	header = binary.LittleEndian.AppendUint16(header, Minor)
	header = binary.LittleEndian.AppendUint32(header, 0)
	return c, c.write(header)
}

// Source opens a source and returns the number that its frames and gaps go under. s.ID is not looked at.
func (c *CaptureWriter) Source(s Source) (uint16, error) {
	if len(c.sources) == math.MaxUint16 {
		return 0, &Error{Err: ErrLength, Message: "capture", Field: "source",
			Value: fmt.Sprint(len(c.sources) + 1), Remedy: "a capture holds 65,535 sources; start another one"}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return 0, fmt.Errorf("write source %s to capture: %w", s.Name, err)
	}
	c.sources = append(c.sources, captureSource{name: s.Name, json: b})
	id := uint16(len(c.sources))
	return id, c.record(id, recordSource, nil)
}

// Frame appends a frame of a source: f.Raw if f was read, else what its fields say.
func (c *CaptureWriter) Frame(source uint16, f Frame) error {
	raw := f.Raw
	if raw == nil {
		var err error
		if raw, err = AppendFrame(c.frame[:0], f); err != nil {
			return err
		}
		c.frame = raw
	}
	return c.record(source, recordFrame, raw)
}

// Gap appends what is missing of a source, or of everything if source is 0.
func (c *CaptureWriter) Gap(source uint16, g Gap) error {
	record := gapRecord{Gap: g}
	if source != 0 && int(source) <= len(c.sources) {
		record.Source = c.sources[source-1].name
	}
	b, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write gap to capture: %w", err)
	}
	return c.record(source, recordGap, b)
}

// record appends one record, and before it, in each block anew, who its source is: so that each block can be read alone.
func (c *CaptureWriter) record(source uint16, kind uint16, payload []byte) error {
	if c.err != nil {
		return c.err
	}
	if int(source) > len(c.sources) || source == 0 && kind != recordGap {
		return &Error{Err: ErrValue, Message: "capture", Field: "source",
			Value: fmt.Sprint(source), Remedy: "open the source before writing its frames"}
	}
	if len(c.records) > 0 && len(c.records)+recordHeader+len(payload) > blockTarget {
		if err := c.Flush(); err != nil {
			return err
		}
	}
	if source != 0 {
		if s := &c.sources[source-1]; s.block != c.blocks+1 {
			s.block = c.blocks + 1
			c.append(source, recordSource, s.json)
		}
	}
	if kind != recordSource {
		c.append(source, kind, payload)
	}
	return nil
}

func (c *CaptureWriter) append(source uint16, kind uint16, payload []byte) {
	c.records = binary.LittleEndian.AppendUint16(c.records, source)
	c.records = binary.LittleEndian.AppendUint16(c.records, kind)
	c.records = binary.LittleEndian.AppendUint32(c.records, uint32(len(payload)))
	c.records = append(c.records, payload...)
}

// Flush ends the open block and writes it. What was written before Flush survives whatever happens to the writer after it.
func (c *CaptureWriter) Flush() error {
	if c.err != nil || len(c.records) == 0 {
		return c.err
	}
	var header [blockHeader]byte
	b := c.encoder.EncodeAll(c.records, append(c.packed[:0], header[:]...))
	packed := b[blockHeader:]
	copy(b, blockMagic)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(packed)))
	binary.LittleEndian.PutUint32(b[8:], uint32(len(c.records)))
	binary.LittleEndian.PutUint32(b[12:], crc32.ChecksumIEEE(packed))
	c.records, c.packed = c.records[:0], b
	c.blocks++
	return c.write(b)
}

// Size is the number of bytes written so far, the open block not included.
func (c *CaptureWriter) Size() int64 { return c.size }

// Close flushes. It does not close the underlying writer.
func (c *CaptureWriter) Close() error {
	err := c.Flush()
	c.encoder.Close()
	return err
}

// Discard lets go of the encoder without writing what was not flushed.
func (c *CaptureWriter) Discard() { c.encoder.Close() }

func (c *CaptureWriter) write(b []byte) error {
	n, err := c.w.Write(b)
	c.size += int64(n)
	if err != nil {
		c.err = fmt.Errorf("write capture: %w", err)
	}
	return c.err
}
