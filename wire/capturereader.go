package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// CaptureReader reads a capture from its beginning. Damage costs the block that it is in, or the record, and is reported as a
// gap; so are sequences that are missing, repeated or out of order. It is for one goroutine.
type CaptureReader struct {
	name    string
	file    io.Closer // nil if the caller owns the input
	blocks  *blockReader
	records []byte // of the present block, not read yet
	sources map[uint16]*sourceState
	damaged int     // bad blocks and records so far
	held    *Record // the frame that comes after the gap before it
	end     error   // what the input ended with
}

// sourceState is what a reader knows of one source.
type sourceState struct {
	Source
	order
	damaged int // CaptureReader.damaged at the last frame: what is missing since then may be what was damaged
}

// OpenCapture opens the capture file at path.
func OpenCapture(path string) (*CaptureReader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open capture: %w", err)
	}
	r := &CaptureReader{name: path, file: file}
	if err := r.start(file); err != nil {
		file.Close()
		return nil, from(path, err)
	}
	return r, nil
}

// NewCaptureReader reads a capture from in.
func NewCaptureReader(in io.Reader) (*CaptureReader, error) {
	r := new(CaptureReader)
	return r, r.start(in)
}

// start reads the file's header. A newer major version is refused with [ErrNewerMajor].
func (r *CaptureReader) start(in io.Reader) error {
	r.sources = make(map[uint16]*sourceState)
	var header [captureHeader]byte
	if n, err := io.ReadFull(in, header[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Err: ErrTruncated, Message: "capture", Field: "header",
			Value: fmt.Sprintf("%d of %d bytes", n, captureHeader), Remedy: "nothing had been written to it yet"}
	} else if err != nil {
		return fmt.Errorf("read capture: %w", err)
	}
	if string(header[:8]) != captureMagic {
		return &Error{Err: ErrMagic, Message: "capture", Field: "magic",
			Value: fmt.Sprintf("%q", header[:8]), Remedy: "this is no capture (.wlc), or its first bytes are damaged"}
	}
	major, minor := binary.LittleEndian.Uint16(header[8:]), binary.LittleEndian.Uint16(header[10:])
	if major > Major {
		return newerMajor("capture", major, minor)
	}
	var err error
	r.blocks, err = newBlockReader(in)
	return err
}

// Close lets go of the decoder, and of the file if [OpenCapture] opened it.
func (r *CaptureReader) Close() error {
	r.blocks.close()
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Next gives the next record. The error is [io.EOF] at the end; a file that was cut has a gap as its last record. Any
// other error is the input's, and stays.
func (r *CaptureReader) Next() (Record, error) {
	for {
		switch {
		case r.held != nil:
			record := *r.held
			r.held = nil
			return record, nil
		case len(r.records) > 0:
			if record, ok := r.next(); ok {
				return record, nil
			}
		case r.end != nil:
			return Record{}, r.end
		default:
			var gap *Gap
			r.records, gap, r.end = r.blocks.next()
			r.end = from(r.name, r.end)
			if gap != nil {
				r.damaged++
				return Record{Gap: gap}, nil
			}
		}
	}
}

// next reads one record of the block. It is not ok if there is nothing to tell about it.
func (r *CaptureReader) next() (Record, bool) {
	if len(r.records) < recordHeader {
		return r.spoilt(0, len(r.records))
	}
	source := binary.LittleEndian.Uint16(r.records)
	kind := binary.LittleEndian.Uint16(r.records[2:])
	length := binary.LittleEndian.Uint32(r.records[4:])
	if uint64(length) > uint64(len(r.records)-recordHeader) {
		return r.spoilt(source, len(r.records))
	}
	size := recordHeader + int(length)
	payload := r.records[recordHeader:size]
	switch kind {
	case recordFrame:
		f, n, err := ParseFrame(payload)
		if err != nil || n != len(payload) {
			return r.spoilt(source, size)
		}
		r.records = r.records[size:]
		return r.frame(source, f)
	case recordSource:
		opened := Source{ID: source}
		if json.Unmarshal(payload, &opened) != nil {
			return r.spoilt(source, size)
		}
		if string(opened.Hello) == "null" {
			opened.Hello = nil
		}
		r.records = r.records[size:]
		return r.open(opened)
	case recordGap:
		var g gapRecord
		if json.Unmarshal(payload, &g) != nil {
			return r.spoilt(source, size)
		}
		r.records = r.records[size:]
		r.state(source).explain(&g.Gap)
		return Record{Source: source, Gap: &g.Gap}, true
	}
	r.records = r.records[size:] // of a newer minor version
	return Record{}, false
}

// frame gives f, or the gap that comes before or instead of it.
func (r *CaptureReader) frame(source uint16, f Frame) (Record, bool) {
	s := r.state(source)
	lost := WhyMissing
	if s.damaged != r.damaged {
		lost = WhyDamaged
	}
	s.damaged = r.damaged
	gap, give := s.admit(f.Sequence, lost)
	if gap == nil {
		return Record{Source: source, Frame: f}, true
	}
	if give {
		r.held = &Record{Source: source, Frame: f}
	}
	return Record{Source: source, Gap: gap}, true
}

// open takes note of a source. A block repeats the sources of the ones before it; that is not told again.
func (r *CaptureReader) open(opened Source) (Record, bool) {
	s := r.state(opened.ID)
	if s.Name == opened.Name && bytes.Equal(s.Hello, opened.Hello) && s.Opened == opened.Opened {
		return Record{}, false
	}
	if s.Name != "" { // another source under the same number: two captures in one file
		s.order = order{}
	}
	s.Source = opened
	return Record{Source: opened.ID, Opened: &opened}, true
}

// state is what is known of a source, even if the record that opened it is lost.
func (r *CaptureReader) state(source uint16) *sourceState {
	s := r.sources[source]
	if s == nil {
		s = &sourceState{Source: Source{ID: source}}
		r.sources[source] = s
	}
	return s
}

// spoilt passes over size bytes of the block that make no sense.
func (r *CaptureReader) spoilt(source uint16, size int) (Record, bool) {
	r.records = r.records[size:]
	r.damaged++
	return Record{Source: source, Gap: &Gap{Why: WhyDamaged, Bytes: int64(size)}}, true
}
