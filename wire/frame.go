package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Limits of a frame, in bytes.
const (
	FrameHeader = 28      // before the body
	MinFrame    = 32      // the shortest frame, padding included
	MaxFrame    = 1 << 20 // the longest

	frameAlign = 8
	frameMagic = 0x4C57 // the bytes "WL"
)

// Offsets of the header's fields.
const (
	frameCRC      = 0
	frameLength   = 4
	frameSequence = 8
	frameTime     = 16
	frameMagicAt  = 24
	frameType     = 26
	frameFlags    = 27
)

// Frame is one record of the wire, its length, magic and checksum found right. Body and Raw point into the bytes that it was
// parsed from.
type Frame struct {
	Sequence uint64 // 1, 2, 3 … within one source; a hole is a loss
	Time     int64  // ns of the host's CLOCK_MONOTONIC; what happened then is said by each message; 0 = not known
	Type     Type
	Flags    uint8  // what they mean depends on Type
	Body     []byte // the message's fields, padding included
	Raw      []byte // the whole frame as it was read; nil for a frame that was not read
}

// ParseFrame reads the frame at the start of b and returns it with its length in bytes. The error is an [Error] around
// [ErrTruncated] (more bytes are needed), [ErrMagic], [ErrLength] or [ErrChecksum]. Nothing is allocated unless it fails.
func ParseFrame(b []byte) (Frame, int, error) {
	n, err := checkFrame(b)
	if err != nil {
		return Frame{}, 0, describeFrame(b, err)
	}
	return openFrame(b[:n]), n, nil
}

// AppendFrame appends f to dst as a whole frame: header, Body, and zero bytes up to the next multiple of 8. Raw is not
// looked at. It fails with [ErrLength] and leaves dst as it was if the frame would be longer than [MaxFrame].
func AppendFrame(dst []byte, f Frame) ([]byte, error) {
	start := len(dst)
	dst = append(dst, make([]byte, FrameHeader)...)
	dst = append(dst, f.Body...)
	return sealFrame(dst, start, f)
}

// sealFrame pads the frame that begins at start, header space and body being in place, and fills in its header.
func sealFrame(dst []byte, start int, f Frame) ([]byte, error) {
	for (len(dst)-start)%frameAlign != 0 {
		dst = append(dst, 0)
	}
	b := dst[start:]
	if len(b) > MaxFrame {
		return dst[:start], &Error{Err: ErrLength, Message: f.Type.String(), Sequence: f.Sequence, Field: "length",
			Value: fmt.Sprint(len(b)), Remedy: fmt.Sprintf("a frame holds at most %d bytes; write less into one message", MaxFrame)}
	}
	binary.LittleEndian.PutUint32(b[frameLength:], uint32(len(b)))
	binary.LittleEndian.PutUint64(b[frameSequence:], f.Sequence)
	binary.LittleEndian.PutUint64(b[frameTime:], uint64(f.Time))
	binary.LittleEndian.PutUint16(b[frameMagicAt:], frameMagic)
	b[frameType] = byte(f.Type)
	b[frameFlags] = f.Flags
	binary.LittleEndian.PutUint32(b[frameCRC:], crc32.ChecksumIEEE(b[frameLength:]))
	return dst, nil
}

// checkFrame returns the length of the whole frame at the start of b, or the bare sentinel that says what is wrong with
// it. It allocates nothing in either case, so that a damaged stretch can be searched in steps of eight bytes.
func checkFrame(b []byte) (int, error) {
	n, err := peekFrame(b)
	if err != nil {
		return 0, err
	}
	if n > len(b) {
		return 0, ErrTruncated
	}
	if binary.LittleEndian.Uint32(b[frameCRC:]) != crc32.ChecksumIEEE(b[frameLength:n]) {
		return 0, ErrChecksum
	}
	return n, nil
}

// peekFrame returns the length that the header at the start of b claims, if header and claim are possible at all.
func peekFrame(b []byte) (int, error) {
	if len(b) < FrameHeader {
		return 0, ErrTruncated
	}
	if binary.LittleEndian.Uint16(b[frameMagicAt:]) != frameMagic {
		return 0, ErrMagic
	}
	n := binary.LittleEndian.Uint32(b[frameLength:])
	if n < MinFrame || n > MaxFrame || n%frameAlign != 0 {
		return 0, ErrLength
	}
	return int(n), nil
}

// openFrame gives the fields of a whole and checked frame.
func openFrame(b []byte) Frame {
	b = b[:len(b):len(b)] // whoever appends to Body must not write over the next frame
	return Frame{
		Sequence: binary.LittleEndian.Uint64(b[frameSequence:]),
		Time:     int64(binary.LittleEndian.Uint64(b[frameTime:])),
		Type:     Type(b[frameType]),
		Flags:    b[frameFlags],
		Body:     b[FrameHeader:],
		Raw:      b,
	}
}

// describeFrame turns the sentinel that checkFrame gave for b into an error for people.
func describeFrame(b []byte, err error) error {
	e := &Error{Err: err, Message: "frame",
		Remedy: "skip to the next whole frame; if it happens again, look for a second writer or a failing disk"}
	if len(b) < FrameHeader {
		e.Field, e.Value = "header", fmt.Sprintf("%d of %d bytes", len(b), FrameHeader)
		return e
	}
	length := binary.LittleEndian.Uint32(b[frameLength:])
	switch err {
	case ErrMagic:
		e.Field, e.Value = "magic", fmt.Sprintf("%#04x", binary.LittleEndian.Uint16(b[frameMagicAt:]))
		return e
	case ErrLength:
		e.Field, e.Value = "length", fmt.Sprint(length)
	case ErrTruncated:
		e.Field, e.Value = "length", fmt.Sprintf("%d of %d bytes", len(b), length)
	case ErrChecksum:
		e.Field, e.Value = "crc", fmt.Sprintf("%#08x", binary.LittleEndian.Uint32(b[frameCRC:]))
	}
	e.Message, e.Sequence = Type(b[frameType]).String(), binary.LittleEndian.Uint64(b[frameSequence:])
	return e
}
